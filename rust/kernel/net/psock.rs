// SPDX-License-Identifier: GPL-2.0

//! Sockmap support for protocols that are written in Rust.
//!
//! BPF programs and user space put sockets into a sockmap. A socket in a map has a
//! `struct sk_psock`, which holds the BPF programs that give the verdict on each received packet.
//! While the socket is in the map, its `struct proto` is a copy in which some functions are
//! replaced.
//!
//! - [`SockmapOps`] is the part of sockmap support that differs between protocols.
//! - [`SockmapProto`] is the replacement of the protocol's `struct proto`.
//! - [`ReadActor`] runs the verdict on a packet.
//! - [`PsockRef`] is a reference to the psock of a socket.
//!
//! C header: [`include/linux/skmsg.h`](srctree/include/linux/skmsg.h)

use crate::bindings;

mod ops;
mod proto;
mod psock_ref;
mod read_actor;

pub use self::{
    ops::SockmapOps,
    proto::SockmapProto,
    psock_ref::{
        has_verdict,
        PsockRef, //
    },
    read_actor::ReadActor, //
};

// `bindgen` must lay out these structs as C does: a `struct proto` is copied as a whole, and fields
// of both are accessed here.
const _: () = assert!(size_of::<bindings::proto>() == bindings::SIZEOF_PROTO);
const _: () = assert!(size_of::<bindings::sk_psock>() == bindings::SIZEOF_SK_PSOCK);
