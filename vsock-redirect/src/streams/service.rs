// SPDX-License-Identifier: GPL-2.0-only
//! The state that all connections share.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;

use crate::address::Peer;
use crate::stats::Tally;
use crate::stop::{Flag, Stop};
use crate::tool::Tool;

/// Bytes of the stack of a thread.
pub const STACK: usize = 1 << 20;

pub struct Service {
    pub peer: Peer,
    /// Clients may shut down only their sending side, and still wait for answers.
    pub half_close: bool,
    pub stop: Arc<Stop>,
    pub to_vsock: Arc<Tally>,
    pub to_unix: Arc<Tally>,
    /// An error that ends the tool, because each connection would fail with it.
    fatal: Mutex<Option<anyhow::Error>>,
    pub fatal_flag: Flag,
}

impl Service {
    pub fn new(tool: &Tool, peer: Peer) -> Result<Self> {
        Ok(Service {
            peer,
            half_close: tool.half_close,
            stop: Arc::clone(&tool.stop),
            to_vsock: Arc::clone(&tool.to_vsock),
            to_unix: Arc::clone(&tool.to_unix),
            fatal: Mutex::new(None),
            fatal_flag: Flag::new()?,
        })
    }

    /// Ends the tool with an error. If there are several, the tool reports the first one.
    pub fn fail(&self, error: anyhow::Error) {
        let mut fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner);
        fatal.get_or_insert(error);
        self.fatal_flag.raise();
    }

    pub fn take_fatal(&self) -> Option<anyhow::Error> {
        let mut fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner);
        fatal.take()
    }
}
