// SPDX-License-Identifier: GPL-2.0

//! The counters of the bytes that a socket has sent: the state that `tx_lock` protects.

use kernel::{
    bindings,
    sync::{
        atomic::{
            atomic_load,
            Relaxed, //
        },
        SpinLockBh,
        SpinLockBhGuard, //
    },
};

use core::ptr::NonNull;

use super::socket::VirtioSock;

/// The part of the transport state that `tx_lock` protects.
///
/// Dropping the value releases `tx_lock`.
///
/// # Context
///
/// The methods do not sleep, and take no other lock. The caller must not sleep while it has this
/// value.
///
/// # Invariants
///
/// `vvs` is valid, and `_guard` holds its `tx_lock`.
pub(super) struct TxState<'a> {
    vvs: NonNull<bindings::virtio_vsock_sock>,
    _guard: SpinLockBhGuard<'a, ()>,
}

impl<'a> VirtioSock<'a> {
    /// Takes `tx_lock`.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes `tx_lock`. The caller must not sleep
    /// until it drops the returned value, which releases the lock.
    pub(super) fn lock_tx(&self) -> TxState<'a> {
        let vvs = self.vvs_ptr();
        // SAFETY: By the invariant of `VirtioSock` `vvs` is valid, and its locks are initialised.
        let lock = unsafe { SpinLockBh::from_raw(&raw mut (*vvs.as_ptr()).tx_lock) };
        // INVARIANT: The guard holds the `tx_lock` of this `vvs`.
        TxState {
            vvs,
            _guard: lock.lock(),
        }
    }
}

impl TxState<'_> {
    /// Returns the largest number of bytes that may be in flight.
    ///
    /// C function: `virtio_transport_tx_buf_size()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    pub(super) fn buf_size(&self) -> u32 {
        let vvs = self.vvs.as_ptr();
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let peer = unsafe { (*vvs).peer_buf_alloc };
        // SAFETY: `vvs` is valid. C writes the word in one access.
        peer.min(unsafe { atomic_load(&raw mut (*vvs).buf_alloc, Relaxed) })
    }

    /// Returns the number of bytes that were sent and that the peer has not consumed.
    pub(super) fn in_flight(&self) -> u32 {
        let vvs = self.vvs.as_ptr();
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let sent = unsafe { (*vvs).tx_cnt };
        // SAFETY: As above.
        sent.wrapping_sub(unsafe { (*vvs).peer_fwd_cnt })
    }

    /// Returns whether there are bytes that were counted as sent and that the transport still has
    /// to send.
    fn is_behind(&self) -> bool {
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        unsafe { (*self.vvs.as_ptr()).bytes_unsent != 0 }
    }

    /// Decides whether a small packet of a stream is sent at once. If so, records the time and the
    /// number of received bytes.
    ///
    /// A small packet that is not sent at once goes to the backlog, which merges small packets that
    /// come soon after each other. While the transport has unsent bytes, no small packet is sent at
    /// once. Otherwise a small packet is sent at once in two cases:
    ///
    /// * No small packet has been sent at once in this jiffy.
    /// * The peer has sent data since the last small packet that was sent at once. That packet may
    ///   have been a request, and the data its answer. This packet may be the next request.
    pub(super) fn may_send_small_now(&mut self) -> bool {
        let vvs = self.vvs.as_ptr();
        // SAFETY: The kernel writes the word in one access.
        let now = unsafe { atomic_load(&raw mut bindings::jiffies, Relaxed) };
        // SAFETY: By the type invariant `vvs` is valid. C writes the word in one access.
        let consumed = unsafe { atomic_load(&raw mut (*vvs).fwd_cnt, Relaxed) };
        // SAFETY: As above. `rx_lock` is not held, so `fwd_cnt` and `buf_used` may be read at
        // different moments. Then the sum can be wrong, which only sends or merges one packet more.
        let queued = unsafe { atomic_load(&raw mut (*vvs).buf_used, Relaxed) };
        let received = consumed.wrapping_add(queued);

        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let small_sent_at = unsafe { &mut (*vvs).small_sent_at };
        // SAFETY: As above.
        let small_sent_rx = unsafe { &mut (*vvs).small_sent_rx };
        if self.is_behind() || (*small_sent_at == now && *small_sent_rx == received) {
            return false;
        }
        *small_sent_at = now;
        *small_sent_rx = received;
        true
    }

    /// Counts `bytes` as in flight, and as bytes that the transport still has to send.
    pub(super) fn add(&mut self, bytes: u32) {
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let tx_cnt = unsafe { &mut (*self.vvs.as_ptr()).tx_cnt };
        *tx_cnt = tx_cnt.wrapping_add(bytes);
        // SAFETY: As above.
        let unsent = unsafe { &mut (*self.vvs.as_ptr()).bytes_unsent };
        *unsent = unsent.wrapping_add(bytes as usize);
    }

    /// Reverts [`TxState::add`] for `bytes` that were not sent.
    pub(super) fn sub(&mut self, bytes: u32) {
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let tx_cnt = unsafe { &mut (*self.vvs.as_ptr()).tx_cnt };
        *tx_cnt = tx_cnt.wrapping_sub(bytes);
        // SAFETY: As above.
        let unsent = unsafe { &mut (*self.vvs.as_ptr()).bytes_unsent };
        *unsent = unsent.wrapping_sub(bytes as usize);
    }
}
