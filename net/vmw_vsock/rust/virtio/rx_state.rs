// SPDX-License-Identifier: GPL-2.0

//! The receive queue of a socket, and the counters beside it: the state that `rx_lock` protects.
//!
//! The packets at the front of the queue have had their verdict. The packets at the end await
//! their verdict.

use kernel::{
    bindings,
    prelude::*,
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

use super::{
    counters::Counters,
    packet::{
        Packet,
        PacketQueue, //
    },
    socket::{
        LockedVirtioSock,
        VirtioSock, //
    },
};

/// The part of the transport state that `rx_lock` protects.
///
/// Dropping the value releases `rx_lock`.
///
/// # Context
///
/// The methods do not sleep, and take no other lock. The caller must not sleep while it has this
/// value.
///
/// # Invariants
///
/// `vvs` is valid, and `_guard` holds its `rx_lock`.
pub(super) struct RxState<'a> {
    vvs: NonNull<bindings::virtio_vsock_sock>,
    _guard: SpinLockBhGuard<'a, ()>,
}

impl VirtioSock<'_> {
    /// Takes `rx_lock`.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes `rx_lock`. The caller must not sleep
    /// until it drops the returned value, which releases the lock.
    pub(super) fn lock_rx(&self) -> RxState<'_> {
        let vvs = self.vvs_ptr();
        // SAFETY: By the invariant of `VirtioSock` `vvs` is valid, and its locks are initialised.
        let lock = unsafe { SpinLockBh::from_raw(&raw mut (*vvs.as_ptr()).rx_lock) };
        // INVARIANT: The guard holds the `rx_lock` of this `vvs`.
        RxState {
            vvs,
            _guard: lock.lock(),
        }
    }
}

impl LockedVirtioSock<'_> {
    /// Takes `rx_lock`.
    ///
    /// # Context
    ///
    /// As for [`VirtioSock::lock_rx`].
    pub(super) fn lock_rx(&self) -> RxState<'_> {
        self.vsk().lock_rx()
    }
}

impl RxState<'_> {
    fn queue(&mut self) -> Pin<&mut PacketQueue> {
        // SAFETY: By the type invariant the queue is valid, and the lock that protects it is held.
        // Only received packets are in it, to which nothing else refers. Each has its header in a
        // head of its own, and its control block, and keeps both while it is in the queue.
        unsafe { PacketQueue::from_raw(&raw mut (*self.vvs.as_ptr()).rx_queue) }
    }

    /// Takes the last packet out of the queue.
    pub(super) fn pop_back(&mut self) -> Option<Packet> {
        self.queue().pop_back()
    }

    /// Puts a packet at the end of the queue.
    pub(super) fn push_back(&mut self, packet: Packet) {
        self.queue().push_back(packet);
    }

    /// Puts packets back to the end of the queue, from which they were taken.
    pub(super) fn append(&mut self, mut packets: Pin<&mut PacketQueue>) {
        while let Some(packet) = packets.as_mut().pop_front() {
            self.push_back(packet);
        }
    }

    /// Returns whether the record at the end of the queue is known to be incomplete.
    ///
    /// [`Self::set_unfinished`] marked the packet that was the last one when a search found no end
    /// of the record. If the end has not arrived since, another search is useless. This function
    /// looks for the mark on the last two packets only. If the mark is on an earlier packet, it
    /// returns `false`: the caller then searches the record once more, and marks the new last
    /// packet.
    pub(super) fn is_unfinished(&mut self) -> bool {
        let Some(last) = self.pop_back() else {
            return false;
        };
        let mut is_unfinished = false;
        if !last.header().ends_record() {
            is_unfinished = last.cb().unfinished;
            // A packet that arrived after the search is now the last one, and has no mark.
            if let Some(before) = self.pop_back() {
                is_unfinished |= before.cb().unfinished && !before.header().ends_record();
                self.push_back(before);
            }
        }
        self.push_back(last);
        is_unfinished
    }

    /// Marks the last packet, so that [`Self::is_unfinished`] knows of the incomplete record.
    pub(super) fn set_unfinished(&mut self) {
        if let Some(mut last) = self.pop_back() {
            let cb = bindings::virtio_vsock_skb_cb {
                unfinished: true,
                ..last.cb()
            };
            last.set_cb(cb);
            self.push_back(last);
        }
    }

    /// Returns the counters.
    pub(super) fn counters(&self) -> Counters {
        let vvs = self.vvs.as_ptr();
        Counters {
            // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the
            // field, is held.
            rx_bytes: unsafe { (*vvs).rx_bytes },
            // SAFETY: As above.
            buf_used: unsafe { (*vvs).buf_used },
            // SAFETY: As above.
            redirected: unsafe { (*vvs).redir_credit },
            // SAFETY: As above.
            fwd_cnt: unsafe { (*vvs).fwd_cnt },
        }
    }

    /// Sets the counters. Does not check whether the peer needs a credit update, as
    /// [`VirtioSock::update_counters`] does.
    pub(super) fn set_counters(&mut self, counters: Counters) {
        let vvs = self.vvs.as_ptr();
        // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the field, is
        // held.
        unsafe { (*vvs).rx_bytes = counters.rx_bytes };
        // SAFETY: As above.
        unsafe { (*vvs).buf_used = counters.buf_used };
        // SAFETY: As above.
        unsafe { (*vvs).redir_credit = counters.redirected };
        // SAFETY: As above.
        unsafe { (*vvs).fwd_cnt = counters.fwd_cnt };
    }

    /// Returns the `fwd_cnt` that the peer knows.
    pub(super) fn last_fwd_cnt(&self) -> u32 {
        // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the field, is
        // held.
        unsafe { (*self.vvs.as_ptr()).last_fwd_cnt }
    }

    /// Returns the size of the receive buffer, in bytes.
    pub(super) fn buf_alloc(&self) -> u32 {
        // SAFETY: By the type invariant `vvs` is valid. C writes the word in one access.
        unsafe { atomic_load(&raw mut (*self.vvs.as_ptr()).buf_alloc, Relaxed) }
    }

    /// Returns the number of complete records in the queue.
    pub(super) fn msg_count(&self) -> u32 {
        // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the field, is
        // held.
        unsafe { (*self.vvs.as_ptr()).msg_count }
    }

    /// Subtracts a complete record from the count, because it left the queue unread.
    pub(super) fn remove_record(&mut self) {
        // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the field, is
        // held.
        let msg_count = unsafe { &mut (*self.vvs.as_ptr()).msg_count };
        *msg_count = msg_count.wrapping_sub(1);
    }
}
