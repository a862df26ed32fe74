// SPDX-License-Identifier: GPL-2.0

//! The operations on a vsock socket that its sockmap support needs.
//!
//! C header: [`include/net/af_vsock.h`](srctree/include/net/af_vsock.h)

use kernel::{
    bindings,
    error::to_result,
    net::{
        skbuff::SkBuffSlice,
        sock::{
            Sock,
            SockType, //
        },
        socket::{
            bytes_or_errno,
            MsgHdr,
            Socket, //
        },
    },
    prelude::*,
    sync::atomic::{
        atomic_load,
        atomic_store,
        Relaxed, //
    },
};

/// Returns the vsock socket of which `sk` is the first field.
///
/// # Errors
///
/// [`EPROTOTYPE`] if the socket is of another family.
fn vsock_sk(sk: &Sock) -> Result<*mut bindings::vsock_sock> {
    // All sockets of the family are allocated as a `struct vsock_sock`.
    if u32::from(sk.family()) != bindings::AF_VSOCK {
        return Err(EPROTOTYPE);
    }
    Ok(sk.as_raw().cast())
}

/// Checks that the transport of a socket can run a verdict on received packets (`read_skb`).
///
/// # Context
///
/// Any context. Does not sleep. Takes no locks.
///
/// # Errors
///
/// [`ENODEV`] if the socket has no transport, [`EOPNOTSUPP`] if the transport has no `read_skb`.
///
/// # Safety
///
/// The transport of the socket must not change during the call. That is so if the caller holds the
/// socket lock, if the socket is connected, and after [`keep_transport`].
pub(crate) unsafe fn check_read_skb(sk: &Sock) -> Result {
    let vsk = vsock_sk(sk)?;
    // SAFETY: `vsk` is live, as `sk` is. By the safety requirements nobody writes the field.
    let transport = unsafe { (*vsk).transport };
    if transport.is_null() {
        return Err(ENODEV);
    }
    // SAFETY: By the safety requirements the socket keeps its transport, which keeps the module of
    // the transport loaded.
    if unsafe { (*transport).read_skb.is_none() } {
        return Err(EOPNOTSUPP);
    }
    Ok(())
}

/// Makes `connect()` refuse the socket for the rest of its life, so that it keeps its transport.
///
/// # Context
///
/// Any context. Does not sleep. Takes no locks.
///
/// # Errors
///
/// [`EPROTOTYPE`] if the socket is of another family.
pub(crate) fn keep_transport(sk: &Sock) -> Result {
    let vsk = vsock_sk(sk)?;
    // SAFETY: `vsk` is live, as `sk` is.
    let keeps_transport = unsafe { &raw mut (*vsk).keeps_transport };
    // SAFETY: As above. The field is one byte, which C reads in one access.
    unsafe { atomic_store(keeps_transport.cast::<i8>(), 1, Relaxed) };
    Ok(())
}

/// Receives at most `len` bytes or one record, in the way of a socket that is in no sockmap.
///
/// `flags` are `MSG_*`.
///
/// C functions: `__vsock_connectible_recvmsg()` and `__vsock_dgram_recvmsg()` in
/// [`net/vmw_vsock/af_vsock.c`](srctree/net/vmw_vsock/af_vsock.c)
///
/// # Context
///
/// Process context. May sleep. Takes and releases the socket lock, and does not hold it while it
/// waits for data.
///
/// # Errors
///
/// Those of `recvmsg(2)` on a vsock socket. [`EPROTOTYPE`] if the socket is of another family, or
/// of a type that vsock does not have.
pub(crate) fn native_recvmsg(
    socket: &Socket,
    msg: Pin<&mut MsgHdr>,
    len: usize,
    flags: c_int,
) -> Result<usize> {
    vsock_sk(socket.sk())?;
    let (sock, msg) = (socket.as_raw(), msg.as_raw());

    bytes_or_errno(match socket.sk().sk_type() {
        SockType::Stream | SockType::SeqPacket => {
            // SAFETY: The vsock socket and the message are valid for the call. The call may sleep
            // by the invariant of `Socket`.
            unsafe { bindings::__vsock_connectible_recvmsg(sock, msg, len, flags) }
        }
        SockType::Dgram => {
            // SAFETY: As above. A datagram socket gets its transport when it is created, and keeps
            // it.
            unsafe { bindings::__vsock_dgram_recvmsg(sock, msg, len, flags) }
        }
        SockType::Other => return Err(EPROTOTYPE),
    })
}

/// Sends bytes of a buffer, and returns the number of bytes that were sent.
///
/// With `all`, sends all bytes or none. Without `all`, sends as many bytes as there is credit for.
///
/// # Context
///
/// Any context but hard interrupt. Does not sleep. Takes and releases spinlocks of the transport.
/// The caller does not need the socket lock.
///
/// # Errors
///
/// * [`EPIPE`] if this side was shut down for sending, or the peer for receiving.
/// * [`ENOTCONN`] if the connection is gone.
/// * [`ENODEV`] if the socket has no transport, [`EOPNOTSUPP`] if the transport has no
///   `skb_enqueue`.
/// * The pending error of the socket. If core sockmap would go on with the redirect after that
///   error, [`EPIPE`] instead.
/// * The error of the transport. Core sockmap handles it as an error of `sk_psock::send_skb`.
///
/// # Safety
///
/// The socket is or was in a sockmap. It is therefore connected or was, and keeps its transport.
/// The caller is not a hard interrupt.
pub(crate) unsafe fn send_skb(sk: &Sock, data: SkBuffSlice<'_>, all: bool) -> Result<u32> {
    let vsk = vsock_sk(sk)?;
    match sk.pending_error() {
        None => {}
        // After these errors core sockmap would go on with the redirect. But an error that is
        // pending on the socket has ended the connection, so the redirect must end too.
        Some(EAGAIN | ENOMEM | ENOBUFS | EMSGSIZE) => return Err(EPIPE),
        Some(err) => return Err(err),
    }
    // SAFETY: `vsk` is live, as `sk` is. C stores the word in one access, with or without
    // `WRITE_ONCE()`. An old value does no harm, because the field is read again for each buffer.
    let peer_shutdown = unsafe { atomic_load(&raw mut (*vsk).peer_shutdown, Relaxed) };
    if sk.is_send_shutdown() || peer_shutdown & bindings::RCV_SHUTDOWN != 0 {
        return Err(EPIPE);
    }
    if !sk.is_established() {
        return Err(ENOTCONN);
    }
    // SAFETY: `vsk` is live, as `sk` is. By the safety requirements the socket keeps its transport
    // (`keeps_transport`), so nobody writes the field.
    let transport = unsafe { (*vsk).transport };
    // SAFETY: The pointer is null or valid, because the socket keeps its transport, which keeps the
    // module of the transport loaded.
    let transport = unsafe { transport.as_ref() }.ok_or(ENODEV)?;
    let skb_enqueue = transport.skb_enqueue.ok_or(EOPNOTSUPP)?;
    // SAFETY: `vsk` is live, as `sk` is. By the safety requirements it is or was connected, it
    // keeps the transport that has this function (`keeps_transport`), and the caller is not a hard
    // interrupt. By the invariants of `SkBuffSlice` the buffer is valid, has the bytes, holds no
    // redirect target, and does not change during the call.
    let sent = unsafe { skb_enqueue(vsk, data.as_raw(), data.offset(), data.len(), all) };
    to_result(sent.min(0))?;
    Ok(u32::try_from(sent)?)
}
