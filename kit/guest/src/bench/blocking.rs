// SPDX-License-Identifier: GPL-2.0-only
//! What the ends of a measurement do, as plainly as any program would: no poll, no second copy.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{recv, send, setsockopt, sockopt, MsgFlags};
use nix::sys::time::{TimeVal, TimeValLike};

/// What a measurement may take before it ends with what has arrived.
pub const LIMIT: Duration = Duration::from_secs(5);

/// Calls end after this time; zero is none.
pub fn give_up_after(fd: &OwnedFd, limit: Duration) -> Result<()> {
    let limit = TimeVal::microseconds(limit.as_micros() as i64);
    setsockopt(fd, sockopt::ReceiveTimeout, &limit)?;
    setsockopt(fd, sockopt::SendTimeout, &limit)?;
    Ok(())
}

/// Whether a call ended since its time was up.
fn late(errno: Errno) -> bool {
    errno == Errno::EAGAIN
}

/// Sends all; false when the time is up.
pub fn send_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<bool> {
    while !bytes.is_empty() {
        match send(fd.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR) => {}
            Err(errno) if late(errno) => return Ok(false),
            Err(errno) => return Err(errno).context("send"),
        }
    }
    Ok(true)
}

/// Receives once; 0 when the time is up.
pub fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match recv(fd.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(count) => return Ok(count),
            Err(Errno::EINTR) => {}
            Err(errno) if late(errno) || errno == Errno::ECONNRESET => return Ok(0),
            Err(errno) => return Err(errno).context("receive"),
        }
    }
}

/// Fills the buffer; false at the end of the connection, or when the time is up.
pub fn receive_all(fd: &OwnedFd, buffer: &mut [u8]) -> Result<bool> {
    let mut had = 0;
    while had < buffer.len() {
        let count = receive(fd, &mut buffer[had..])?;
        if count == 0 {
            return Ok(false);
        }
        had += count;
    }
    Ok(true)
}

/// Writes `bytes` bytes, `size` at once, until `end`.
pub fn write(fd: &OwnedFd, bytes: usize, size: usize, end: Instant) -> Result<()> {
    let chunk = vec![0x5a; size];
    let mut left = bytes;
    while left > 0 && Instant::now() < end {
        let count = left.min(size);
        if !send_all(fd, &chunk[..count])? {
            break;
        }
        left -= count;
    }
    Ok(())
}

/// Reads `bytes` bytes, or until nothing more comes; returns how many, and when the last came.
pub fn drain(fd: &OwnedFd, bytes: usize, end: Instant) -> Result<(usize, Instant)> {
    let mut buffer = vec![0; 1 << 18];
    let mut had = 0;
    let mut last = Instant::now();
    while had < bytes && last < end {
        let count = receive(fd, &mut buffer)?;
        if count == 0 {
            break;
        }
        had += count;
        last = Instant::now();
    }
    Ok((had, last))
}

/// Sends back what comes, until the end.
pub fn echo(fd: &OwnedFd) -> Result<()> {
    let mut buffer = [0; 64];
    loop {
        let count = receive(fd, &mut buffer)?;
        if count == 0 || !send_all(fd, &buffer[..count])? {
            return Ok(());
        }
    }
}
