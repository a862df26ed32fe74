// SPDX-License-Identifier: GPL-2.0

//! Sockmap support for virtio vsock sockets: the path of a received packet and of a redirected
//! buffer.
//!
//! # The path of a received packet
//!
//! [`verdict_queue`] takes the packets that await their verdict out of the receive queue, and joins
//! the packets of each record. While the verdict runs, a [`queue_slot`] remembers where the packet
//! belongs. If the verdict passes the packet, the slot puts it back into the receive queue. If the
//! verdict drops or redirects the packet, the slot subtracts it from the bytes that the owner can
//! read.
//!
//! # Where receive credit is given back
//!
//! In [`credit`]. A packet that leaves the receive queue owns a [`Credit`]: the credit that the
//! peer spent on the packet. When the target of the redirect has consumed the packet, the packet is
//! freed. That drops the [`Credit`], and the drop gives the credit back to the peer. [`counters`]
//! decides whether the peer needs a credit update, and [`credit_update`] sends it.
//!
//! A packet that the owner reads gives its credit back in `virtio_transport_dec_rx_pkt()`, as
//! outside a sockmap.
//!
//! # The path of a redirected buffer to a vsock target
//!
//! [`tx_credit`] takes a part of the credit that the peer has granted. [`egress`] makes packets of
//! the buffer, and [`transmit`] gives them to the transport.
//!
//! # What happens to a record that does not fit
//!
//! [`tx_credit`] decides. A record is sent as a whole or not at all. If the peer has too little
//! credit left for it, the record waits in the backlog. If it is larger than the whole receive
//! buffer of the peer, or than that of this side, sending fails with [`EMSGSIZE`], and core sockmap
//! drops the record.
//!
//! # Locks
//!
//! The socket lock is taken first, then `send_lock`, then `rx_lock` or `tx_lock`. [`rx_state`] has
//! the fields that `rx_lock` protects, and [`tx_state`] has the fields that `tx_lock` protects.
//!
//! C header: [`include/linux/virtio_vsock.h`](srctree/include/linux/virtio_vsock.h)
//!
//! [`Credit`]: credit::Credit
//! [`EMSGSIZE`]: kernel::error::code::EMSGSIZE

mod counters;
mod credit;
mod credit_update;
mod egress;
mod kunit_credit;
mod kunit_tx_credit;
mod packet;
mod queue_slot;
mod rx_state;
mod socket;
mod transmit;
mod tx_credit;
mod tx_state;
mod verdict_queue;

pub(crate) use queue_slot::Requeued;
pub(crate) use socket::{
    LockedVirtioSock,
    VirtioSock, //
};
