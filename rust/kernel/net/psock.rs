// SPDX-License-Identifier: GPL-2.0

//! Sockets in a sockmap.
//!
//! A socket that a BPF program or user space puts into a sockmap gets a `struct sk_psock`, which
//! knows the programs that judge its packets (the verdict). While it is in the map, its
//! `struct proto` is replaced. A protocol says in [`SockmapOps`] what that means for it, and keeps
//! one [`SockmapProto`] as the replacement.
//!
//! C header: [`include/linux/skmsg.h`](srctree/include/linux/skmsg.h)

use crate::{
    bindings,
    error::from_result,
    net::{
        skbuff::{
            SkBuff,
            SkBuffSlice, //
        },
        sock::Sock,
        socket::{
            MsgHdr,
            Socket, //
        },
    },
    prelude::*,
    sync::{
        atomic::{
            atomic_load,
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
        rcu, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    },
};

// What a socket in a map has in place of its own is copied as a whole.
const _: () = assert!(size_of::<bindings::proto>() == bindings::SIZEOF_PROTO);
const _: () = assert!(size_of::<bindings::sk_psock>() == bindings::SIZEOF_SK_PSOCK);

/// A reference to the psock of a socket: while it is held, the socket keeps its psock.
///
/// Who drops the last one restores the proto of the socket, under `sk_callback_lock`, which must
/// not be held then. The socket lock may be.
///
/// # Invariants
///
/// `psock` belongs to `sk`, and one reference to it is held.
pub struct PsockRef<'a> {
    psock: NonNull<bindings::sk_psock>,
    sk: &'a Sock,
}

impl<'a> PsockRef<'a> {
    /// Returns the psock of the socket, or [`None`] if the socket is in no sockmap.
    ///
    /// Does not sleep; needs no lock.
    ///
    /// C function: `sk_psock_get()` in [`include/linux/skmsg.h`](srctree/include/linux/skmsg.h)
    #[inline]
    pub fn get(sk: &'a Sock) -> Option<Self> {
        // SAFETY: `sk` is live; the function takes the RCU read lock that it needs.
        let psock = unsafe { bindings::sk_psock_get(sk.as_raw()) };
        // INVARIANT: The function returned the psock of `sk` with one reference for us.
        NonNull::new(psock).map(|psock| Self { psock, sk })
    }

    /// Calls what the socket had as `sk_data_ready` before a verdict took its place.
    ///
    /// That wakes the readers. `sk_callback_lock` must not be held. Does not sleep.
    ///
    /// C function: `sk_psock_data_ready()` in
    /// [`include/linux/skmsg.h`](srctree/include/linux/skmsg.h)
    #[inline]
    pub fn data_ready(&self) {
        // SAFETY: By the type invariant the two are live and belong together.
        unsafe { bindings::sk_psock_data_ready(self.sk.as_raw(), self.psock.as_ptr()) };
    }
}

impl Drop for PsockRef<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant one reference is ours to give up, and `sk` is its socket.
        unsafe { bindings::sk_psock_put(self.sk.as_raw(), self.psock.as_ptr()) };
    }
}

/// Returns whether a program judges the packets of a socket at this moment.
///
/// Does not sleep; needs no lock, so that the answer may be old at once.
pub fn has_verdict(sk: &Sock) -> bool {
    let _rcu = rcu::read_lock();
    // SAFETY: `sk` is live, and the RCU read lock is held.
    let psock = unsafe { bindings::sk_psock(sk.as_raw()) };
    if psock.is_null() {
        return false;
    }
    // SAFETY: A psock is freed after a grace period, and programs come and go by `xchg()`.
    let stream = unsafe { atomic_load(&raw mut (*psock).progs.stream_verdict, Relaxed) };
    // SAFETY: As above.
    let skb = unsafe { atomic_load(&raw mut (*psock).progs.skb_verdict, Relaxed) };
    !stream.is_null() || !skb.is_null()
}

