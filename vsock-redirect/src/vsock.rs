// SPDX-License-Identifier: GPL-2.0-only
//! Opens and connects vsocks.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, VsockAddr};

use crate::address::Peer;
use crate::sys::send;

/// Opens a vsock that is not connected. Fails if the kernel has no vsock.
pub fn open() -> io::Result<OwnedFd> {
    socket::socket(
        AddressFamily::Vsock,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(|error| match error {
        Errno::EAFNOSUPPORT => io::Error::other(
            "this kernel has no vsock: load the module vsock, or build the kernel with \
             CONFIG_VSOCKETS",
        ),
        error => io::Error::other(format!("cannot make a vsock socket: {error}")),
    })
}

/// Connects to a peer.
pub fn connect(peer: Peer) -> io::Result<OwnedFd> {
    let fd = open()?;
    let address = VsockAddr::new(peer.cid, peer.port);
    // The kernel gives up after two seconds.
    socket::connect(fd.as_raw_fd(), &address).map_err(|error| {
        io::Error::other(match error {
            Errno::ECONNRESET | Errno::ECONNREFUSED => {
                format!("{peer} refused the connection: start the program that listens there first")
            }
            Errno::ENODEV | Errno::EHOSTUNREACH | Errno::ENETUNREACH => format!(
                "no vsock transport reaches CID {}: load the vsock driver (in a guest \
                 vmw_vsock_virtio_transport, on a host vhost_vsock, for CID 1 vsock_loopback), and \
                 check that the guest with this CID runs",
                peer.cid
            ),
            Errno::ETIMEDOUT => {
                format!("{peer} did not answer within two seconds: is that machine running?")
            }
            error => format!("cannot connect to {peer}: {error}"),
        })
    })?;
    Ok(fd)
}

/// Returns whether the peer of a vsock stream still reads. A send of no bytes tells this without
/// sending anything.
pub fn peer_reads(fd: BorrowedFd<'_>) -> bool {
    send(fd, &[]).is_ok()
}
