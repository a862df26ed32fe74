// SPDX-License-Identifier: GPL-2.0

//! The `struct proto` of sockets in a sockmap: how it is made, and how a socket gets it.

use super::SockmapOps;

use crate::{
    bindings,
    error::from_result,
    net::{
        skbuff::SkBuffSlice,
        sock::Sock,
        socket::{
            MsgHdr,
            Socket, //
        },
    },
    prelude::*,
    sync::{
        atomic::{
            atomic_store,
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        lock::{
            GlobalLock,
            GlobalLockBackend, //
        },
    },
    types::Opaque, //
};

use core::{
    marker::PhantomData,
    ptr, //
};

/// The type of `sk_psock::send_skb`, when it is set.
type SendSkb =
    unsafe extern "C" fn(*mut bindings::sk_psock, *mut bindings::sk_buff, u32, u32, bool) -> c_int;

/// The `struct proto` that the sockets of a protocol have while they are in a sockmap.
///
/// It is a copy of the base, which is the protocol's own `struct proto`. In the copy, `close`,
/// `recvmsg` and `sock_is_readable` are replaced. The copy is made again when the base changes: the
/// base can be in another module, which was unloaded and loaded again.
///
/// # Invariants
///
/// - `base` is null, or points to the `struct proto` from which `prot` was last made. While
///   `rebuild` is held, `prot` may already be a copy of the next base.
/// - `prot` is written only while `rebuild` is held, and before `base` is set to the
///   `struct proto` from which `prot` was made.
pub struct SockmapProto<T: SockmapOps, L: GlobalLockBackend + 'static> {
    prot: Opaque<bindings::proto>,
    base: Atomic<*mut bindings::proto>,
    rebuild: &'static GlobalLock<L>,
    _ops: PhantomData<T>,
}

// SAFETY: By the type invariant `prot` is written under a lock and published by `base`. Otherwise
// only C code uses it, which only reads it. `T` is used only for its functions.
unsafe impl<T: SockmapOps, L: GlobalLockBackend> Sync for SockmapProto<T, L> {}

