// SPDX-License-Identifier: GPL-2.0-only
//! Calls that ask about a socket, or set its low-water mark, while others use it.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{ensure, Result};

/// Sets `SO_RCVLOWAT`. This may fail if the receive buffer cannot hold as many bytes. Then the old
/// value stays, which is no problem.
pub fn set_rcvlowat(fd: &OwnedFd, bytes: i32) {
    let value = (&raw const bytes).cast();
    let len = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: `value` points to `len` readable bytes.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            value,
            len,
        )
    };
}

/// Asks poll() and SIOCINQ. Their answers may be outdated at once, but must be possible.
pub fn poll_and_count(fd: &OwnedFd) -> Result<()> {
    let mut bytes: i32 = -1;
    // SAFETY: FIONREAD, which is SIOCINQ, writes one integer to `bytes`.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &mut bytes) };
    ensure!(result != 0 || bytes >= 0, "SIOCINQ returned {bytes}");
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `poll` is one valid entry.
    unsafe { libc::poll(&mut poll, 1, 0) };
    ensure!(
        poll.revents & libc::POLLNVAL == 0,
        "poll() returned POLLNVAL"
    );
    Ok(())
}
