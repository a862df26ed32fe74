// SPDX-License-Identifier: GPL-2.0-only
//! An end of a measured connection, on this machine or on the peer.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Instant;

use anyhow::Result;
use nix::sys::socket::{getsockname, setsockopt, sockopt, SockType, VsockAddr};
use nix::sys::time::TimeVal;

use super::blocking::{drain, echo, set_time_limit, write, LIMIT};
use super::peer::{Peer, Remote};
use super::setup::Kind;
use crate::sockets::loopback_pair;

/// Bytes of the send buffer of a UNIX datagram socket: enough for the largest datagram.
pub const DATAGRAM_SNDBUF: usize = 1 << 20;

pub enum End {
    Local(OwnedFd),
    Remote(Remote),
}

impl End {
    /// Writes `bytes` bytes, `size` at once.
    pub fn write(&self, bytes: usize, size: usize, deadline: Instant) -> Result<()> {
        match self {
            End::Local(fd) => write(fd, bytes, size, deadline),
            End::Remote(remote) => remote.write(bytes, size),
        }
    }

    /// Reads `bytes` bytes, or until nothing more comes. Returns how many came, and when the last
    /// came.
    pub fn drain(&self, bytes: usize, deadline: Instant) -> Result<(usize, Instant)> {
        match self {
            End::Local(fd) => drain(fd, bytes, deadline),
            End::Remote(remote) => Ok((remote.drain(bytes)?, Instant::now())),
        }
    }

    /// Sends back what arrives, until the end.
    pub fn echo(&self) -> Result<()> {
        match self {
            End::Local(fd) => echo(fd),
            End::Remote(remote) => remote.echo(),
        }
    }

    /// Sets how long a read waits. The peer sets its own limit for a remote end.
    pub fn set_read_limit(&self, limit: TimeVal) -> Result<()> {
        if let End::Local(fd) = self {
            setsockopt(fd, sockopt::ReceiveTimeout, &limit)?;
        }
        Ok(())
    }

    /// Returns the port of a vsock.
    pub fn port(&self) -> Result<u32> {
        match self {
            End::Local(fd) => vsock_port(fd),
            End::Remote(remote) => Ok(remote.address.port()),
        }
    }
}

pub fn vsock_port(fd: &OwnedFd) -> Result<u32> {
    Ok(getsockname::<VsockAddr>(fd.as_raw_fd())?.port())
}

/// Returns two connected sockets. With a peer, the second socket of a vsock pair is on the peer.
pub fn pair(kind: Kind, peer: Option<Peer>) -> Result<(OwnedFd, End)> {
    if let (Kind::Vsock, Some(peer)) = (kind, peer) {
        let remote = peer.offer()?;
        let near = remote.connect()?;
        set_time_limit(&near, LIMIT)?;
        return Ok((near, End::Remote(remote)));
    }
    let (near, far) = local_pair(kind)?;
    for fd in [&near, &far] {
        set_time_limit(fd, LIMIT)?;
    }
    Ok((near, End::Local(far)))
}

fn local_pair(kind: Kind) -> Result<(OwnedFd, OwnedFd)> {
    Ok(match kind {
        Kind::UnixDgram => {
            let (near, far) = UnixDatagram::pair()?;
            setsockopt(&near, sockopt::SndBufForce, &DATAGRAM_SNDBUF)?;
            setsockopt(&far, sockopt::SndBufForce, &DATAGRAM_SNDBUF)?;
            (near.into(), far.into())
        }
        Kind::UnixStream => {
            let (near, far) = UnixStream::pair()?;
            (near.into(), far.into())
        }
        Kind::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            near.set_nodelay(true)?;
            let (far, _) = listener.accept()?;
            far.set_nodelay(true)?;
            (near.into(), far.into())
        }
        Kind::Udp => {
            let near = UdpSocket::bind("127.0.0.1:0")?;
            let far = UdpSocket::bind("127.0.0.1:0")?;
            near.connect(far.local_addr()?)?;
            far.connect(near.local_addr()?)?;
            (near.into(), far.into())
        }
        Kind::Vsock => {
            let (accepted, connecting) = loopback_pair(SockType::Stream)?;
            (connecting, accepted)
        }
    })
}