impl<T: SockmapOps, L: GlobalLockBackend> SockmapProto<T, L> {
    /// Makes a value for a `static`.
    ///
    /// `rebuild` must be a lock that has no other use and can be taken in any context.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    pub const fn new(rebuild: &'static GlobalLock<L>) -> Self {
        // INVARIANT: `base` is null.
        Self {
            prot: Opaque::zeroed(),
            base: Atomic::new(ptr::null_mut()),
            rebuild,
            _ops: PhantomData,
        }
    }

    /// Makes the replacement of `base`, unless the present replacement was made from `base`.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. May take and release the lock given to [`SockmapProto::new`].
    ///
    /// # Safety
    ///
    /// - `base` must point to a `struct proto` of the protocol itself, not to the replacement.
    /// - `base` must stay valid while sockets use it.
    /// - No socket may still use a replacement that was made from another base.
    /// - [`GlobalLock::init`] must have been called for the lock given to [`SockmapProto::new`].
    pub unsafe fn build(&'static self, base: *mut bindings::proto) {
        // Pairs with the `Release` below: a reader that sees `base` sees the `prot` made from it.
        if self.base.load(Acquire) == base {
            return;
        }

        let _guard = self.rebuild.lock();
        if self.base.load(Relaxed) == base {
            return;
        }

        let prot = self.prot.get();
        // SAFETY: By the safety requirements `base` is valid and is not `prot`. The lock is held,
        // so that nobody else writes `prot`.
        unsafe { ptr::copy_nonoverlapping(base, prot, 1) };
        // SAFETY: `prot` is valid for writes. The lock is held, so that nobody else writes it.
        unsafe { (*prot).close = Some(bindings::sock_map_close) };
        // SAFETY: As above.
        unsafe { (*prot).recvmsg = Some(Self::recvmsg_callback) };
        // SAFETY: As above.
        unsafe { (*prot).sock_is_readable = Some(bindings::sk_msg_is_readable) };

        // INVARIANT: `prot` was made from `base`, and the lock is held.
        self.base.store(base, Release);
    }

    /// Replaces the `struct proto` of a socket that enters a sockmap, or restores it.
    ///
    /// This is the protocol's `psock_update_sk_prot`. Core sockmap calls it when a socket enters a
    /// map, and again when the socket leaves a map that had a program. Core sockmap calls it with
    /// `restore` when the socket gives up its psock.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. May take and release the lock given to
    /// [`SockmapProto::new`]. The caller holds the socket lock, its spinlock, or
    /// `sk_callback_lock`.
    ///
    /// # Errors
    ///
    /// The error of [`SockmapOps::may_enter`]. With `restore` the function does not fail.
    ///
    /// # Safety
    ///
    /// - `sk` must be valid, and `psock` must be its psock.
    /// - `psock->sk_proto` must be the proto that the socket had before any psock, and one that may
    ///   be passed to [`Self::build`].
    /// - The caller must hold the socket lock, its spinlock, or `sk_callback_lock` for writing.
    ///   With `restore` it must hold `sk_callback_lock` for writing.
    /// - [`GlobalLock::init`] must have been called for the lock given to [`SockmapProto::new`].
    pub unsafe fn update(
        &'static self,
        sk: *mut bindings::sock,
        psock: *mut bindings::sk_psock,
        restore: bool,
    ) -> Result {
        // SAFETY: `psock` is valid by the safety requirements, and the field is constant.
        let base = unsafe { (*psock).sk_proto };

        if restore {
            // SAFETY: By the safety requirements `psock` is that of `sk`, `base` is the proto that
            // `sk` had before, and `sk_callback_lock` is held for writing.
            unsafe { Self::restore(sk, psock, base) };
            return Ok(());
        }

        // SAFETY: By the safety requirements `sk` is valid. The caller keeps it valid during the
        // call.
        let socket = unsafe { Sock::from_raw(sk) };
        // SAFETY: By the safety requirements the caller holds one of the locks. Core has checked
        // the state of the socket.
        unsafe { T::may_enter(socket) }?;

        // SAFETY: By the safety requirements `base` may be passed to `build()`, and the lock is
        // initialised. `sk` keeps the module of `base` loaded.
        unsafe { self.build(base) };
        // SAFETY: `psock` is valid by the safety requirements, and `may_enter()` has accepted `sk`.
        unsafe { Self::set_send_skb(psock) };
        // SAFETY: `sk` is valid by the safety requirements. `prot` is complete and static.
        unsafe { bindings::sock_replace_proto(sk, self.prot.get()) };
        Ok(())
    }

    /// Restores the write-space callback and the proto that a socket had before it had a psock.
    ///
    /// # Safety
    ///
    /// `sk` must be valid, `psock` must be its psock, and `base` the proto that it had before. The
    /// caller must hold `sk_callback_lock` for writing.
    unsafe fn restore(
        sk: *mut bindings::sock,
        psock: *mut bindings::sk_psock,
        base: *mut bindings::proto,
    ) {
        // SAFETY: `psock` is valid, and the field is constant once the psock has been created.
        let write_space = unsafe { (*psock).saved_write_space };
        let write_space = write_space.map_or(ptr::null_mut(), |f| f as *mut c_void);
        // SAFETY: `sk` is valid. Readers load the field as one word. An optional function pointer
        // has the size of a pointer.
        unsafe {
            atomic_store(
                (&raw mut (*sk).sk_write_space).cast::<*mut c_void>(),
                write_space,
                Relaxed,
            )
        };
        // SAFETY: `sk` is valid, and `base` is the proto that it had before.
        unsafe { bindings::sock_replace_proto(sk, base) };
    }

    /// Sets the function with which core sockmap sends redirected buffers to the socket of `psock`.
    ///
    /// # Safety
    ///
    /// `psock` must be valid. [`SockmapOps::may_enter`] must have accepted its socket.
    unsafe fn set_send_skb(psock: *mut bindings::sk_psock) {
        let send_skb = Self::send_skb_callback as SendSkb;
        // SAFETY: `psock` is valid. C code reads the field concurrently. The field has the size of
        // a pointer, so it is read and written as one word. It changes from null to this function,
        // and never again.
        unsafe {
            atomic_store(
                (&raw mut (*psock).send_skb).cast::<*mut c_void>(),
                send_skb as *mut c_void,
                Relaxed,
            )
        };
    }

    /// Calls [`SockmapOps::send_skb`] for C code. This is the `send_skb` of each psock.
    ///
    /// Returns the number of bytes that were sent, or a negative errno.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep.
    ///
    /// # Safety
    ///
    /// As for `sk_psock::send_skb`: `psock` must be valid during the call. `skb` must be valid, and
    /// must not hold a redirect target. Nobody may change `skb` during the call.
    unsafe extern "C" fn send_skb_callback(
        psock: *mut bindings::sk_psock,
        skb: *mut bindings::sk_buff,
        off: u32,
        len: u32,
        all: bool,
    ) -> c_int {
        from_result(|| {
            // SAFETY: `psock` is valid by the safety requirements, and the field is constant.
            let sk = unsafe { (*psock).sk };
            // SAFETY: The psock's reference keeps the socket live during the call.
            let sk = unsafe { Sock::from_raw(sk) };
            // SAFETY: By the safety requirements `skb` is valid, does not change, and holds no
            // redirect target.
            let data = unsafe { SkBuffSlice::from_raw(skb, off, len) }?;
            // SAFETY: `set_send_skb()` set this function after `may_enter()` had accepted the
            // socket. The caller keeps the psock of the socket valid during the call.
            let sent = unsafe { T::send_skb(sk, data, all) }?;
            Ok(c_int::try_from(sent)?)
        })
    }

    /// Calls [`SockmapOps::recvmsg`] for C code. This is the `recvmsg` of `prot`.
    ///
    /// Returns the number of bytes that were received, or a negative errno.
    ///
    /// # Context
    ///
    /// Process context. May sleep. The caller holds no lock.
    ///
    /// # Safety
    ///
    /// As for `proto::recvmsg` of a socket of user space: `sk` and `msg` must be valid during the
    /// call, an open file must keep `sk_socket`, and the caller must hold no lock.
    unsafe extern "C" fn recvmsg_callback(
        sk: *mut bindings::sock,
        msg: *mut bindings::msghdr,
        len: usize,
        flags: c_int,
    ) -> c_int {
        // SAFETY: `sk` is valid by the safety requirements, and an open file keeps the field
        // constant.
        let socket = unsafe { (*sk).sk_socket };
        // SAFETY: By the safety requirements an open file keeps the socket and its `struct sock`
        // together, and no lock is held. A receive call runs in process context.
        let socket = unsafe { Socket::from_raw(socket) };
        // SAFETY: `msg` is valid by the safety requirements. The iterator of a receive call's
        // message is a destination, and nobody else uses the message.
        let msg = unsafe { MsgHdr::from_raw(msg) };

        match T::recvmsg(socket, msg, len, flags) {
            Ok(copied) => c_int::try_from(copied).unwrap_or(c_int::MAX),
            Err(err) => err.to_errno(),
        }
    }
}
