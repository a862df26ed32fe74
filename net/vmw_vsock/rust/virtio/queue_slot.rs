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
    /// The counters of the queue still include the packet, with `unread` bytes.
    ///
    /// # Context
    ///
    /// The caller holds the socket lock. Does not sleep. Takes and releases `rx_lock`, then may
    /// take and release `send_lock`.
    pub(super) fn new(vsk: &'a LockedVirtioSock<'a>, header: Header, unread: u32) -> Self {
        Self {
            vsk,
            header,
            unread,
            credit: Some(Credit::take(&vsk.0, header.len())),
        }
    }

    /// Moves the credit from this slot to its packet `skb`, if the packet can own its credit.
    ///
    /// A packet that has pages of user space (`MSG_ZEROCOPY`) or a clone cannot own its credit, see
    /// [`SkBuff::set_owner`]. The slot then keeps the credit.
    ///
    /// # Context
    ///
    /// The caller holds the socket lock. Does not sleep. Takes no locks.
    pub(super) fn move_credit_to(&mut self, skb: &mut SkBuff) {
        if let Some(credit) = self.credit.take() {
            // SAFETY: The verdict, the backlog of a psock and the target of a redirect free a
            // packet, or give it another owner, outside of hard interrupts. None of them then holds
            // `send_lock`, `rx_lock` or `tx_lock` of this socket.
            self.credit = unsafe { skb.set_owner(credit) }.err();
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
    /// `skb` is the packet of this slot. If [`Self::move_credit_to`] gave `skb` an owner
    /// ([`SkBuff::set_owner`]), `skb` still has that owner.
    pub(crate) unsafe fn requeue(mut self, mut skb: SkBuff) -> Requeued {
        let len = skb.len();
        if len == 0 && !self.header.ends_record() {
            return Requeued::Empty;
        }
        let credit = self.credit.take().or_else(|| {
            // SAFETY: If the credit is not in the slot, `move_credit_to()` made it the owner of
            // `skb`. By the safety requirements `skb` still has that owner.
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
        this.vsk.0.set_counters(rx, counters);
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
