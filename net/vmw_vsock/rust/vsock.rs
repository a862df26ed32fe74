// SPDX-License-Identifier: GPL-2.0

//! What the sockmap support asks of a vsock socket.
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
/// Nobody changes the transport of the socket during the call. That is so with the socket lock
/// held, for a socket that is connected, and after [`keep_transport`].
pub(crate) unsafe fn check_read_skb(sk: &Sock) -> Result {
    let vsk = vsock_sk(sk)?;
    // SAFETY: `vsk` is live, as `sk` is. By the safety requirements nobody writes the field.
    let transport = unsafe { (*vsk).transport };
    if transport.is_null() {
        return Err(ENODEV);
    }
    // SAFETY: By the safety requirements the socket keeps its transport, which keeps its module.
    if unsafe { (*transport).read_skb.is_none() } {
        return Err(EOPNOTSUPP);
    }
    Ok(())
}

/// Makes `connect()` refuse the socket from now on, so that it keeps its transport. Does not sleep.
///
/// # Errors
///
/// [`EPROTOTYPE`] if it is of another family.
pub(crate) fn keep_transport(sk: &Sock) -> Result {
    let vsk = vsock_sk(sk)?;
    // SAFETY: `vsk` is live, as `sk` is.
    let keeps_transport = unsafe { &raw mut (*vsk).keeps_transport };
    // SAFETY: As above; the field is one byte, which C reads as such.
    unsafe { atomic_store(keeps_transport.cast::<i8>(), 1, Relaxed) };
    Ok(())
}

/// Receives as a socket does that is not in a sockmap: at most `len` bytes, or one record.
///
/// Takes the socket lock, and gives it up to wait. `flags` are `MSG_*`.
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
    flags: c_int,
) -> Result<usize> {
    vsock_sk(socket.sk())?;
    let (sock, msg) = (socket.as_raw(), msg.as_raw());

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

/// Sends bytes of a buffer: all, or without `all` what there is space for. Does not sleep.
///
/// # Errors
///
/// [`EPIPE`] if this side does not send any more or the other does not receive, [`ENOTCONN`] if the
/// connection is gone, what is pending on the socket, or what the transport says, as
/// `sk_psock::send_skb` has it.
///
/// # Safety
///
/// The socket is in a sockmap, and so it is connected or was, and keeps its transport. The caller
/// is no hard interrupt.
pub(crate) unsafe fn send_skb(sk: &Sock, data: SkBuffSlice<'_>, all: bool) -> Result<u32> {
    let vsk = vsock_sk(sk)?;
    match sk.pending_error() {
        None => {}
        // What is pending ended the connection, and is none of those after which a retry follows.
        Some(EAGAIN | ENOMEM | ENOBUFS | EMSGSIZE) => return Err(EPIPE),
        Some(err) => return Err(err),
    }
    // SAFETY: The socket is live. C stores the word as one, marked or not, and an old value does no
    // harm: each buffer is a new look at it.
    let peer_shutdown = unsafe { atomic_load(&raw mut (*vsk).peer_shutdown, Relaxed) };
    if sk.is_send_shutdown() || peer_shutdown & bindings::RCV_SHUTDOWN != 0 {
        return Err(EPIPE);
    }
    if !sk.is_established() {
        return Err(ENOTCONN);
    }
    // SAFETY: By the safety requirements nobody writes the field, and the transport stays.
    let transport = unsafe { (*vsk).transport.as_ref() }.ok_or(ENODEV)?;
    let skb_enqueue = transport.skb_enqueue.ok_or(EOPNOTSUPP)?;
    // SAFETY: The socket is one of the transport, and live; the buffer is valid during the call.
    let sent = unsafe { skb_enqueue(vsk, data.as_raw(), data.offset(), data.len(), all) };
    to_result(sent.min(0))?;
    Ok(u32::try_from(sent)?)
}
