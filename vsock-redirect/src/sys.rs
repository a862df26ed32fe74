// SPDX-License-Identifier: GPL-2.0-only
//! Wraps socket calls, each with the one meaning that this tool needs.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{self, sockopt, MsgFlags};
use rustix::event::{PollFd, PollFlags, Timespec};

/// The result of a receive that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes(usize),
    Nothing,
    Eof,
}

/// Receives without waiting.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> nix::Result<Received> {
    receive_flags(fd, buffer, MsgFlags::MSG_DONTWAIT)
}

/// Returns whether there is data to receive. The data stays there.
pub fn has_data(fd: BorrowedFd<'_>) -> bool {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    matches!(receive_flags(fd, &mut [0], flags), Ok(Received::Bytes(_)))
}

fn receive_flags(fd: BorrowedFd<'_>, buffer: &mut [u8], flags: MsgFlags) -> nix::Result<Received> {
    loop {
        match socket::recv(fd.as_raw_fd(), buffer, flags) {
            Ok(0) => return Ok(Received::Eof),
            Ok(count) => return Ok(Received::Bytes(count)),
            Err(Errno::EAGAIN) => return Ok(Received::Nothing),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error),
        }
    }
}

/// Sends without waiting. Returns how many bytes fitted, or `None` if none did.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> nix::Result<Option<usize>> {
    loop {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        match socket::send(fd.as_raw_fd(), bytes, flags) {
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => continue,
            other => return other.map(Some),
        }
    }
}

/// Returns and clears the pending error of a socket.
pub fn take_error(fd: BorrowedFd<'_>) -> Option<Errno> {
    match socket::getsockopt(&fd, sockopt::SocketError) {
        Ok(0) => None,
        Ok(error) => Some(Errno::from_raw(error)),
        Err(error) => Some(error),
    }
}

/// Waits for events. Returns the events of each entry; all are empty after the time limit.
pub fn poll<const N: usize>(
    wanted: [(BorrowedFd<'_>, PollFlags); N],
    limit: Option<Duration>,
) -> [PollFlags; N] {
    let mut entries = wanted.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    // EINTR looks like the time limit, and every caller checks again after that.
    let _ = rustix::event::poll(&mut entries, limit.as_ref());
    entries.map(|entry| entry.revents())
}

/// Waits until each BPF program that runs at this moment has ended and has queued its packet.
///
/// `MEMBARRIER_CMD_GLOBAL` waits for an RCU grace period, in which each such program ends. The call
/// does nothing on a machine with one CPU, and a kernel may lack it. In these cases the function
/// sleeps for 20 ms, which is long compared with the run of a program.
pub fn barrier() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: The call takes no pointer.
    let processors = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let done = processors > 1 && {
        // SAFETY: The call takes no pointer.
        unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0 }
    };
    if !done {
        std::thread::sleep(Duration::from_millis(20));
    }
}

// SIOCOUTQ, which has the same number as TIOCOUTQ.
nix::ioctl_read_bad!(siocoutq, libc::TIOCOUTQ, libc::c_int);

/// Returns the number of bytes that were sent to a socket and that the kernel still holds.
pub fn unsent(fd: BorrowedFd<'_>) -> nix::Result<usize> {
    let mut bytes = 0;
    // SAFETY: The call writes one int to `bytes`.
    unsafe { siocoutq(fd.as_raw_fd(), &mut bytes) }?;
    Ok(bytes.max(0) as usize)
}
