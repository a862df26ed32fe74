// SPDX-License-Identifier: GPL-2.0

//! Takes the credit that a redirect needs to send.
//!
//! A stream takes credit for as many of its bytes as possible. A record takes credit for all its
//! bytes, or none. These are the errors:
//!
//! * [`EAGAIN`]: there is too little credit left for the record, or none for the stream. The data
//!   waits in the backlog, which tries again when the peer has consumed more.
//! * [`EMSGSIZE`]: the record is larger than the whole receive buffer of the peer, or than that of
//!   this side (as for `sendmsg()`), so that it can never be sent. Core sockmap drops this record,
//!   and the redirect goes on.

use kernel::prelude::*;

use super::socket::VirtioSock;

/// The part of its data for which a sender needs credit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// As much as there is.
    Some,
    /// All or nothing.
    All,
    /// All or nothing, and [`EMSGSIZE`] if there can never be credit for all.
    Record,
}

/// Decides how many of `len` bytes may be sent. The result is at least one.
///
/// `buf_size` is the largest number of bytes that may be in flight. `in_flight` is the number of
/// bytes that were sent and that the peer has not consumed.
///
/// # Errors
///
/// * [`EAGAIN`] if no byte may be sent until the peer has consumed more, or if `len` is 0.
/// * [`EMSGSIZE`] if a record is larger than `buf_size`.
pub(super) fn grant(want: Want, len: u32, buf_size: u32, in_flight: u32) -> Result<u32> {
    // The peer may have made its buffer smaller than the data that it holds.
    let available = buf_size.saturating_sub(in_flight);
    let granted = match want {
        Want::Record if len > buf_size => return Err(EMSGSIZE),
        Want::Some => len.min(available),
        Want::All | Want::Record if len <= available => len,
        Want::All | Want::Record => 0,
    };
    if granted == 0 {
        return Err(EAGAIN);
    }
    Ok(granted)
}

/// Credit for sending to the peer, in bytes.
///
/// Dropping the value puts back the credit that was not spent.
///
/// # Context
///
/// Dropping it: any context but hard interrupt. Does not sleep. Takes and releases `tx_lock`, then
/// calls `sk_write_space`. The caller must not hold `send_lock`.
pub(super) struct TxCredit<'a> {
    vsk: VirtioSock<'a>,
    left: u32,
}

impl<'a> TxCredit<'a> {
    /// Takes credit for `len` bytes, or for a part of them if `want` allows it.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes and releases `tx_lock`.
    ///
    /// # Errors
    ///
    /// Those of [`grant`].
    pub(super) fn take(vsk: VirtioSock<'a>, want: Want, len: u32) -> Result<Self> {
        let mut tx = vsk.lock_tx();
        let left = grant(want, len, tx.buf_size(), tx.in_flight())?;
        tx.add(left);
        drop(tx);
        Ok(Self { vsk, left })
    }

    /// Returns the number of bytes of credit that have not been spent.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// Spends `bytes` bytes on a packet that was sent.
    pub(super) fn spend(&mut self, bytes: u32) {
        self.left = self.left.saturating_sub(bytes);
    }
}

impl Drop for TxCredit<'_> {
    fn drop(&mut self) {
        if self.left != 0 {
            self.vsk.lock_tx().sub(self.left);
            // The owner may have tried to send meanwhile, and may wait now because it found too
            // little credit. No packet of the peer will wake the owner, because this credit does
            // not come from the peer.
            self.vsk.sk().write_space();
        }
    }
}
