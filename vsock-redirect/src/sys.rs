// SPDX-License-Identifier: GPL-2.0-only
//! The socket calls, each with the one meaning that this tool needs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::eventfd::EventFd;
use nix::sys::socket::{self, sockopt, AddressFamily, MsgFlags, SockFlag, SockType, VsockAddr};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::address::Peer;

/// What a non-blocking receive found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes(usize),
    Nothing,
    Eof,
}

pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> nix::Result<Received> {
    receive_flags(fd, buffer, MsgFlags::MSG_DONTWAIT)
}

/// Whether something waits to be received, without taking it.
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

/// Sends what fits now; `None` when nothing does.
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

/// The pending error of a socket, which this clears.
pub fn take_error(fd: BorrowedFd<'_>) -> Option<Errno> {
    match socket::getsockopt(&fd, sockopt::SocketError) {
        Ok(0) => None,
        Ok(error) => Some(Errno::from_raw(error)),
        Err(error) => Some(error),
    }
}

/// `poll`; the answer holds the events of each entry, all empty after the time limit.
pub fn poll<const N: usize>(
    wanted: [(BorrowedFd<'_>, PollFlags); N],
    limit: Option<Duration>,
) -> [PollFlags; N] {
    let mut entries = wanted.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    // EINTR needs no care: every caller looks again.
    let _ = rustix::event::poll(&mut entries, limit.as_ref());
    entries.map(|entry| entry.revents())
}

/// Waits until every BPF program that runs now has ended, so that what it queued is queued.
///
/// `MEMBARRIER_CMD_GLOBAL` is an RCU grace period, which is what is wanted. It is a no-op with one
/// CPU and may be configured out; a pause long against the run of a program has to do there.
pub fn barrier() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
    // SAFETY: neither call takes a pointer.
    let done = unsafe {
        libc::sysconf(libc::_SC_NPROCESSORS_ONLN) > 1
            && libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) == 0
    };
    if !done {
        std::thread::sleep(Duration::from_millis(20));
    }
}

// The number of bytes that are sent and still held by the kernel: SIOCOUTQ, which is TIOCOUTQ.
nix::ioctl_read_bad!(siocoutq, libc::TIOCOUTQ, libc::c_int);

pub fn unsent(fd: BorrowedFd<'_>) -> nix::Result<usize> {
    let mut bytes = 0;
    // SAFETY: the call writes one int to `bytes`.
    unsafe { siocoutq(fd.as_raw_fd(), &mut bytes) }?;
    Ok(bytes.max(0) as usize)
}

/// A vsock socket, unconnected: tells at once whether the kernel has vsock at all.
pub fn vsock_socket() -> io::Result<OwnedFd> {
    socket::socket(
        AddressFamily::Vsock,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(|error| match error {
        Errno::EAFNOSUPPORT => io::Error::other(
            "this kernel has no vsock (CONFIG_VSOCKETS, or the module vsock is not loaded)",
        ),
        error => io::Error::other(format!("cannot make a vsock socket: {error}")),
    })
}

pub fn vsock_connect(peer: Peer) -> io::Result<OwnedFd> {
    let fd = vsock_socket()?;
    let address = VsockAddr::new(peer.cid, peer.port);
    // The kernel's own time limit is two seconds.
    socket::connect(fd.as_raw_fd(), &address).map_err(|error| {
        io::Error::other(match error {
            Errno::ECONNRESET | Errno::ECONNREFUSED => {
                format!("{peer} refused the connection: nothing listens there")
            }
            Errno::ENODEV | Errno::EHOSTUNREACH | Errno::ENETUNREACH => format!(
                "no vsock transport reaches CID {} (is the vsock driver loaded, does the guest run?)",
                peer.cid
            ),
            Errno::ETIMEDOUT => format!("{peer} did not answer in time"),
            error => format!("cannot connect to {peer}: {error}"),
        })
    })?;
    Ok(fd)
}

/// Whether the peer of a vsock stream still reads: a send of nothing tells without sending.
pub fn vsock_peer_reads(fd: BorrowedFd<'_>) -> bool {
    send(fd, &[]).is_ok()
}

/// Turns true once and stays so; can be polled for (`POLLIN`).
pub struct Flag(EventFd);

impl Flag {
    pub fn new() -> io::Result<Self> {
        Ok(Flag(EventFd::new()?))
    }

    pub fn raise(&self) {
        // Fails only when the counter is full, and then it is raised.
        let _ = self.0.write(1);
    }

    pub fn is_raised(&self) -> bool {
        !poll([(self.fd(), PollFlags::IN)], Some(Duration::ZERO))[0].is_empty()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The time limit of a drain: it runs from the moment that the tool is told to stop.
pub struct Stop {
    pub flag: Flag,
    limit: Duration,
    since: std::sync::OnceLock<Instant>,
}

impl Stop {
    pub fn new(limit: Duration) -> io::Result<Self> {
        Ok(Stop {
            flag: Flag::new()?,
            limit,
            since: std::sync::OnceLock::new(),
        })
    }

    pub fn raise(&self) {
        self.since.get_or_init(Instant::now);
        self.flag.raise();
    }

    pub fn is_over(&self) -> bool {
        self.since
            .get()
            .is_some_and(|since| since.elapsed() > self.limit)
    }
}
