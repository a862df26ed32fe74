// SPDX-License-Identifier: GPL-2.0

//! What a protocol implements so that its sockets can be in a sockmap.

use crate::{
    net::{
        skbuff::SkBuffSlice,
        sock::Sock,
        socket::{
            MsgHdr,
            Socket, //
        },
    },
    prelude::*,
};

/// The part of sockmap support that differs between protocols.
///
/// The protocol sets `psock_pass_in_place`: a packet that the verdict passes to its own socket
/// stays in the protocol's own receive queue. So a receive works in a sockmap as it does outside.
pub trait SockmapOps {
    /// Decides whether a socket may enter a sockmap.
    ///
    /// Core calls this when the socket enters a map, and again when the socket leaves a map that
    /// had a program.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Must not sleep. When the socket enters a map, the caller
    /// holds the socket lock or its spinlock. When it leaves one, the caller holds
    /// `sk_callback_lock`.
    ///
    /// # Errors
    ///
    /// The error that `bpf(BPF_MAP_UPDATE_ELEM)` returns to user space.
    ///
    /// # Safety
    ///
    /// The caller must hold one of the locks named above. The state of `sk` must be one in which
    /// the maps accept a socket, or must have been one when `sk` entered.
    unsafe fn may_enter(sk: &Sock) -> Result;

    /// Receives at most `len` bytes into `msg`, and returns how many bytes it received.
    ///
    /// `flags` are `MSG_*`. The socket may have left the sockmap before or during the call.
    ///
    /// # Context
    ///
    /// Process context. May sleep. The caller holds no lock.
    ///
    /// # Errors
    ///
    /// The error that `recvmsg(2)` returns to user space.
    fn recvmsg(socket: &Socket, msg: Pin<&mut MsgHdr>, len: usize, flags: c_int) -> Result<usize>;

    /// Sends bytes of a buffer that was redirected to the socket, and returns how many bytes it
    /// sent, at least one.
    ///
    /// If the socket cannot take all of `data`, this sends as many bytes as it can take. With `all`
    /// it sends none of them. A record is always sent as a whole or not at all.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Must not sleep. The caller does not hold the socket lock,
    /// but may hold `ingress_lock` of the psock and the socket lock of the source.
    ///
    /// # Errors
    ///
    /// - [`EAGAIN`] if the socket can take nothing at present. The protocol must call
    ///   `sk_write_space` when it can.
    /// - [`ENOMEM`] if an allocation fails. The caller tries again.
    /// - [`EMSGSIZE`] if the socket can never take the data.
    ///
    /// Any other error ends the redirect to this socket.
    ///
    /// # Safety
    ///
    /// The socket must be in a sockmap, and must not leave it during the call.
    unsafe fn send_skb(sk: &Sock, data: SkBuffSlice<'_>, all: bool) -> Result<u32>;
}
