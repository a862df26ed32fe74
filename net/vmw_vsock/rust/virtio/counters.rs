// SPDX-License-Identifier: GPL-2.0

//! The counters of a receive queue: how receive credit is accounted, and when the peer needs a
//! credit update.
//!
//! Everything here is arithmetic on plain values, which KUnit tests.

use super::packet::MAX_PACKET;

/// When a peer needs a credit update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CreditUpdate {
    /// The peer knows enough.
    No,
    /// The peer may be waiting for it.
    Now,
    /// After 10 ms, if the peer still needs it then. At full speed a whole buffer of data takes
    /// less than 10 ms, so that most of these updates are not sent.
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
    /// Its credit stays counted until [`Self::returned`].
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

    /// Returns the counters after a packet came back to the queue with its `credit`.
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
    /// The peer needs no update if it knows of all the credit that was given back. Otherwise these
    /// rules apply, the first that matches:
    ///
    /// * With records, the update is due now. One record can need all the credit.
    /// * If the peer does not know of nearly the whole buffer, so that the rest is smaller than a
    ///   packet, the update is due now. The same rule applies when an owner reads.
    /// * If the credit that the peer knows of is enough for another packet, and for the bytes that
    ///   the owner waits for, no update is due. The second condition is needed because an owner
    ///   that waits does not read, so no read sends an update.
    /// * If no redirected packet holds credit, the update is due now.
    /// * Otherwise it is due later. The redirected packets usually give their credit back soon, and
    ///   the peer gets an update then. But a target that does not read can keep the packets, so
    ///   there must be an update without them.
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
