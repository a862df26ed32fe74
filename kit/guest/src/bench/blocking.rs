// SPDX-License-Identifier: GPL-2.0-only
//! Sends and receives with blocking calls, as a plain program would: without poll() and without a
//! second copy.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{recv, send, setsockopt, sockopt, MsgFlags};
use nix::sys::time::{TimeVal, TimeValLike};

/// Time limit of a measurement. It then ends with the bytes that have arrived.
pub const LIMIT: Duration = Duration::from_secs(5);
/// Bytes that socat reads at once. Other arms choose their buffers to match.
pub const BUFFER: usize = 1 << 16;

/// Sets how long a call on the socket may wait; zero means without a limit.
pub fn set_time_limit(fd: &OwnedFd, limit: Duration) -> Result<()> {
    let limit = TimeVal::microseconds(limit.as_micros() as i64);
    setsockopt(fd, sockopt::ReceiveTimeout, &limit)?;
    setsockopt(fd, sockopt::SendTimeout, &limit)?;
    Ok(())
}

/// Returns whether a call reached its time limit.
fn is_late(errno: Errno) -> bool {
    errno == Errno::EAGAIN
}

/// Sends all `bytes`. Returns false at the time limit.
pub fn send_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<bool> {
    while !bytes.is_empty() {
        match send(fd.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR) => {}
            Err(errno) if is_late(errno) => return Ok(false),
            Err(errno) => return Err(errno).context("send"),
        }
    }
    Ok(true)
}

/// Receives once. Returns 0 at the end of the connection and at the time limit.
pub fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match recv(fd.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(count) => return Ok(count),
            Err(Errno::EINTR) => {}
            Err(errno) if is_late(errno) || errno == Errno::ECONNRESET => return Ok(0),
            Err(errno) => return Err(errno).context("receive"),
        }
    }
}

/// Fills the buffer. Returns false at the end of the connection and at the time limit.
pub fn receive_all(fd: &OwnedFd, buffer: &mut [u8]) -> Result<bool> {
    let mut arrived = 0;
    while arrived < buffer.len() {
        let count = receive(fd, &mut buffer[arrived..])?;
        if count == 0 {
            return Ok(false);
        }
        arrived += count;
    }
    Ok(true)
}

/// Writes `bytes` bytes, `size` at once, until `deadline`.
pub fn write(fd: &OwnedFd, bytes: usize, size: usize, deadline: Instant) -> Result<()> {
    let chunk = vec![0x5a; size];
    let mut left = bytes;
    while left > 0 && Instant::now() < deadline {
        let count = left.min(size);
        if !send_all(fd, &chunk[..count])? {
            break;
        }
        left -= count;
    }
    Ok(())
}

/// Reads `bytes` bytes, or until nothing more comes. Returns how many came, and when the last came.
pub fn drain(fd: &OwnedFd, bytes: usize, deadline: Instant) -> Result<(usize, Instant)> {
    let mut buffer = vec![0; 1 << 18];
    let mut arrived = 0;
    let mut last = Instant::now();
    while arrived < bytes && last < deadline {
        let count = receive(fd, &mut buffer)?;
        if count == 0 {
            break;
        }
        arrived += count;
        last = Instant::now();
    }
    Ok((arrived, last))
}

/// Sends back what arrives, until the end of the connection.
pub fn echo(fd: &OwnedFd) -> Result<()> {
    let mut buffer = [0; 64];
    loop {
        let count = receive(fd, &mut buffer)?;
        if count == 0 || !send_all(fd, &buffer[..count])? {
            return Ok(());
        }
    }
}
