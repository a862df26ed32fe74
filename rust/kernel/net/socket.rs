// SPDX-License-Identifier: GPL-2.0

//! A socket in a call of user space: its lock, and what a receive brings along.
//!
//! The socket lock may be held while sleeping for memory, but not while waiting for data: the
//! receive path of the packets that bring the data takes it too. Here that rule is a type.
//! [`SockLock`] proves that the lock is held, and [`SockLock::wait`] consumes it and returns a new
//! one, so that nothing borrowed from the guard outlives the sleep.
//!
//! C headers: [`include/linux/net.h`](srctree/include/linux/net.h),
//! [`include/linux/socket.h`](srctree/include/linux/socket.h)

use crate::{
    bindings,
    net::sock::{
        Sock,
        Timeout, //
    },
    prelude::*,
    sync::barrier::{
        smp_mb,
        Full, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

/// A socket of user space, in a call on an open file.
///
/// # Invariants
///
/// Wraps a `struct socket` that is grafted to a `struct sock`, and stays so at least as long as the
/// reference: an open file keeps it. The current context is a process that may sleep.
#[repr(transparent)]
pub struct Socket(Opaque<bindings::socket>);

impl Socket {
    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a `struct socket` with a `struct sock`, and both must stay together
    /// during `'a`, as they do while a system call holds the file. The caller is in process
    /// context and may sleep during `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::socket) -> &'a Self {
        // SAFETY: The caller promises a live `struct socket`; `Self` is a transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    /// Returns the pointer to hand to C code.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::socket {
        self.0.get()
    }

    /// Returns the network layer's view of the socket.
    #[inline]
    pub fn sk(&self) -> &Sock {
        // SAFETY: By the type invariant there is a `struct sock`, which stays.
        unsafe { Sock::from_raw((*self.as_raw()).sk) }
    }

    /// Takes the socket lock. May sleep; no spinlock may be held.
    ///
    /// C function: `lock_sock()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn lock(&self) -> SockLock<'_> {
        // SAFETY: The socket is live, and the context may sleep, by the type invariant.
        unsafe { bindings::lock_sock(self.sk().as_raw()) };
        // INVARIANT: The lock was taken just now.
        SockLock {
            socket: self,
            _not_send: NotThreadSafe,
        }
    }
}

/// Proof that the current task holds the lock of a socket; dropping it releases the lock.
///
/// The release works off what came in meanwhile, so it may send packets and wake tasks. No spinlock
/// may be held then.
///
/// # Invariants
///
/// The current task holds the socket lock of `socket`.
#[must_use = "the socket is unlocked at once when the guard is not kept"]
pub struct SockLock<'a> {
    socket: &'a Socket,
    _not_send: NotThreadSafe,
}

