// SPDX-License-Identifier: GPL-2.0-only
//! One direction of a connection.

use anyhow::Result;

use super::service::Service;
use crate::end::{End, Gone, Kind};
use crate::redirect::Redirect;
use crate::stats::Tally;
use crate::stop::{Flag, Stop};

/// Bytes that are read at once.
pub const BUFFER: usize = 256 << 10;
/// Bytes of an injected datagram.
const INJECT_AT_ONCE: usize = 32 << 10;

pub struct Direction<'a> {
    pub service: &'a Service,
    pub from: &'a End,
    pub to: &'a End,
    pub tally: &'a Tally,
    /// Raised when the direction from the client to the vsock has ended.
    pub client_done: &'a Flag,
}

impl Direction<'_> {
    /// Returns whether this is the direction from the client to the vsock.
    pub fn is_request(&self) -> bool {
        self.from.kind == Kind::Unix
    }

    pub fn stop(&self) -> &Stop {
        &self.service.stop
    }

    /// Returns whether a redirect may start: a later shutdown() by the client must not drop
    /// answers.
    pub fn may_redirect(&self) -> bool {
        self.is_request() || !self.service.half_close || self.client_done.is_raised()
    }

    /// Sends bytes to the target through the injector, and waits for room where needed.
    pub fn inject(&self, redirect: &Redirect, bytes: &[u8]) -> Result<Result<(), Gone>> {
        for piece in bytes.chunks(INJECT_AT_ONCE) {
            while !redirect.inject(piece)? {
                if let Err(gone) = self.to.check_redirect(self.to.take_error())? {
                    return Ok(Err(gone));
                }
                if !self.to.writes() {
                    return Ok(Err(Gone));
                }
                self.stop().check_limit()?;
                redirect.wait_room(self.stop());
            }
        }
        Ok(Ok(()))
    }
}
