// SPDX-License-Identifier: GPL-2.0-only
//! A vsock connection over loopback, on which no call waits forever.

use std::os::fd::OwnedFd;

use anyhow::Result;
use nix::sys::socket::{setsockopt, sockopt, SockType};
use nix::sys::time::TimeVal;

use super::faults::Faults;
use crate::sockets::loopback_pair;

/// Seconds after which a call counts as stuck.
pub const STUCK: i64 = 20;
/// The same with faults, where a lost packet may leave a call waiting.
const STUCK_WITH_FAULTS: i64 = 2;

/// Returns the socket that reads and the socket that writes.
pub fn pair(kind: SockType, faults: Faults) -> Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = loopback_pair(kind)?;
    let stuck = if faults.0 { STUCK_WITH_FAULTS } else { STUCK };
    for fd in [&reader, &writer] {
        setsockopt(fd, sockopt::ReceiveTimeout, &TimeVal::new(stuck, 0))?;
        setsockopt(fd, sockopt::SendTimeout, &TimeVal::new(stuck, 0))?;
    }
    Ok((reader, writer))
}
