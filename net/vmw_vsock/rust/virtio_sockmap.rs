// SPDX-License-Identifier: GPL-2.0

//! Sockmap support for vsock: how the virtio transports give their packets to a verdict.
//!
//! This object is a part of `vmw_vsock_virtio_transport_common`, which the virtio, the vhost and
//! the loopback transport share, and takes the place of the C version of
//! `virtio_transport_read_skb()`.

use kernel::{
    bindings,
    error::from_result,
    net::psock::{
        has_verdict,
        ReadActor, //
    },
    prelude::*, //
};

mod virtio;

use virtio::VirtioRef;

/// Gives all packets in the receive queue of a socket to `actor`, which runs the verdict.
///
/// The peer is told about the space once, at the end. No spinlock is held while the actor runs. May
/// sleep. The loop ends, as packets only come in under the socket lock.
///
/// # Errors
///
/// When no packet was taken: [`EAGAIN`] if there was none, [`ENOMEM`] if one could not be made
/// ready (it stays in the queue), else what the actor reports.
fn read_skb(vsk: &VirtioRef<'_>, actor: ReadActor<'_>) -> Result<usize> {
    let mut result = Err(EAGAIN);
    let mut took_any = false;

    loop {
        // When the socket leaves the map, or the map loses its program, the actor would drop all
        // that is left, though it belongs to the owner again.
        if !has_verdict(vsk.sk()) {
            vsk.sk().wake_readers();
            break;
        }
        let skb = match vsk.take() {
            Ok(Some(skb)) => skb,
            Ok(None) => break,
            Err(err) => {
                result = result.or(Err(err));
                vsk.sk().wake_readers();
                break;
            }
        };
        took_any = true;
        if skb.is_empty() {
            // The queues behind the actor take an empty packet for an error.
            continue;
        }
        result = match (result, actor.hand_over(skb)) {
            (Ok(total), Ok(bytes)) => Ok(bytes.saturating_add(total)),
            // The verdict has dropped the packet. Those behind it have to be judged all the same,
            // as nothing else starts the next run.
            (Ok(total), Err(_)) => Ok(total),
            (Err(_), step) => step,
        };
    }

    if took_any {
        vsk.send_credit_update();
    }
    result
}

/// Gives all packets in the receive queue of a socket to `recv_actor`.
///
/// Returns the number of bytes that the actor took, or a negative errno, see [`read_skb`].
///
/// # Safety
///
/// `vsk` must be a socket with a virtio transport, locked by the caller, who may sleep.
/// `recv_actor` must consume the packets that it is given.
#[export]
pub unsafe extern "C" fn virtio_transport_read_skb(
    vsk: *mut bindings::vsock_sock,
    recv_actor: bindings::skb_read_actor_t,
) -> c_int {
    from_result(|| {
        // SAFETY: By the safety requirements.
        let vsk = unsafe { VirtioRef::from_raw(vsk) }?;
        // SAFETY: By the safety requirements, and the caller holds the socket lock.
        let actor = unsafe { ReadActor::from_raw(vsk.sk(), recv_actor) }?;

        let bytes = read_skb(&vsk, actor)?;
        Ok(c_int::try_from(bytes).unwrap_or(c_int::MAX))
    })
}
