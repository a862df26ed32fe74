// SPDX-License-Identifier: GPL-2.0

//! Takes the packets that await their verdict out of the receive queue, one packet or one complete
//! record at a time.
//!
//! A record whose end has not arrived stays in the receive queue. A record whose packets cannot be
//! joined in one buffer is dropped, and the caller resets the connection.

use kernel::{
    net::skbuff::SkBuff,
    prelude::*, //
};

use pin_init::stack_pin_init;

use super::{
    packet::{
        Packet,
        PacketQueue, //
    },
    queue_slot::QueueSlot,
    socket::LockedVirtioSock, //
};

/// A packet that awaits its verdict, or all packets of a record in one buffer.
pub(crate) struct AwaitingVerdict<'a> {
    skb: SkBuff,
    slot: QueueSlot<'a>,
}

impl<'a> AwaitingVerdict<'a> {
    /// Returns the packet and its slot. The packet does not have the bytes that the owner has read.
    pub(crate) fn into_parts(self) -> (SkBuff, QueueSlot<'a>) {
        (self.skb, self.slot)
    }
}

/// The packets that await their verdict, outside the receive queue.
///
/// The counters of the receive queue still include these packets. Dropping the value puts the
/// remaining packets back into the receive queue.
///
/// # Context
///
/// Dropping it: process context. The caller holds the socket lock. Does not sleep. Takes and
/// releases `rx_lock`.
///
/// # Invariants
///
/// The packets come from the end of the receive queue of `vsk`, in order.
#[pin_data(PinnedDrop)]
pub(crate) struct VerdictQueue<'a> {
    vsk: &'a LockedVirtioSock<'a>,
    #[pin]
    queue: PacketQueue,
}

impl<'a> VerdictQueue<'a> {
    /// Takes all packets that await their verdict out of the receive queue of `vsk`.
    ///
    /// Takes none if the only one is a record that is known to be incomplete.
    ///
    /// # Context
    ///
    /// The caller holds the socket lock. Does not sleep. Takes and releases `rx_lock`.
    pub(super) fn new(vsk: &'a LockedVirtioSock<'a>) -> impl PinInit<Self> {
        // INVARIANT: There is no packet yet.
        pin_init!(VerdictQueue {
            vsk,
            queue <- PacketQueue::new(),
        })
        .pin_chain(|queue| {
            queue.fill();
            Ok(())
        })
    }

    fn fill(self: Pin<&mut Self>) {
        let mut this = self.project();
        let mut rx = this.vsk.lock_rx();
        if this.vsk.vsk().is_record_socket() && rx.is_unfinished() {
            return;
        }
        while let Some(packet) = rx.pop_back() {
            if packet.cb().verdict_done {
                rx.push_back(packet);
                break;
            }
            // INVARIANT: The packet was in front of those that `queue` has already.
            this.queue.as_mut().push_front(packet);
        }
    }

    fn pop_front(self: Pin<&mut Self>) -> Option<Packet> {
        self.project().queue.pop_front()
    }

    /// Takes the next packet or the next record, and removes the bytes that the owner has read.
    ///
    /// Removing these bytes can fail if there is no memory. Such a packet goes back to the receive
    /// queue without a verdict, because the owner has begun to read it. This function then returns
    /// the packet after it.
    ///
    /// # Context
    ///
    /// The caller holds the socket lock. Does not sleep. Takes and releases `rx_lock`, then may
    /// take and release `send_lock`.
    ///
    /// # Errors
    ///
    /// [`EMSGSIZE`] or [`EINVAL`] if the packets of a record cannot be joined in one buffer. The
    /// record is then dropped, and its credit is given back.
    pub(crate) fn next(mut self: Pin<&mut Self>) -> Option<Result<AwaitingVerdict<'a>>> {
        let vsk = self.vsk;
        loop {
            let mut packet = if vsk.vsk().is_record_socket() {
                match self.as_mut().pop_record()? {
                    Ok(packet) => packet,
                    Err(err) => return Some(Err(err)),
                }
            } else {
                self.as_mut().pop_front()?
            };
            let offset = packet.cb().offset;
            if packet.pull(offset).is_err() {
                packet.set_verdict_done();
                vsk.lock_rx().push_back(packet);
                continue;
            }
            let (skb, slot) = QueueSlot::new(vsk, packet);
            return Some(Ok(AwaitingVerdict { skb, slot }));
        }
    }

    /// Takes the packets of the next record and joins them, so that the verdict runs on the whole
    /// record.
    ///
    /// If the end of the record has not arrived, puts the packets of the record back into the
    /// receive queue and returns [`None`]. Only the last record can be incomplete.
    fn pop_record(mut self: Pin<&mut Self>) -> Option<Result<Packet>> {
        let mut record = self.as_mut().pop_front()?;
        let mut header = record.header();
        stack_pin_init!(let rest = PacketQueue::new());
        let mut len = record.len();
        while !header.ends_record() {
            let Some(packet) = self.as_mut().pop_front() else {
                let mut rx = self.vsk.lock_rx();
                rx.push_back(record);
                rx.append(rest);
                rx.set_unfinished();
                return None;
            };
            header = header.joined(packet.header());
            len = len.wrapping_add(packet.len());
            rest.as_mut().push_back(packet);
        }
        // SAFETY: A packet in the receive queue is not charged to a socket.
        if let Err(err) = unsafe { record.append(rest) } {
            QueueSlot::remove_lost(self.vsk, header, len);
            return Some(Err(err));
        }
        record.set_header(header);
        Some(Ok(record))
    }
}

#[pinned_drop]
impl PinnedDrop for VerdictQueue<'_> {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        this.vsk.lock_rx().append(this.queue);
    }
}