/// Where a protocol hands over a received packet: for a socket in a sockmap it runs the verdict.
///
/// # Invariants
///
/// `actor` may be called with `sk` by the current context during `'a`, and consumes the buffer
/// unless it returns `SK_PSOCK_IN_PLACE`.
pub struct ReadActor<'a> {
    actor: unsafe extern "C" fn(*mut bindings::sock, *mut bindings::sk_buff) -> c_int,
    sk: &'a Sock,
    _not_send: NotThreadSafe,
}

impl<'a> ReadActor<'a> {
    /// Makes an actor from the function that C code passed to `read_skb`.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if there is no function.
    ///
    /// # Safety
    ///
    /// The function must consume the buffer that it is given, except when it returns
    /// `SK_PSOCK_IN_PLACE`. It must be fine to call it for `sk` from the current context during
    /// `'a`, with the locks held that the caller of `read_skb` holds.
    #[inline]
    pub unsafe fn from_raw(sk: &'a Sock, actor: bindings::skb_read_actor_t) -> Result<Self> {
        // INVARIANT: By the safety requirements.
        Ok(Self {
            actor: actor.ok_or(EINVAL)?,
            sk,
            _not_send: NotThreadSafe,
        })
    }

    /// Lets the verdict judge a packet, and returns the packet if it was passed to its own socket.
    ///
    /// That is for a protocol that asks for it (`psock_pass_in_place`). In all other cases the
    /// packet is consumed here: dropped, or queued to another socket. The verdict may change and
    /// reallocate the contents, use the control block, and look at the socket of the packet, so
    /// that a packet without one gets this one. No spinlock may be held. Does not sleep.
    #[inline]
    pub fn hand_over(&self, mut skb: SkBuff) -> Option<SkBuff> {
        // Otherwise the socket is being freed, and nobody will read the packet.
        skb.set_owner_sk_safe(self.sk).ok()?;
        let skb = skb.into_raw();
        // SAFETY: By the type invariant the actor may be called here with this socket. The buffer
        // is valid, has a socket, and its ownership goes to the actor.
        let taken = unsafe { (self.actor)(self.sk.as_raw(), skb) };
        if taken != bindings::SK_PSOCK_IN_PLACE {
            return None;
        }
        // SAFETY: By the type invariant the buffer is still ours, and the only reference to it.
        NonNull::new(skb).map(|skb| unsafe { SkBuff::from_raw(skb) })
    }
}

/// What a protocol does for its sockets in a sockmap.
///
/// The protocol keeps a packet that the verdict passes to its own socket in a queue of its own
/// (`psock_pass_in_place`), so that a receive is what it is outside of a sockmap.
pub trait SockmapOps {
    /// Decides whether a socket may enter a sockmap.
    ///
    /// Called with the socket lock or its spinlock held by who puts the socket into a map, and
    /// with `sk_callback_lock` held when it leaves one that had a program. Must not sleep.
    ///
    /// # Errors
    ///
    /// What `bpf(BPF_MAP_UPDATE_ELEM)` is to return.
    ///
    /// # Safety
    ///
    /// One of the locks named above is held, and the state of `sk` is one that the maps allow, or
    /// was when it entered.
    unsafe fn may_enter(sk: &Sock) -> Result;

    /// Receives for a socket in a sockmap: at most `len` bytes into `msg`. `flags` are `MSG_*`.
    ///
    /// Called without locks. The socket may be in the sockmap no more.
    ///
    /// # Errors
    ///
    /// What `recvmsg(2)` is to return.
    fn recvmsg(socket: &Socket, msg: Pin<&mut MsgHdr>, len: usize, flags: c_int) -> Result<usize>;

