// SPDX-License-Identifier: GPL-2.0

//! The counters of a receive queue: how receive credit is accounted, and when the peer needs a
//! credit update.
//!
//! Everything here is arithmetic on plain values, so that KUnit can test it.

use super::packet::MAX_PACKET;

/// When a peer needs a credit update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CreditUpdate {
    /// Not at present: the peer knows of enough credit.
    No,
    /// Now: the peer may be waiting for the update.
    Now,
    /// After 10 ms, if the peer still needs the update then. A target that reads at full speed
    /// consumes a whole buffer in less than 10 ms, so most of these updates are not needed then.
    Later,
}

/// The counters of a receive queue, in bytes, modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counters {
    /// The bytes that the owner can read.
    pub(super) rx_bytes: u32,
    /// The credit that packets hold, in the queue and outside.
    pub(super) buf_used: u32,
    /// The redirected credit: the part of `buf_used` that packets outside the queue hold. These
    /// are redirected packets, and the packet whose verdict is running.
    pub(super) redirected: u32,
    /// All the credit that was ever given back to the peer.
    pub(super) fwd_cnt: u32,
}

impl Counters {
    /// Returns the counters after a packet with `unread` bytes left the queue.
    ///
    /// `buf_used` still includes the credit of the packet, until [`Self::returned`].
    pub(super) fn without(self, unread: u32) -> Self {
        Self {
            rx_bytes: self.rx_bytes.wrapping_sub(unread),
            ..self
        }
    }

    /// Returns the counters after a packet took its `credit` out of the queue.
    pub(super) fn redirected(self, credit: u32) -> Self {
        Self {
            redirected: self.redirected.wrapping_add(credit),
            ..self
        }
    }

    /// Returns the counters after a packet was put back into the queue with its `credit`.
    pub(super) fn requeued(self, credit: u32) -> Self {
        Self {
            redirected: self.redirected.wrapping_sub(credit),
            ..self
        }
    }

    /// Returns the counters after a packet outside the queue gave its `credit` back to the peer.
    pub(super) fn returned(self, credit: u32) -> Self {
        Self {
            buf_used: self.buf_used.wrapping_sub(credit),
            fwd_cnt: self.fwd_cnt.wrapping_add(credit),
            ..self.requeued(credit)
        }
    }

    /// Returns the counters after the verdict changed a packet in the queue from `unread` bytes to
    /// `len` bytes.
    ///
    /// The credit that the packet holds stays the same.
    pub(super) fn resized(self, unread: u32, len: u32) -> Self {
        Self {
            rx_bytes: self.rx_bytes.wrapping_sub(unread).wrapping_add(len),
            ..self
        }
    }

    /// Decides when the peer needs a credit update.
    ///
    /// `last_fwd_cnt` is the `fwd_cnt` that the peer knows. `buf_alloc` is the size of the receive
    /// buffer. `rcvlowat` is the number of bytes that the owner waits for. `records` says that the
    /// socket has records.
    ///
    /// The peer needs no update if it knows of all the credit that was given back. Otherwise the
    /// first of these rules that matches applies:
    ///
    /// * If the socket has records, the update is due now: one record can need all the credit.
    /// * The credit that the peer does not know of is subtracted from the size of the buffer. If
    ///   less than one packet (`MAX_PACKET`) remains, the update is due now. C code has the same
    ///   rule for an owner that reads.
    /// * If the peer knows of enough unused credit for another packet and for the bytes that the
    ///   owner waits for, no update is due. The second condition is needed because an owner that
    ///   waits does not read, so no read sends an update.
    /// * If no packet outside the queue holds credit, the update is due now.
    /// * Otherwise the update is due later. The packets outside the queue usually give their credit
    ///   back soon, and the peer gets an update then. But a target that does not read can keep the
    ///   packets, so an update must be sent even if no packet gives its credit back.
    pub(super) fn credit_update(
        self,
        last_fwd_cnt: u32,
        buf_alloc: u32,
        rcvlowat: u32,
        records: bool,
    ) -> CreditUpdate {
        let unknown = self.fwd_cnt.wrapping_sub(last_fwd_cnt);
        let known = buf_alloc.saturating_sub(unknown);
        let wanted = MAX_PACKET.max(rcvlowat.saturating_sub(self.rx_bytes));
        if unknown == 0 {
            CreditUpdate::No
        } else if records || known < MAX_PACKET {
            CreditUpdate::Now
        } else if known.saturating_sub(self.buf_used) >= wanted {
            CreditUpdate::No
        } else if self.redirected == 0 {
            CreditUpdate::Now
        } else {
            CreditUpdate::Later
        }
    }
}
