// SPDX-License-Identifier: GPL-2.0-only
//! Opens, connects and binds sockets.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use nix::libc::{VMADDR_CID_LOCAL, VMADDR_PORT_ANY};
use nix::sys::socket::{
    accept4, bind, connect, getsockname, listen, setsockopt, socket, sockopt, AddressFamily,
    Backlog, SockFlag, SockType, SockaddrLike, UnixAddr, VsockAddr,
};

/// Opens a socket that is not connected.
pub fn open(family: AddressFamily, kind: SockType) -> Result<OwnedFd> {
    Ok(socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?)
}

/// Accepts a connection.
pub fn accept(listener: &OwnedFd) -> nix::Result<OwnedFd> {
    accept4(listener, SockFlag::SOCK_CLOEXEC)
}

/// Connects a UNIX datagram socket that has a send buffer of `sndbuf` bytes.
pub fn unix_datagram(path: &Path, sndbuf: usize) -> Result<OwnedFd> {
    let fd = open(AddressFamily::Unix, SockType::Datagram)?;
    // Root may exceed the limit of the system. For other users the kernel sets what it allows.
    if setsockopt(&fd, sockopt::SndBufForce, &sndbuf).is_err() {
        setsockopt(&fd, sockopt::SndBuf, &sndbuf)?;
    }
    connect_to(fd, &UnixAddr::new(path)?, &path.display().to_string())
}

/// Connects a UNIX stream socket.
pub fn unix_stream(path: &Path) -> Result<OwnedFd> {
    let fd = open(AddressFamily::Unix, SockType::Stream)?;
    connect_to(fd, &UnixAddr::new(path)?, &path.display().to_string())
}

/// Connects a vsock stream socket.
pub fn vsock_connect(cid: u32, port: u32) -> Result<OwnedFd> {
    let fd = open(AddressFamily::Vsock, SockType::Stream)?;
    connect_to(
        fd,
        &VsockAddr::new(cid, port),
        &format!("vsock {cid}:{port}"),
    )
}

// `cargo xtask demo` looks for "cannot connect" and tries again.
fn connect_to(fd: OwnedFd, address: &dyn SockaddrLike, name: &str) -> Result<OwnedFd> {
    connect(fd.as_raw_fd(), address).with_context(|| format!("cannot connect to {name}"))?;
    Ok(fd)
}

/// Returns a vsock that listens, and its address.
pub fn listener(kind: SockType, cid: u32, port: u32) -> Result<(OwnedFd, VsockAddr)> {
    let listener = open(AddressFamily::Vsock, kind)?;
    bind(listener.as_raw_fd(), &VsockAddr::new(cid, port)).with_context(|| match port {
        VMADDR_PORT_ANY => format!("cannot listen on a vsock port of CID {cid}"),
        _ => format!("cannot listen on vsock port {port}"),
    })?;
    listen(&listener, Backlog::new(64)?)?;
    let address = getsockname(listener.as_raw_fd())?;
    Ok((listener, address))
}

/// Returns a vsock that listens on the loopback, and its address.
pub fn loopback_listener(kind: SockType) -> Result<(OwnedFd, VsockAddr)> {
    listener(kind, VMADDR_CID_LOCAL, VMADDR_PORT_ANY)
        .context("no vsock loopback: load the module vsock_loopback")
}

/// Connects two vsocks over loopback: first the accepted socket, then the connecting one.
pub fn loopback_pair(kind: SockType) -> Result<(OwnedFd, OwnedFd)> {
    let (listener, address) = loopback_listener(kind)?;
    let connecting = open(AddressFamily::Vsock, kind)?;
    connect(connecting.as_raw_fd(), &address).context("cannot connect over the vsock loopback")?;
    let accepted =
        accept(&listener).context("cannot accept a connection over the vsock loopback")?;
    Ok((accepted, connecting))
}