    /// Sends bytes of a buffer that was redirected to the socket.
    ///
    /// If there is no space for all, sends as many as there is space for, or with `all` none; a
    /// record is sent as a whole or not at all. Returns how many, at least one. Must not sleep:
    /// not called in hard interrupts, perhaps with `ingress_lock` of the psock and the lock of the
    /// source held, without the socket lock.
    ///
    /// # Errors
    ///
    /// [`EAGAIN`] without space: `sk_write_space` is to be called when there is some. [`ENOMEM`]
    /// without memory: then a retry follows. [`EMSGSIZE`] if the socket can never take it. With any
    /// other error, the redirect to this socket ends.
    ///
    /// # Safety
    ///
    /// The socket is in a sockmap, and does not leave it during the call.
    unsafe fn send_skb(sk: &Sock, data: SkBuffSlice<'_>, all: bool) -> Result<u32>;
}

/// The `struct proto` that the sockets of a protocol have while they are in a sockmap.
///
/// It is the protocol's own one, the base, with `close`, `recvmsg` and `sock_is_readable` replaced.
/// It is made again should the base change, as it does for a protocol whose base is in another
/// module that was loaded anew.
///
/// # Invariants
///
/// `base` is null or the `struct proto` that `prot` was last made from. `prot` is only written with
/// `rebuild` held, and before `base` is set to what it was made from.
pub struct SockmapProto<T: SockmapOps, L: GlobalLockBackend + 'static> {
    prot: Opaque<bindings::proto>,
    base: Atomic<*mut bindings::proto>,
    rebuild: &'static GlobalLock<L>,
    _ops: PhantomData<T>,
}

// SAFETY: `prot` is written under a lock and published by `base`, and otherwise only read, by C
// code; `T` is only used for its functions.
unsafe impl<T: SockmapOps, L: GlobalLockBackend> Sync for SockmapProto<T, L> {}

impl<T: SockmapOps, L: GlobalLockBackend> SockmapProto<T, L> {
    /// Makes a value for a `static`.
    ///
    /// `rebuild` is a lock for this purpose alone, of a kind that can be taken in any context.
    pub const fn new(rebuild: &'static GlobalLock<L>) -> Self {
        // INVARIANT: `base` is null.
        Self {
            prot: Opaque::zeroed(),
            base: Atomic::new(ptr::null_mut()),
            rebuild,
            _ops: PhantomData,
        }
    }

