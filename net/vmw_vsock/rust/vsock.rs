// SPDX-License-Identifier: GPL-2.0

//! What the sockmap support asks of a vsock socket.
//!
//! C header: [`include/net/af_vsock.h`](srctree/include/net/af_vsock.h)

use kernel::{
    bindings,
    net::{
        sock::{
            Sock,
            SockType, //
        },
        socket::{
            bytes_or_errno,
            MsgFlags,
            MsgHdr,
            SockLock,
            Socket, //
        },
    },
    prelude::*, //
};

/// Returns the vsock socket that `sk` is the beginning of.
///
/// # Errors
///
/// [`EPROTOTYPE`] if it is of another family.
fn vsock_sk(sk: &Sock) -> Result<*mut bindings::vsock_sock> {
    // All sockets of the family are allocated as a `struct vsock_sock`.
    if u32::from(sk.family()) != bindings::AF_VSOCK {
        return Err(EPROTOTYPE);
    }
    Ok(sk.as_raw().cast())
}

/// Checks that the transport of a socket can give its packets to a verdict. Does not sleep.
///
/// # Errors
///
/// [`ENODEV`] without a transport, [`EOPNOTSUPP`] if it cannot.
///
/// # Safety
///
/// The socket has been connected, as the maps ask for, and its transport does not go away during
/// the call: that only a later `connect()` changes.
pub(crate) unsafe fn check_read_skb(sk: &Sock) -> Result {
    let vsk = vsock_sk(sk)?;
    // SAFETY: `vsk` is live, as `sk` is. Volatile, as it may be read without the socket lock.
    let transport = unsafe { (&raw const (*vsk).transport).read_volatile() };
    if transport.is_null() {
        return Err(ENODEV);
    }
    // SAFETY: By the safety requirements the socket keeps its transport, which keeps its module.
    if unsafe { (*transport).read_skb.is_none() } {
        return Err(EOPNOTSUPP);
    }
    Ok(())
}

/// What a vsock socket can tell while it is locked.
///
/// # Invariants
///
/// `vsk` is the vsock socket that is locked during `'a`.
pub(crate) struct LockedVsock<'a> {
    vsk: *mut bindings::vsock_sock,
    sk: &'a Sock,
}

impl<'a> LockedVsock<'a> {
    /// Looks at the socket that `lock` locks.
    ///
    /// # Errors
    ///
    /// [`EPROTOTYPE`] if it is of another family.
    #[inline]
    pub(crate) fn new(lock: &'a SockLock<'_>) -> Result<Self> {
        let sk = lock.sk();
        // INVARIANT: The lock is borrowed for `'a`.
        Ok(Self {
            vsk: vsock_sk(sk)?,
            sk,
        })
    }

    fn has_transport(&self) -> bool {
        // SAFETY: By the type invariant, `vsk` is live and locked.
        !unsafe { (*self.vsk).transport }.is_null()
    }

    /// Returns whether the transport has data: bytes, or with `SOCK_SEQPACKET` a whole record.
    ///
    /// Does not sleep.
    ///
    /// C function: `vsock_connectible_has_data()` in
    /// [`net/vmw_vsock/af_vsock.c`](srctree/net/vmw_vsock/af_vsock.c)
    pub(crate) fn has_data(&self) -> bool {
        // The C function warns when there is no transport, as after a connect that failed.
        //
        // SAFETY: By the type invariant, `vsk` is live, and its lock keeps the transport.
        self.has_transport() && unsafe { bindings::vsock_connectible_has_data(self.vsk) > 0 }
    }

    /// Returns whether no more data can come.
    ///
    /// That is without a connection, after an error, and when the peer does not send any more. Does
    /// not sleep.
    pub(crate) fn has_ended(&self) -> bool {
        // SAFETY: By the type invariant, `vsk` is live. Volatile, as the field is read and written
        // without the lock too.
        let peer = unsafe { (&raw const (*self.vsk).peer_shutdown).read_volatile() };

        !self.has_transport()
            || !self.sk.is_established()
            || self.sk.has_error()
            || peer & bindings::SEND_SHUTDOWN != 0
    }
}

/// Receives what the transport has, as a socket does that is not in a sockmap.
///
/// Takes the socket lock. Waits for data, unless `flags` has [`MsgFlags::DONTWAIT`].
///
/// # Errors
///
/// Those of `recvmsg(2)` on a vsock socket; [`EPROTOTYPE`] for a type of socket that vsock does not
/// know.
///
/// C functions: `__vsock_connectible_recvmsg()` and `__vsock_dgram_recvmsg()` in
/// [`net/vmw_vsock/af_vsock.c`](srctree/net/vmw_vsock/af_vsock.c)
pub(crate) fn native_recvmsg(
    socket: &Socket,
    msg: Pin<&mut MsgHdr>,
    len: usize,
    flags: MsgFlags,
) -> Result<usize> {
    vsock_sk(socket.sk())?;
    let (sock, msg, flags) = (socket.as_raw(), msg.as_raw(), flags.as_raw());

    bytes_or_errno(match socket.sk().sk_type() {
        SockType::Stream | SockType::SeqPacket => {
            // SAFETY: A vsock socket and a message, valid for the call, which may sleep by the
            // invariant of `Socket`.
            unsafe { bindings::__vsock_connectible_recvmsg(sock, msg, len, flags) }
        }
        SockType::Dgram => {
            // SAFETY: As above. A datagram socket gets its transport when it is made, and keeps it.
            unsafe { bindings::__vsock_dgram_recvmsg(sock, msg, len, flags) }
        }
        SockType::Other => return Err(EPROTOTYPE),
    })
}
