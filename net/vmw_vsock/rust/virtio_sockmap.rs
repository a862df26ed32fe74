// SPDX-License-Identifier: GPL-2.0

//! Sockmap support for vsock: how the virtio transports give their packets to a verdict.
//!
//! This object is a part of `vmw_vsock_virtio_transport_common`, which the virtio, the vhost and
//! the loopback transport share, and takes the place of the C version of
//! `virtio_transport_read_skb()`.
//!
//! A packet that the verdict passes goes back to where it was, marked as judged. There it keeps its
//! place in the stream, its record and its credit, and the owner reads it as if there were no
//! sockmap. The judged packets are the front of the receive queue, those that no verdict has seen
//! the end of it.
//!
//! A packet that the verdict redirects holds its credit, so that a target that does not read stops
//! the peer. A buffer that is redirected to a socket goes out as a whole.

use kernel::{
    bindings,
    error::from_result,
    net::{
        psock::{
            PsockRef,
            ReadActor, //
        },
        skbuff::SkBuffSlice, //
    },
    prelude::*, //
};

use pin_init::stack_pin_init;

mod virtio;

use virtio::{
    Kept,
    VirtioRef,
    VirtioSock, //
};

/// Gives all packets in the receive queue that no verdict has seen to `actor`, which runs one. Of
/// records, those that have come to their end, each as one packet.
///
/// Wakes the owner if there is more to read then. A packet that is gone holds its credit until its
/// target has consumed it. No spinlock is held while the actor runs. May sleep.
fn read_skb(vsk: &VirtioRef<'_>, actor: ReadActor<'_>) {
    // Held to the end, so that the actor finds a psock: without one it would drop what belongs to
    // the owner again. If only the program is gone, it passes all.
    let Some(psock) = PsockRef::get(vsk.sk()) else {
        vsk.sk().wake_waiters();
        return;
    };

    stack_pin_init!(let unjudged = vsk.take_unjudged());
    let mut lost_any = false;
    while let Some(packet) = unjudged.as_mut().next() {
        let Ok(packet) = packet else {
            lost_any = true;
            continue;
        };
        let (skb, place) = packet.into_parts();
        if lost_any {
            // What came after a gap must not be read.
            continue;
        }
        if let Some(skb) = actor.hand_over(skb) {
            // SAFETY: The actor gave the packet of this place back, and changes no owner.
            lost_any = unsafe { place.keep(skb) } == Kept::Lost;
        }
    }

    if lost_any {
        vsk.lost_data();
    }
    // Also when nothing was kept: there can be a packet that stays the owner's.
    if vsk.is_readable() {
        psock.data_ready();
    }
}

/// Gives all packets in the receive queue of a socket that no verdict has seen to `recv_actor`.
///
/// Returns a negative errno, so that the caller does not wake the owner: [`read_skb`] knows when.
///
/// # Safety
///
/// `vsk` must be a socket with a virtio transport, to which the caller has a reference, and its
/// socket lock. The caller may sleep. `recv_actor` must consume the packets that it is given, or
/// return `SK_PSOCK_IN_PLACE`.
#[export]
pub unsafe extern "C" fn virtio_transport_read_skb(
    vsk: *mut bindings::vsock_sock,
    recv_actor: bindings::skb_read_actor_t,
) -> c_int {
    from_result(|| {
        // SAFETY: By the safety requirements; the caller holds the socket lock.
        let vsk = unsafe { VirtioSock::from_raw(vsk) }?;
        // SAFETY: The caller holds the socket lock.
        let vsk = unsafe { VirtioRef::new(vsk) };
        // SAFETY: By the safety requirements, and the caller holds the socket lock.
        let actor = unsafe { ReadActor::from_raw(vsk.sk(), recv_actor) }?;

        read_skb(&vsk, actor);
        Err(EAGAIN)
    })
}

/// Sends `len` bytes of `skb` from `off` on, or what there is space for, see `sk_psock::send_skb`.
///
/// Returns how many were sent, or a negative errno: see [`VirtioSock::enqueue`]. Does not sleep.
///
/// # Safety
///
/// `vsk` must be a socket with a virtio transport that is connected, or was, and keeps it
/// (`keeps_transport`), to which the caller has a reference. The caller is no hard interrupt, but
/// can hold spinlocks. `skb` must be valid, and nobody may change it during the call.
#[export]
pub unsafe extern "C" fn virtio_transport_skb_enqueue(
    vsk: *mut bindings::vsock_sock,
    skb: *mut bindings::sk_buff,
    off: u32,
    len: u32,
    all: bool,
) -> c_int {
    from_result(|| {
        // SAFETY: By the safety requirements.
        let vsk = unsafe { VirtioSock::from_raw(vsk) }?;
        // SAFETY: By the safety requirements.
        let data = unsafe { SkBuffSlice::from_raw(skb, off, len) }?;
        Ok(c_int::try_from(vsk.enqueue(data, all)?)?)
    })
}