    /// Makes the replacement from `base`, unless it is made from it already. Does not sleep.
    ///
    /// # Safety
    ///
    /// `base` must point to a `struct proto` of the protocol itself, not to this one, that is valid
    /// while sockets use it. No socket may use the replacement of another base any more.
    /// [`GlobalLock::init`] must have been called for the lock given to
    /// [`SockmapProto::new`].
    pub unsafe fn build(&'static self, base: *mut bindings::proto) {
        // Pairs with the `Release` below: who sees `base` sees what was made from it.
        if self.base.load(Acquire) == base {
            return;
        }

        let _guard = self.rebuild.lock();
        if self.base.load(Relaxed) == base {
            return;
        }

        let prot = self.prot.get();
        // SAFETY: `base` is valid by the safety requirements, which also say that it is not `prot`.
        // We are the only writer, as we hold the lock.
        unsafe { ptr::copy_nonoverlapping(base, prot, 1) };
        // SAFETY: `prot` is valid for writes, and we are the only writer.
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
    /// This is the protocol's `psock_update_sk_prot`. Core calls it when a socket enters a map,
    /// again when it leaves one that had a program, and with `restore` when it has left the last.
    /// Does not sleep.
    ///
    /// # Errors
    ///
    /// What [`SockmapOps::may_enter`] says; never with `restore`.
    ///
    /// # Safety
    ///
    /// `sk` and `psock` must be valid and belong together, and `psock->sk_proto` be the proto that
    /// the socket had before any psock: one that is good for [`Self::build`]. The caller must hold
    /// the socket lock, its spinlock, or `sk_callback_lock` for writing; the last of these with
    /// `restore`. The lock given to [`SockmapProto::new`] must be initialised.
    pub unsafe fn update(
        &'static self,
        sk: *mut bindings::sock,
        psock: *mut bindings::sk_psock,
        restore: bool,
    ) -> Result {
        // SAFETY: `psock` is valid by the safety requirements, and the field is constant.
        let base = unsafe { (*psock).sk_proto };

        if restore {
            // SAFETY: `psock` is valid, and the field is constant after the creation.
            let write_space = unsafe { (*psock).saved_write_space };
            let write_space = write_space.map_or(ptr::null_mut(), |f| f as *mut c_void);
            // SAFETY: `sk` is valid. Who reads the field does so once; a function pointer that can
            // be absent has the size of a pointer.
            unsafe {
                atomic_store(
                    (&raw mut (*sk).sk_write_space).cast::<*mut c_void>(),
                    write_space,
                    Relaxed,
                )
            };
            // SAFETY: `sk` is valid and `base` is the proto it had before.
            unsafe { bindings::sock_replace_proto(sk, base) };
            return Ok(());
        }

        // SAFETY: `sk` is valid for the duration of the call.
        let socket = unsafe { Sock::from_raw(sk) };
        // SAFETY: The caller holds one of the locks, and core has checked the state of the socket.
        unsafe { T::may_enter(socket) }?;

        // SAFETY: By the safety requirements `base` is good for that, and the lock is initialised;
        // `sk` keeps the module of `base` loaded.
        unsafe { self.build(base) };
        let send_skb = Self::send_skb_callback
            as unsafe extern "C" fn(
                *mut bindings::sk_psock,
                *mut bindings::sk_buff,
                u32,
                u32,
                bool,
            ) -> c_int;
        // SAFETY: `psock` is valid. The backlog reads the field, which has the size of a pointer,
        // and never changes from one function to another.
        unsafe {
            atomic_store(
                (&raw mut (*psock).send_skb).cast::<*mut c_void>(),
                send_skb as *mut c_void,
                Relaxed,
            )
        };
        // SAFETY: `sk` is valid, and `prot` is complete and static.
        unsafe { bindings::sock_replace_proto(sk, self.prot.get()) };
        Ok(())
    }

    /// The `send_skb` of the psocks.
    ///
    /// # Safety
    ///
    /// As for `sk_psock::send_skb`: `psock` is valid, and its socket in a sockmap. `skb` is valid,
    /// and nobody changes it during the call.
    unsafe extern "C" fn send_skb_callback(
        psock: *mut bindings::sk_psock,
        skb: *mut bindings::sk_buff,
        off: u32,
        len: u32,
        all: bool,
    ) -> c_int {
        from_result(|| {
            // SAFETY: The psock is valid, and holds a reference to its socket.
            let sk = unsafe { Sock::from_raw((*psock).sk) };
            // SAFETY: By the safety requirements.
            let data = unsafe { SkBuffSlice::from_raw(skb, off, len) }?;
            // SAFETY: By the safety requirements.
            let sent = unsafe { T::send_skb(sk, data, all) }?;
            Ok(c_int::try_from(sent)?)
        })
    }

    /// The `recvmsg` of `prot`.
    ///
    /// # Safety
    ///
    /// As for `proto::recvmsg` of a socket of user space: `sk` and `msg` are valid for the duration
    /// of the call, an open file keeps `sk_socket`, and no lock is held.
    unsafe extern "C" fn recvmsg_callback(
        sk: *mut bindings::sock,
        msg: *mut bindings::msghdr,
        len: usize,
        flags: c_int,
    ) -> c_int {
        // SAFETY: By the safety requirements; the field is stable while the file is open.
        let socket = unsafe { (*sk).sk_socket };
        // SAFETY: By the safety requirements; a receive call is in process context.
        let socket = unsafe { Socket::from_raw(socket) };
        // SAFETY: By the safety requirements; the message of a receive call is a destination.
        let msg = unsafe { MsgHdr::from_raw(msg) };

        match T::recvmsg(socket, msg, len, flags) {
            Ok(copied) => c_int::try_from(copied).unwrap_or(c_int::MAX),
            Err(err) => err.to_errno(),
        }
    }
}
