// SPDX-License-Identifier: GPL-2.0

//! Remembers where a packet belongs in the receive queue while its verdict runs.
//!
//! The slot puts a packet that the verdict passed back into the queue. If the verdict drops or
//! redirects the packet, dropping the slot removes the packet from the counters of the queue.

use kernel::net::skbuff::SkBuff;

use core::mem::ManuallyDrop;

use super::{
    credit::Credit,
    packet::{
        Header,
        Packet, //
    },
    socket::LockedVirtioSock, //
};

/// The slot of a packet in the receive queue while its verdict runs.
///
/// Dropping the slot removes the packet from the counters of the queue.
///
/// # Context
///
/// Dropping it: process context. The caller holds the socket lock. Does not sleep. Takes and
/// releases `rx_lock`. May then drop a [`Credit`].
pub(crate) struct QueueSlot<'a> {
    vsk: &'a LockedVirtioSock<'a>,
    header: Header,
    unread: u32,
    /// The credit of a packet that cannot own its credit. Dropping the slot gives the credit back,
    /// which may be before the target of a redirect has consumed the packet.
    credit: Option<Credit>,
}

/// The result of putting a passed packet back into the receive queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requeued {
    /// The packet is in the queue.
    Yes,
    /// The packet is gone: the verdict left no bytes of it, and it does not end a record.
    Empty,
    /// The packet is lost: there was no memory for its header.
    Lost,
}

impl<'a> QueueSlot<'a> {
    /// Makes the slot of a packet that has been taken out of the receive queue.
    ///
    /// Returns the buffer of the packet, and its slot. The counters of the queue still include the
    /// packet, with as many bytes as the buffer has.
    ///
    /// The packet owns its credit. Only a packet that has pages of user space (`MSG_ZEROCOPY`) or a
    /// clone cannot own its credit, see [`SkBuff::set_owner`]. The slot then keeps the credit.
    ///
    /// # Context
    ///
    /// The caller holds the socket lock. Does not sleep. Takes and releases `rx_lock`, then may
    /// take and release `send_lock`.
    pub(super) fn new(vsk: &'a LockedVirtioSock<'a>, packet: Packet) -> (SkBuff, Self) {
        let header = packet.header();
        let mut skb = packet.into_skb();
        let mut slot = Self::take(vsk, header, skb.len());
        if let Some(credit) = slot.credit.take() {
            // SAFETY: The verdict, the backlog of a psock and the target of a redirect free a
            // packet, or give it another owner, outside of hard interrupts. None of them then holds
            // `send_lock`, `rx_lock` or `tx_lock` of this socket.
            slot.credit = unsafe { skb.set_owner(credit) }.err();
        }
        (skb, slot)
    }

    /// Removes a lost packet from the counters of the queue, and gives its credit back to the peer.
    ///
    /// The counters include the packet with `unread` bytes. `header` is the header that it had.
    ///
    /// # Context
    ///
    /// The caller holds the socket lock. Does not sleep. Takes and releases `rx_lock`, then may
    /// take and release `send_lock`.
    pub(super) fn remove_lost(vsk: &'a LockedVirtioSock<'a>, header: Header, unread: u32) {
        drop(Self::take(vsk, header, unread));
    }

    /// Makes a slot that has the credit of its packet.
    fn take(vsk: &'a LockedVirtioSock<'a>, header: Header, unread: u32) -> Self {
        Self {
            vsk,
            header,
            unread,
            credit: Some(Credit::take(vsk.vsk(), header.len())),
        }
    }

    /// Puts the packet back into the receive queue, for the owner to read.
    ///
    /// The packet keeps its credit, even if the verdict made the packet longer or shorter.
    ///
    /// # Context
    ///
    /// Process context. May sleep. The caller holds the socket lock. Takes and releases `rx_lock`,
    /// then may take and release `send_lock`.
    ///
    /// # Safety
    ///
    /// `skb` must be the buffer that [`Self::new`] returned together with this slot. If
    /// [`Self::new`] gave it an owner ([`SkBuff::set_owner`]), it must still have that owner.
    pub(crate) unsafe fn requeue(mut self, mut skb: SkBuff) -> Requeued {
        let len = skb.len();
        if len == 0 && !self.header.ends_record() {
            return Requeued::Empty;
        }
        let credit = self.credit.take().or_else(|| {
            // SAFETY: The credit is not in the slot, so `new()` made it the owner of the buffer. By
            // the safety requirements `skb` is that buffer, and still has that owner, a `Credit`.
            unsafe { skb.take_owner() }
        });
        let Ok(packet) = Packet::restore(skb, self.header) else {
            return Requeued::Lost;
        };
        let credit = credit.map_or(0, Credit::into_bytes);

        let this = ManuallyDrop::new(self);
        let mut rx = this.vsk.lock_rx();
        rx.push_back(packet);
        let counters = rx.counters().resized(this.unread, len).requeued(credit);
        // The peer may need a credit update now. While other packets outside the queue hold credit,
        // an update can wait for them. This packet may have been the last one outside the queue.
        this.vsk.vsk().update_counters(rx, counters);
        Requeued::Yes
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        let mut rx = self.vsk.lock_rx();
        let counters = rx.counters().without(self.unread);
        rx.set_counters(counters);
        if self.header.ends_record() {
            rx.remove_record();
        }
    }
}
