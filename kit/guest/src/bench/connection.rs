// SPDX-License-Identifier: GPL-2.0-only
//! A measured connection, and what keeps it working.

use std::os::fd::OwnedFd;
use std::process::Child;

use sockmap::{Map, Program};

use super::end::End;

/// A measured connection: bytes written to `writer` arrive at `source`, something moves them to
/// `target`, and from there they arrive at `reader`.
pub struct Connection {
    pub writer: End,
    /// The two sockets in the middle. `None` where this process does not have them.
    pub middle: Option<Middle>,
    pub reader: End,
    /// Moves bytes for the connection, until the helper is dropped.
    pub _helper: Helper,
}

pub struct Middle {
    pub source: OwnedFd,
    pub target: OwnedFd,
}

pub enum Helper {
    None,
    Socat(Child),
    /// The redirects in both directions.
    Sockmap(#[allow(dead_code)] [(Map, Program); 2]),
}

impl Drop for Helper {
    fn drop(&mut self) {
        if let Helper::Socat(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
