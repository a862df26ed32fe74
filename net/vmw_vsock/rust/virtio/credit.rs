// SPDX-License-Identifier: GPL-2.0

//! Gives receive credit back to the peer, when the packet that holds it has been consumed.
//!
//! A packet that leaves the receive queue owns a [`Credit`], which the destructor of its buffer
//! drops. Outside the queue, credit is given back to the peer only by dropping a [`Credit`].
//!
//! Some packets cannot own their credit (`MSG_ZEROCOPY` over the loopback transport). Then the
//! [`QueueSlot`](super::queue_slot::QueueSlot) of the packet owns the [`Credit`], and drops it as
//! soon as the verdict has dropped or redirected the packet.

use kernel::{
    net::{
        skbuff::SkBuffOwner,
        sock::Sock, //
    },
    prelude::*,
    sync::aref::ARef, //
};

use core::mem::ManuallyDrop;

use super::{
    counters::{
        Counters,
        CreditUpdate, //
    },
    rx_state::RxState,
    socket::VirtioSock, //
};

/// The credit of a packet that has left the receive queue.
///
/// The packet owns it until the target of the redirect has consumed the packet. Dropping the credit
/// gives it back to the peer, and sends the peer a credit update if the peer needs one.
///
/// # Context
///
/// Dropping it: any context but hard interrupt. Does not sleep. Takes and releases `rx_lock` of the
/// socket, then may take and release its `send_lock`. Does not need the socket lock.
///
/// # Invariants
///
/// `sk` meets the requirements of [`VirtioSock::from_sk`]. The counters `buf_used` and `redirected`
/// of the socket include `bytes`.
pub(crate) struct Credit {
    sk: ARef<Sock>,
    bytes: u32,
}

impl Credit {
    /// Takes the credit of a packet that has been taken out of the receive queue.
    ///
    /// `rx_bytes` still includes the packet. The caller subtracts the packet from it if the packet
    /// does not come back ([`Counters::without`]).
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes and releases `rx_lock`, then may take
    /// and release `send_lock`.
    pub(super) fn take(vsk: &VirtioSock<'_>, bytes: u32) -> Self {
        let rx = vsk.lock_rx();
        let counters = rx.counters().redirected(bytes);
        vsk.update_counters(rx, counters);
        // INVARIANT: `buf_used` includes the packet since it arrived, and `redirected` includes it
        // from now on. A verdict only runs for a socket that has been in a map, and such a socket
        // keeps its transport (`keeps_transport`).
        Self {
            sk: vsk.sk().into(),
            bytes,
        }
    }

    /// Returns the number of bytes, without giving the credit back to the peer.
    ///
    /// This is for a packet that goes back to the receive queue. The caller must subtract the bytes
    /// from the redirected credit ([`Counters::requeued`]).
    pub(super) fn into_bytes(self) -> u32 {
        let bytes = self.bytes;
        let (sk, _) = self.into_parts();
        drop(sk);
        bytes
    }
}

impl SkBuffOwner for Credit {
    fn into_parts(self) -> (ARef<Sock>, usize) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is neither used again nor dropped, so `sk` has one owner.
        (unsafe { core::ptr::read(&this.sk) }, this.bytes as usize)
    }

    unsafe fn from_parts(sk: ARef<Sock>, bytes: usize) -> Self {
        // INVARIANT: The parts come from a `Credit` that was taken apart, and not dropped.
        Self {
            sk,
            bytes: bytes as u32,
        }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        // SAFETY: By the type invariant `self.sk` meets the requirements of `from_sk()`. It holds a
        // reference to the socket.
        let Ok(vsk) = (unsafe { VirtioSock::from_sk(&self.sk) }) else {
            return;
        };
        let rx = vsk.lock_rx();
        let counters = rx.counters().returned(self.bytes);
        vsk.update_counters(rx, counters);
    }
}

impl VirtioSock<'_> {
    /// Sets the counters of the receive queue, and sends a credit update if the peer needs one.
    ///
    /// If the peer can do without the update for now, or if sending fails, schedules the update.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Releases `rx_lock`, which `rx` holds, then
    /// may take and release `send_lock`.
    pub(super) fn update_counters(&self, mut rx: RxState<'_>, counters: Counters) {
        rx.set_counters(counters);
        let update = counters.credit_update(
            rx.last_fwd_cnt(),
            rx.buf_alloc(),
            self.sk().rcvlowat(),
            self.is_record_socket(),
        );
        // Sending takes `send_lock`, which must not be taken while `rx_lock` is held.
        drop(rx);

        match update {
            CreditUpdate::No => {}
            _ if !self.peer_sends() => {}
            CreditUpdate::Now => {
                // Both errors can be temporary: memory can become free, and a guest that is stopped
                // can resume.
                if let Err(ENOMEM | EHOSTUNREACH) = self.send_credit_update() {
                    self.send_credit_update_later(true);
                }
            }
            CreditUpdate::Later => self.send_credit_update_later(false),
        }
    }
}
