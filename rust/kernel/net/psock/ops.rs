// SPDX-License-Identifier: GPL-2.0

//! The functions that a protocol implements so that its sockets can be in a sockmap.

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
/// stays in the protocol's own receive queue. A receive from a socket in a sockmap can therefore be
/// the same as from any other socket.
pub trait SockmapOps {
    /// Decides whether a socket may enter a sockmap.
    ///
    /// Core sockmap calls this when the socket enters a map. Core sockmap calls this again when the
    /// socket leaves a map that had a program, and then ignores the answer.
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
    /// The caller must hold one of the locks named above. Core sockmap must accept the state of
    /// `sk`, or must have accepted the state that `sk` had when it entered the map.
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

    /// Sends bytes of a buffer that was redirected to the socket, and returns the number of bytes
    /// that were sent, which is at least one.
    ///
    /// If the socket cannot take all of `data`, sends as many bytes as the socket can take, or with
    /// `all` none of them. A record is always sent as a whole or not at all.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Must not sleep. The caller does not hold the socket lock,
    /// but may hold `ingress_lock` of the psock and the socket lock of the source.
    ///
    /// # Errors
    ///
    /// - [`EAGAIN`] if the socket can take nothing at present. The protocol must call
    ///   `sk_write_space` when the socket can take bytes again.
    /// - [`ENOMEM`] or [`ENOBUFS`] if there is no memory. The caller tries again.
    /// - [`EMSGSIZE`] if the socket can never take the data. The caller drops the data, and ends
    ///   the redirect if the socket is a stream.
    ///
    /// Any other error ends the redirect to this socket.
    ///
    /// # Safety
    ///
    /// [`Self::may_enter`] must have accepted the socket, and the socket must keep its psock during
    /// the call. The socket may have left the sockmap before or during the call.
    unsafe fn send_skb(sk: &Sock, data: SkBuffSlice<'_>, all: bool) -> Result<u32>;
}
