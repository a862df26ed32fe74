// SPDX-License-Identifier: GPL-2.0

//! Sockets in a sockmap.
//!
//! A socket that a BPF program or user space puts into a sockmap gets a `struct sk_psock`: the
//! programs that judge its data (the verdict), and the queue of what was passed or redirected to it
//! (ingress). To let the socket read from that queue, its `struct proto` is replaced while it is in
//! the map. A protocol says in [`SockmapOps`] what that means for it, and keeps one
//! [`SockmapProto`] as the replacement.
//!
//! C header: [`include/linux/skmsg.h`](srctree/include/linux/skmsg.h)

use crate::{
    bindings,
    net::{
        skbuff::SkBuff,
        sock::{
            Sock,
            SockLock, //
        },
        socket::{
            MsgFlags,
            MsgHdr, //
        },
    },
    prelude::*,
    sync::{
        atomic::{
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
    ptr::{
        addr_of_mut,
        NonNull, //
    },
};

/// A reference to the psock of a socket, which is what keeps it alive.
///
/// Who drops the last one takes the socket out of the sockmap for good, and takes
/// `sk_callback_lock` for it. So it is got before the socket lock is taken, and dropped after the
/// lock was released: declare it first.
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

    /// Returns whether there is nothing to read: no data was passed or redirected to the socket.
    ///
    /// Needs no lock; without the socket lock the answer may be old at once.
    ///
    /// C function: `sk_psock_queue_empty()` in
    /// [`include/linux/skmsg.h`](srctree/include/linux/skmsg.h)
    #[inline]
    pub fn is_empty(&self) -> bool {
        // SAFETY: The psock is live by the type invariant; the function reads one word of it.
        unsafe { bindings::sk_psock_queue_empty(self.psock.as_ptr()) }
    }

    /// Copies at most `len` bytes of what was passed or redirected to the socket into `msg`, and
    /// returns the number of bytes copied; 0 if there was nothing. Does not wait.
    ///
    /// `lock` keeps other readers away. May fault in user memory and so sleep.
    ///
    /// Fails with [`EFAULT`] if the buffer of user space cannot be written.
    ///
    /// C function: `sk_msg_recvmsg()` in [`net/core/skmsg.c`](srctree/net/core/skmsg.c)
    pub fn recv(
        &self,
        lock: &SockLock<'_>,
        msg: &mut MsgHdr,
        len: usize,
        flags: MsgFlags,
    ) -> Result<usize> {
        debug_assert!(core::ptr::eq(lock.sock(), self.sk));

        let len = c_int::try_from(len).unwrap_or(c_int::MAX);
        // SAFETY: Socket, psock and message are live. The socket lock is held, which is what the
        // function asks for to be the only one that takes from the queue; it is a sleeping lock,
        // so that a page fault is fine.
        let copied = unsafe {
            bindings::sk_msg_recvmsg(
                self.sk.as_raw(),
                self.psock.as_ptr(),
                msg.as_raw(),
                len,
                flags.as_raw(),
            )
        };
        bytes(copied)
    }
}

impl Drop for PsockRef<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant one reference is ours to give up, and `sk` is its socket.
        unsafe { bindings::sk_psock_put(self.sk.as_raw(), self.psock.as_ptr()) };
    }
}

/// Takes what a C function returned, a number of bytes or a negative errno, apart.
///
/// # Errors
///
/// The error that the number stands for.
#[inline]
pub fn bytes(ret: c_int) -> Result<usize> {
    usize::try_from(ret).map_err(|_| Error::from_errno(ret))
}

/// Where a protocol hands over a received packet: for a socket in a sockmap it runs the verdict.
#[derive(Clone, Copy)]
pub struct ReadActor(unsafe extern "C" fn(*mut bindings::sock, *mut bindings::sk_buff) -> c_int);

impl ReadActor {
    /// Makes an actor from the function that C code passed to `read_skb`.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if there is no function.
    ///
    /// # Safety
    ///
    /// The function must consume the buffer that it is given, whatever it returns, and may be
    /// called wherever the caller of `read_skb` allows it.
    #[inline]
    pub unsafe fn from_raw(actor: bindings::skb_read_actor_t) -> Result<Self> {
        actor.map(Self).ok_or(EINVAL)
    }

    /// Hands a packet over, and returns how many bytes were taken.
    ///
    /// The verdict runs here: it may free the packet, queue it to this or another socket, and wake
    /// tasks. No spinlock that those paths take may be held; the socket lock may.
    ///
    /// # Errors
    ///
    /// What the actor reports, such as [`EIO`] for a redirect to a socket that is gone. The packet
    /// is then dropped.
    #[inline]
    pub fn hand_over(&self, sk: &Sock, skb: SkBuff) -> Result<usize> {
        // SAFETY: `sk` is live, the buffer is valid and its ownership goes to the actor.
        bytes(unsafe { (self.0)(sk.as_raw(), skb.into_raw()) })
    }
}

