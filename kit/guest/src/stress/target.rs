// SPDX-License-Identifier: GPL-2.0-only
//! The target of redirects, and the socket at its other end.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use anyhow::{bail, Result};
use nix::errno::Errno;
use nix::sys::socket::{recv, socketpair, AddressFamily, MsgFlags, SockFlag, SockType};
use sockmap::Map;

use super::faults::Faults;
use super::pair::pair;
use super::words::Words;

/// The key of the target in its map.
pub const KEY: u64 = 0;

pub struct Target {
    pub socket: OwnedFd,
    /// Redirected bytes arrive here.
    pub receiver: OwnedFd,
    /// The map with the target.
    pub map: Map,
}

impl Target {
    /// Makes a UNIX stream or a vsock, and its map.
    pub fn new(unix: bool, faults: Faults) -> Result<Self> {
        let (socket, receiver) = if unix {
            socketpair(
                AddressFamily::Unix,
                SockType::Stream,
                None,
                SockFlag::SOCK_CLOEXEC,
            )?
        } else {
            faults.retry(|| pair(SockType::Stream, faults))?
        };
        let map = faults.retry(|| {
            let map = Map::new(1)?;
            map.insert(KEY, socket.as_fd())?;
            Ok(map)
        })?;
        Ok(Target {
            socket,
            receiver,
            map,
        })
    }

    /// Reads redirected bytes until the end, and keeps the number of words in `count`.
    pub fn drain(&self, count: &AtomicU64) -> Result<()> {
        let mut words = Words::new("target");
        let mut buffer = vec![0; 1 << 18];
        loop {
            match recv(self.receiver.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(0) => return Ok(()),
                Ok(len) => words.take(&buffer[..len])?,
                // The time limit of the socket: nothing was redirected for that long.
                Err(Errno::EAGAIN) => {}
                Err(errno) => bail!("recv behind the target: {errno}"),
            }
            count.store(words.count(), Relaxed);
        }
    }
}
