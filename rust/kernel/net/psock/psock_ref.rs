// SPDX-License-Identifier: GPL-2.0

//! A counted reference to the psock of a socket.

use crate::{
    bindings,
    net::sock::Sock,
    sync::{
        atomic::{
            atomic_load,
            Relaxed, //
        },
        rcu, //
    },
};

use core::ptr::NonNull;

/// A counted reference to the psock of a socket: the socket keeps its psock while this value lives.
///
/// Dropping the last reference restores the proto of the socket.
///
/// # Context
///
/// Dropping it: any context but hard interrupt. Does not sleep. May take and release
/// `sk_callback_lock`, which the caller must not hold. The caller may hold the socket lock.
///
/// # Invariants
///
/// `psock` is the psock of `sk`, and this value holds a reference to it.
pub struct PsockRef<'a> {
    psock: NonNull<bindings::sk_psock>,
    sk: &'a Sock,
}

impl<'a> PsockRef<'a> {
    /// Returns a reference to the psock of the socket, or [`None`] if the socket is in no sockmap.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes and releases the RCU read lock.
    ///
    /// C function: `sk_psock_get()` in [`include/linux/skmsg.h`](srctree/include/linux/skmsg.h)
    #[inline]
    pub fn get(sk: &'a Sock) -> Option<Self> {
        // SAFETY: `sk` is live. The function takes the RCU read lock that it needs.
        let psock = unsafe { bindings::sk_psock_get(sk.as_raw()) };
        // INVARIANT: The function returned the psock of `sk`, and took a reference for the caller.
        NonNull::new(psock).map(|psock| Self { psock, sk })
    }

    /// Wakes the readers of the socket.
    ///
    /// Sockmap replaces `sk_data_ready` of a socket that has a verdict program. This function calls
    /// the `sk_data_ready` that the socket had before.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes and releases `sk_callback_lock`.
    ///
    /// C function: `sk_psock_data_ready()` in
    /// [`include/linux/skmsg.h`](srctree/include/linux/skmsg.h)
    #[inline]
    pub fn data_ready(&self) {
        // SAFETY: By the type invariant the socket and the psock are live, and belong together.
        unsafe { bindings::sk_psock_data_ready(self.sk.as_raw(), self.psock.as_ptr()) };
    }
}

impl Drop for PsockRef<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant this value holds a reference to the psock of `sk`. The
        // value is not used afterwards.
        unsafe { bindings::sk_psock_put(self.sk.as_raw(), self.psock.as_ptr()) };
    }
}

/// Returns whether the socket has a program that gives a verdict on its received packets.
///
/// The answer can be out of date when the function returns.
///
/// # Context
///
/// Any context but hard interrupt. Does not sleep. Takes and releases the RCU read lock.
///
/// C function: `sk_psock()` in [`include/linux/skmsg.h`](srctree/include/linux/skmsg.h)
pub fn has_verdict(sk: &Sock) -> bool {
    let _rcu = rcu::read_lock();
    // SAFETY: `sk` is live, and the RCU read lock is held.
    let psock = unsafe { bindings::sk_psock(sk.as_raw()) };
    if psock.is_null() {
        return false;
    }
    // SAFETY: A psock is freed only after a grace period, so that it is valid while the RCU read
    // lock is held. C code sets and clears the program by `xchg()`.
    let stream = unsafe { atomic_load(&raw mut (*psock).progs.stream_verdict, Relaxed) };
    // SAFETY: As above.
    let skb = unsafe { atomic_load(&raw mut (*psock).progs.skb_verdict, Relaxed) };
    !stream.is_null() || !skb.is_null()
}
