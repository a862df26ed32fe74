// SPDX-License-Identifier: GPL-2.0

//! Sockmap support for virtio vsock: runs the verdict on received packets, and sends redirected
//! buffers.
//!
//! This object is a part of `vmw_vsock_virtio_transport_common`, which the virtio, the vhost and
//! the loopback transport share. It replaces the C version of `virtio_transport_read_skb()`, and
//! adds `virtio_transport_skb_enqueue()`.
//!
//! A packet that the verdict passes goes back to its position in the receive queue, with the mark
//! `verdict_done`. It keeps its position in the stream, its record and its credit, so that the
//! owner reads it as if there were no sockmap.
//!
//! A packet that the verdict redirects keeps its credit until the target has consumed it. A target
//! that does not read therefore stops the peer.
//!
//! The module [`virtio`] lists the files and their subjects.

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
    LockedVirtioSock,
    Requeued,
    VirtioSock, //
};

/// Gives all packets that await their verdict to `actor`, which runs the verdict.
///
/// A complete record is given as one packet. If the owner can read afterwards, this function wakes
/// the owner.
///
/// A packet that the verdict passed is lost if there is no memory for its header. A record is lost
/// if its packets cannot be joined. In both cases the packets behind it are dropped and the
/// connection is reset, because the owner must not read past a gap.
///
/// # Context
///
/// Process context. May sleep. The caller holds the socket lock. Takes and releases `rx_lock` and
/// `sk_callback_lock`, and may take and release `send_lock`. No spinlock is held while the actor
/// runs.
fn read_skb(vsk: &LockedVirtioSock<'_>, actor: ReadActor<'_>) {
    // The reference keeps the psock to the end of this function. If the socket leaves the map
    // meanwhile, the packets belong to the owner: the actor passes all packets if the psock has no
    // program, but it would drop them if there were no psock.
    let Some(psock) = PsockRef::get(vsk.sk()) else {
        vsk.sk().wake_waiters();
        return;
    };

    stack_pin_init!(let awaiting = vsk.take_awaiting_verdict());
    let mut lost_any = false;
    while let Some(packet) = awaiting.as_mut().next() {
        let Ok(packet) = packet else {
            lost_any = true;
            continue;
        };
        let (skb, slot) = packet.into_parts();
        if lost_any {
            continue;
        }
        if let Some(skb) = actor.hand_over(skb) {
            // SAFETY: The actor returned the packet of this slot. Neither `hand_over()` nor the
            // actor changes the owner of a packet that has an owner and is returned.
            lost_any = unsafe { slot.requeue(skb) } == Requeued::Lost;
        }
    }

    if lost_any {
        vsk.reset_after_loss();
    }
    // Check this even if no packet was put back here. The queue can also hold a packet that
    // `VerdictQueue::next()` put back without a verdict.
    if vsk.is_readable() {
        psock.data_ready();
    }
}

/// Gives all packets of a socket that await their verdict to `recv_actor`, which runs the verdict.
///
/// Always returns a negative errno, so that the caller does not wake the owner: [`read_skb`] wakes
/// the owner when there is something to read.
///
/// # Context
///
/// Process context. May sleep. The caller holds the socket lock. Takes and releases `rx_lock` and
/// `sk_callback_lock`, and may take and release `send_lock`.
///
/// # Safety
///
/// `vsk` must be a socket with a virtio transport. The caller holds a reference to the socket and
/// its socket lock, and may sleep. `recv_actor` must consume each packet that it is given, or
/// return `SK_PSOCK_IN_PLACE`.
#[export]
pub unsafe extern "C" fn virtio_transport_read_skb(
    vsk: *mut bindings::vsock_sock,
    recv_actor: bindings::skb_read_actor_t,
) -> c_int {
    from_result(|| {
        // SAFETY: By the safety requirements `vsk` is a socket with a virtio transport, to which
        // the caller holds a reference. The transport does not change, because the caller holds the
        // socket lock.
        let vsk = unsafe { VirtioSock::from_raw(vsk) }?;
        // SAFETY: The caller holds the socket lock, and may sleep.
        let vsk = unsafe { LockedVirtioSock::new(vsk) };
        // SAFETY: By the safety requirements the function consumes each packet or returns
        // `SK_PSOCK_IN_PLACE`. The caller holds the socket lock, which the function needs, and may
        // sleep.
        let actor = unsafe { ReadActor::from_raw(vsk.sk(), recv_actor) }?;

        read_skb(&vsk, actor);
        Err(EAGAIN)
    })
}

/// Sends `len` bytes of `skb`, beginning at byte `off`, or fewer if too little credit is left.
///
/// With `all`, or if the socket has records, sends all bytes or none. Returns the number of bytes
/// that were sent, or a negative errno. [`VirtioSock::enqueue`] lists the errors.
///
/// # Context
///
/// Any context but hard interrupt. Does not sleep. Takes and releases `tx_lock`, `send_lock` and
/// `rx_lock`. The caller can hold spinlocks of other sockets and the `ingress_lock` of the psock.
///
/// # Safety
///
/// `vsk` must be a socket with a virtio transport that is connected or was, and that keeps its
/// transport (`keeps_transport`). The caller holds a reference to the socket, and is not a hard
/// interrupt. `skb` must be valid, and must not hold a redirect target. Nobody may change it during
/// the call.
#[export]
pub unsafe extern "C" fn virtio_transport_skb_enqueue(
    vsk: *mut bindings::vsock_sock,
    skb: *mut bindings::sk_buff,
    off: u32,
    len: u32,
    all: bool,
) -> c_int {
    from_result(|| {
        // SAFETY: By the safety requirements `vsk` is a socket with a virtio transport, which is or
        // was connected and keeps its transport. The caller holds a reference to the socket.
        let vsk = unsafe { VirtioSock::from_raw(vsk) }?;
        // SAFETY: By the safety requirements `skb` is valid, does not hold a redirect target, and
        // does not change during the call.
        let data = unsafe { SkBuffSlice::from_raw(skb, off, len) }?;
        Ok(c_int::try_from(vsk.enqueue(data, all)?)?)
    })
}