/// What a protocol does for its sockets in a sockmap.
pub trait SockmapOps {
    /// Decides whether a socket may enter a sockmap.
    ///
    /// Called with the socket lock held, possibly in atomic context: must not sleep.
    ///
    /// # Errors
    ///
    /// What `bpf(BPF_MAP_UPDATE_ELEM)` is to return.
    fn may_enter(sk: &Sock) -> Result;

    /// Receives for a socket in a sockmap: at most `len` bytes into `msg`.
    ///
    /// Called in process context without locks. The socket may be in the sockmap no more.
    ///
    /// # Errors
    ///
    /// What `recvmsg(2)` is to return.
    fn recvmsg(sk: &Sock, msg: &mut MsgHdr, len: usize, flags: MsgFlags) -> Result<usize>;
}

/// The `struct proto` that the sockets of a protocol have while they are in a sockmap.
///
/// It is the protocol's own one, the base, with `close`, `recvmsg` and `sock_is_readable` replaced.
/// Should the base change, because a module that it is in was loaded anew, the copy is made again.
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
    /// Makes a value for a `static`. `rebuild` is a lock of its own that is safe in any context.
    pub const fn new(rebuild: &'static GlobalLock<L>) -> Self {
        // INVARIANT: `base` is null.
        Self {
            prot: Opaque::zeroed(),
            base: Atomic::new(core::ptr::null_mut()),
            rebuild,
            _ops: PhantomData,
        }
    }

    /// Makes the replacement from `base`, unless it is made from it already. Does not sleep.
    ///
    /// # Safety
    ///
    /// `base` must point to a `struct proto` that is valid while sockets use it, and
    /// [`GlobalLock::init`] must have been called for the lock given to [`SockmapProto::new`].
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
        // SAFETY: `base` is valid by the safety requirements and, being another one than `prot`
        // was made from, does not overlap it. We are the only writer, as we hold the lock.
        unsafe { core::ptr::copy_nonoverlapping(base, prot, 1) };
        // SAFETY: `prot` is valid for writes, and we are the only writer.
        unsafe { addr_of_mut!((*prot).close).write(Some(bindings::sock_map_close)) };
        // SAFETY: As above.
        unsafe { addr_of_mut!((*prot).recvmsg).write(Some(Self::recvmsg_callback)) };
        // SAFETY: As above.
        unsafe { addr_of_mut!((*prot).sock_is_readable).write(Some(bindings::sk_msg_is_readable)) };

        // INVARIANT: `prot` was made from `base`, and the lock is held.
        self.base.store(base, Release);
    }

    /// Replaces the `struct proto` of a socket that enters a sockmap, or restores it when the
    /// socket leaves. This is the protocol's `psock_update_sk_prot`.
    ///
    /// # Errors
    ///
    /// What [`SockmapOps::may_enter`] says; never with `restore`.
    ///
    /// # Safety
    ///
    /// `sk` and `psock` must be valid and belong together. With `restore` the caller holds
    /// `sk_callback_lock` for writing, without it the socket lock. The requirements of
    /// [`SockmapProto::build`] hold for the lock.
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
            // SAFETY: `sk` is valid; the caller holds the lock that protects its callbacks.
            unsafe { (*sk).sk_write_space = write_space };
            // SAFETY: `sk` is valid and `base` is the proto it had before.
            unsafe { bindings::sock_replace_proto(sk, base) };
            return Ok(());
        }

        // SAFETY: `sk` is valid for the duration of the call.
        T::may_enter(unsafe { Sock::from_raw(sk) })?;

        // SAFETY: `base` was the proto of a live socket when the psock was made, and `sk` keeps
        // its module loaded. The lock is initialised by the safety requirements.
        unsafe { self.build(base) };
        // SAFETY: `sk` is valid, and `prot` is complete and static.
        unsafe { bindings::sock_replace_proto(sk, self.prot.get()) };
        Ok(())
    }

    /// The `recvmsg` of `prot`.
    ///
    /// # Safety
    ///
    /// As `proto::recvmsg` asks for: `sk` and `msg` are valid for the duration of the call, which
    /// is in process context with no lock held.
    unsafe extern "C" fn recvmsg_callback(
        sk: *mut bindings::sock,
        msg: *mut bindings::msghdr,
        len: usize,
        flags: c_int,
    ) -> c_int {
        // SAFETY: By the safety requirements.
        let sk = unsafe { Sock::from_raw(sk) };
        // SAFETY: By the safety requirements; the message of a receive call is a destination.
        let msg = unsafe { MsgHdr::from_raw(msg) };

        match T::recvmsg(sk, msg, len, MsgFlags::from_raw(flags)) {
            Ok(copied) => c_int::try_from(copied).unwrap_or(c_int::MAX),
            Err(err) => err.to_errno(),
        }
    }
}
