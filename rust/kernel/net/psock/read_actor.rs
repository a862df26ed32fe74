// SPDX-License-Identifier: GPL-2.0

//! Runs the verdict on a received packet, for the `read_skb` of a protocol.

use crate::{
    bindings,
    net::{
        skbuff::SkBuff,
        sock::Sock, //
    },
    prelude::*,
    types::NotThreadSafe, //
};

use core::ptr::NonNull;

/// The function that runs the verdict on a packet, for one socket and in one context.
///
/// The value belongs to the context in which C code called `read_skb`, and cannot be sent to
/// another thread.
///
/// # Invariants
///
/// - `actor` may be called with `sk` in the current context during `'a`.
/// - `actor` consumes the buffer unless it returns `SK_PSOCK_IN_PLACE`.
pub struct ReadActor<'a> {
    actor: unsafe extern "C" fn(*mut bindings::sock, *mut bindings::sk_buff) -> c_int,
    sk: &'a Sock,
    _not_send: NotThreadSafe,
}

impl<'a> ReadActor<'a> {
    /// Makes an actor from the function that C code passed to `read_skb`.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if there is no function.
    ///
    /// # Safety
    ///
    /// The function must consume each buffer that it is given, unless it returns
    /// `SK_PSOCK_IN_PLACE`. The current context must be one in which the function may be called for
    /// `sk` during `'a`. That includes the locks that the caller of `read_skb` holds.
    #[inline]
    pub unsafe fn from_raw(sk: &'a Sock, actor: bindings::skb_read_actor_t) -> Result<Self> {
        // INVARIANT: The safety requirements are the invariants.
        Ok(Self {
            actor: actor.ok_or(EINVAL)?,
            sk,
            _not_send: NotThreadSafe,
        })
    }

    /// Runs the verdict on a packet, and returns the packet if the verdict passed it to its own
    /// socket.
    ///
    /// Only a protocol that sets `psock_pass_in_place` gets a packet back. In all other cases the
    /// actor consumes the packet: it drops the packet, sends it, or queues it to a socket.
    ///
    /// The verdict may change and reallocate the contents, and may use the control block. It may
    /// also look at `skb->sk`, so this function sets `skb->sk` to the actor's socket if it is null.
    ///
    /// # Context
    ///
    /// Process context or softirq. Does not sleep. Takes and releases `ingress_lock` of the target.
    /// The caller must not hold a spinlock.
    #[inline]
    pub fn hand_over(&self, mut skb: SkBuff) -> Option<SkBuff> {
        // This fails only if the socket is being freed. Then nobody can read the packet, so drop
        // the packet.
        skb.set_owner_sk_safe(self.sk).ok()?;
        let skb = skb.into_raw();
        // SAFETY: By the type invariant the actor may be called here with this socket. The buffer
        // is valid and has a socket. Ownership of the buffer goes to the actor.
        let taken = unsafe { (self.actor)(self.sk.as_raw(), skb) };
        if taken != bindings::SK_PSOCK_IN_PLACE {
            return None;
        }
        // SAFETY: By the type invariant the actor has not consumed the buffer, so that `skb` is the
        // only reference to it again.
        NonNull::new(skb).map(|skb| unsafe { SkBuff::from_raw(skb) })
    }
}