impl<'a> SockLock<'a> {
    /// Returns the socket that is locked.
    #[inline]
    pub fn sk(&self) -> &'a Sock {
        self.socket.sk()
    }

    /// Gives the lock up, calls `f`, and takes the lock again.
    ///
    /// For calls that take the lock themselves. What was seen of the socket before has to be looked
    /// up anew.
    #[inline]
    pub fn unlocked<R>(self, f: impl FnOnce(&Socket) -> R) -> (Self, R) {
        let socket = self.socket;
        drop(self);
        let result = f(socket);
        (socket.lock(), result)
    }

    /// Gives the lock up, sleeps until something happens to the socket, and takes the lock again.
    ///
    /// The sleep ends when the socket wakes its waiters, when a signal comes, or when `timeout` has
    /// passed, which is reduced by the time slept. `ready` is called before it, with the lock still
    /// held and the task already among the waiters; if it returns true, there is no sleep. What
    /// comes after that look is a wake-up that is not missed.
    ///
    /// C functions: `add_wait_queue()` in [`kernel/sched/wait.c`](srctree/kernel/sched/wait.c) and
    /// `wait_woken()` in the same file
    pub fn wait(self, timeout: &mut Timeout, ready: impl FnOnce(&Self) -> bool) -> Self {
        // The entry stays in this function's frame, and is off the queue before it returns.
        let entry = Opaque::<bindings::wait_queue_entry>::uninit();
        // SAFETY: The socket is live by the type invariant of `Socket`, and its wait queue is a
        // part of it.
        let queue = unsafe { &raw mut (*self.socket.as_raw()).wq.wait };

        // SAFETY: `entry` is valid for writes.
        unsafe { bindings::init_wait(entry.get()) };
        // SAFETY: `entry` was initialised just now, and nobody else knows it yet.
        unsafe { (*entry.get()).func = Some(bindings::woken_wake_function) };
        // SAFETY: `queue` is live and `entry` is initialised, in no queue, and does not move.
        unsafe { bindings::add_wait_queue(queue, entry.get()) };
        // Pairs with the barrier in `wq_has_sleeper()`: either `ready` sees what a waker did, or
        // the waker sees the entry.
        smp_mb(Full);

        let lock = if ready(&self) {
            self
        } else {
            let sleep = |_: &Socket| {
                // SAFETY: `entry` is that of the current task, on a queue, and wakes it by
                // `woken_wake_function()`. The context may sleep by the type invariant of
                // `Socket`, and the socket lock has been given up.
                unsafe {
                    bindings::wait_woken(entry.get(), bindings::TASK_INTERRUPTIBLE, timeout.get())
                }
            };
            let (lock, left) = self.unlocked(sleep);
            timeout.set(left);
            lock
        };

        // SAFETY: `queue` is live, and `entry` was put on it above.
        unsafe { bindings::remove_wait_queue(queue, entry.get()) };
        lock
    }
}

impl Drop for SockLock<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant the current task holds the lock.
        unsafe { bindings::release_sock(self.sk().as_raw()) };
    }
}

/// The message of a receive call: the buffer that the data goes to, and what is returned beside it.
///
/// # Invariants
///
/// Wraps a valid `struct msghdr` whose iterator is a destination.
#[repr(transparent)]
pub struct MsgHdr(Opaque<bindings::msghdr>);

impl MsgHdr {
    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a valid `struct msghdr` with a destination iterator, which nobody else
    /// uses during `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::msghdr) -> Pin<&'a mut Self> {
        // SAFETY: The caller promises a valid message and that it is ours; `Self` is a transparent
        // wrapper.
        let msg = unsafe { &mut *ptr.cast::<Self>() };
        // SAFETY: C code does not move the message, and nobody can through the pinned reference.
        unsafe { Pin::new_unchecked(msg) }
    }

    /// Returns the pointer to hand to C code.
    #[inline]
    pub fn as_raw(self: Pin<&mut Self>) -> *mut bindings::msghdr {
        self.0.get()
    }
}

/// The flags of a receive call, `MSG_*`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MsgFlags(c_int);

impl MsgFlags {
    /// Do not wait.
    pub const DONTWAIT: Self = Self(bindings::MSG_DONTWAIT as c_int);
    /// Read from the error queue.
    pub const ERRQUEUE: Self = Self(bindings::MSG_ERRQUEUE as c_int);
    /// Read out-of-band data.
    pub const OOB: Self = Self(bindings::MSG_OOB as c_int);
    /// Leave the data in the queue.
    pub const PEEK: Self = Self(bindings::MSG_PEEK as c_int);
    /// Wait until the buffer is full.
    pub const WAITALL: Self = Self(bindings::MSG_WAITALL as c_int);

    /// Takes the flags as C code passed them.
    #[inline]
    pub const fn from_raw(flags: c_int) -> Self {
        Self(flags)
    }

    /// Returns the flags to hand to C code.
    #[inline]
    pub const fn as_raw(self) -> c_int {
        self.0
    }

    /// Returns whether one or more of the flags in `other` are set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns these flags and those in `other`.
    #[inline]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns these flags except those in `other`.
    #[inline]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Takes what a C function returned apart: a number of bytes, or a negative errno.
///
/// # Errors
///
/// The error that a negative number stands for.
#[inline]
pub fn bytes_or_errno(ret: c_int) -> Result<usize> {
    usize::try_from(ret).map_err(|_| Error::from_errno(ret))
}
