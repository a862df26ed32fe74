// SPDX-License-Identifier: GPL-2.0

//! What the receive path asks of a vsock socket.
//!
//! C header: [`include/net/af_vsock.h`](srctree/include/net/af_vsock.h)

use kernel::{
    bindings,
    net::{
        psock::bytes,
        sock::{
            Sock,
            SockLock,
            SockType, //
        },
        socket::{
            MsgFlags,
            MsgHdr, //
        },
    },
    prelude::*, //
};

use core::ptr::addr_of;

/// A socket that is known to be a vsock one.
///
/// # Invariants
///
/// `sk` is the `sk` field, and so the beginning, of a `struct vsock_sock`.
#[derive(Clone, Copy)]
pub(crate) struct VsockRef<'a> {
    sk: &'a Sock,
}

impl<'a> VsockRef<'a> {
    /// Looks at a socket as a vsock one.
    ///
    /// # Errors
    ///
    /// [`EPROTOTYPE`] if it is of another family.
    #[inline]
    pub(crate) fn new(sk: &'a Sock) -> Result<Self> {
        if u32::from(sk.family()) != bindings::AF_VSOCK {
            return Err(EPROTOTYPE);
        }
        // INVARIANT: All sockets of the family are allocated as a `struct vsock_sock`.
        Ok(Self { sk })
    }

    #[inline]
    fn as_raw(&self) -> *mut bindings::vsock_sock {
        self.sk.as_raw().cast()
    }

    /// Returns the transport, or null. It is stable while the socket lock is held.
    #[inline]
    fn transport(&self) -> *const bindings::vsock_transport {
        // SAFETY: By the type invariant. Volatile, as `poll()` and `ioctl()` read and write it
        // without the lock.
        unsafe { addr_of!((*self.as_raw()).transport).read_volatile() }
    }

    /// Checks that the transport can give packets to a verdict.
    ///
    /// Called with the socket lock held; does not sleep.
    ///
    /// # Errors
    ///
    /// [`ENODEV`] without a transport, [`EOPNOTSUPP`] if it cannot.
    pub(crate) fn has_read_skb(&self) -> Result {
        let transport = self.transport();
        if transport.is_null() {
            return Err(ENODEV);
        }
        // SAFETY: A transport that is assigned to a socket holds its module, and is constant.
        if unsafe { (*transport).read_skb.is_none() } {
            return Err(EOPNOTSUPP);
        }
        Ok(())
    }

    /// Returns whether the transport has data for the reader: bytes, or with `SOCK_SEQPACKET` a
    /// whole record. Does not sleep.
    ///
    /// C function: `vsock_connectible_has_data()` in
    /// [`net/vmw_vsock/af_vsock.c`](srctree/net/vmw_vsock/af_vsock.c)
    pub(crate) fn has_data(&self, _lock: &SockLock<'_>) -> bool {
        // The C function warns when there is no transport, as after a connect that failed.
        if self.transport().is_null() {
            return false;
        }
        // SAFETY: By the type invariant; the transport stays as the socket lock is held.
        unsafe { bindings::vsock_connectible_has_data(self.as_raw()) > 0 }
    }

    /// Returns whether no more data can come: no connection (any more), an error, or a shutdown of
    /// this side for receiving or of the peer for sending. Does not sleep.
    ///
    /// These are the conditions that end the wait of a vsock socket outside of a sockmap.
    pub(crate) fn has_ended(&self, lock: &SockLock<'_>) -> bool {
        // SAFETY: By the type invariant; volatile, as `poll()` reads it without the lock.
        let peer = unsafe { addr_of!((*self.as_raw()).peer_shutdown).read_volatile() };

        self.transport().is_null()
            || !lock.is_established()
            || lock.has_error()
            || lock.receive_shutdown()
            || peer & bindings::SEND_SHUTDOWN != 0
    }

    /// Receives what the transport has, as a socket does that is not in a sockmap.
    ///
    /// Takes the socket lock, so the caller must not hold it. May sleep; waits for data unless
    /// `flags` has [`MsgFlags::DONTWAIT`].
    ///
    /// # Errors
    ///
    /// Those of `recvmsg(2)` on a vsock socket; [`EPROTOTYPE`] for a kind of socket that vsock does
    /// not know.
    ///
    /// C functions: `__vsock_connectible_recvmsg()` and `__vsock_dgram_recvmsg()` in
    /// [`net/vmw_vsock/af_vsock.c`](srctree/net/vmw_vsock/af_vsock.c)
    pub(crate) fn native_recvmsg(
        &self,
        msg: &mut MsgHdr,
        len: usize,
        flags: MsgFlags,
    ) -> Result<usize> {
        // SAFETY: The socket is live. Receive calls come through an open file, so `sk_socket` is
        // set for as long as the call lasts.
        let socket = unsafe { (*self.sk.as_raw()).sk_socket };
        let msg = msg.as_raw();

        let ret = match self.sk.kind() {
            SockType::Stream | SockType::SeqPacket => {
                // SAFETY: Socket and message are valid, and the socket lock is not held.
                unsafe { bindings::__vsock_connectible_recvmsg(socket, msg, len, flags.as_raw()) }
            }
            SockType::Dgram => {
                // SAFETY: As above. A socket in a sockmap has a transport.
                unsafe { bindings::__vsock_dgram_recvmsg(socket, msg, len, flags.as_raw()) }
            }
            SockType::Other => return Err(EPROTOTYPE),
        };
        bytes(ret)
    }
}
