// SPDX-License-Identifier: GPL-2.0-only
//! Sends and receives with a deadline.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{recv, send, MsgFlags};

/// What a receive call got before its deadline.
pub enum Received {
    Bytes(usize),
    Eof,
    /// The deadline passed.
    Late,
}

/// Waits for `flags`. Returns false when the deadline passes.
pub fn wait(fd: &OwnedFd, flags: PollFlags, deadline: Instant) -> Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd.as_fd(), flags)], limit) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends all `bytes`. Returns false when the deadline passes.
pub fn send_all(fd: &OwnedFd, mut bytes: &[u8], deadline: Instant) -> Result<bool> {
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    while !bytes.is_empty() {
        match send(fd.as_raw_fd(), bytes, flags) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EAGAIN) => {
                if !wait(fd, PollFlags::POLLOUT, deadline)? {
                    return Ok(false);
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("send"),
        }
    }
    Ok(true)
}

/// Receives once.
pub fn receive(fd: &OwnedFd, buffer: &mut [u8], deadline: Instant) -> Result<Received> {
    loop {
        match recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Ok(Received::Eof),
            Ok(count) => return Ok(Received::Bytes(count)),
            Err(Errno::EAGAIN) => {
                if !wait(fd, PollFlags::POLLIN, deadline)? {
                    return Ok(Received::Late);
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("receive"),
        }
    }
}
