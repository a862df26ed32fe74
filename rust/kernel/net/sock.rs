// SPDX-License-Identifier: GPL-2.0

//! The network layer's view of a socket, and its lock.
//!
//! The socket lock is taken in process context, may sleep, and is what a protocol holds while it
//! looks at connection state. Whoever waits for data must give it up first: the receive path of
//! every peer takes it too. Here that rule is a type. [`SockLock`] proves that the lock is held,
//! and [`SockLock::wait`] consumes it and returns a new one, so that no state read before the
//! sleep can be mistaken for state after it.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use crate::{
    bindings,
    error::code::{
        EINTR,
        ERESTARTSYS, //
    },
    error::Error,
    prelude::*,
    task::MAX_SCHEDULE_TIMEOUT,
    types::{
        NotThreadSafe,
        Opaque, //
    },
};

use core::ptr::addr_of;

/// The bit by which a socket knows that a reader waits for data.
const WAITDATA: c_int = bindings::socket_flags_SOCKWQ_ASYNC_WAITDATA as c_int;

/// The kind of a socket, the second argument of `socket(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SockType {
    /// `SOCK_STREAM`: bytes without boundaries.
    Stream,
    /// `SOCK_SEQPACKET`: records, connected and in order.
    SeqPacket,
    /// `SOCK_DGRAM`: records, not connected.
    Dgram,
    /// Any other kind.
    Other,
}

/// A socket as the network layer sees it.
///
/// # Invariants
///
/// Wraps an initialised `struct sock` that lives at least as long as the reference.
#[repr(transparent)]
pub struct Sock(Opaque<bindings::sock>);

// SAFETY: `struct sock` is shared between contexts by design: what is read through `&Sock` is
// either constant after creation, read as a single word, or behind the socket lock.
unsafe impl Sync for Sock {}

impl Sock {
    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Safety
    ///
    /// `ptr` must point to an initialised `struct sock` that is not freed during `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::sock) -> &'a Self {
        // SAFETY: The caller promises a live `struct sock`; `Self` is a transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    /// Returns the pointer to hand to C code.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::sock {
        self.0.get()
    }

    /// Returns the address family, `AF_*`. Needs no lock: it never changes.
    #[inline]
    pub fn family(&self) -> u16 {
        // SAFETY: The socket is live by the type invariant, and the family is set before the
        // socket is reachable and constant from then on.
        unsafe { (*self.as_raw()).__sk_common.skc_family }
    }

    /// Returns what kind of socket this is. Needs no lock: it never changes.
    #[inline]
    pub fn kind(&self) -> SockType {
        // SAFETY: The socket is live by the type invariant, and `sk_type` is set before the socket
        // is reachable and constant from then on.
        match u32::from(unsafe { (*self.as_raw()).sk_type }) {
            bindings::sock_type_SOCK_STREAM => SockType::Stream,
            bindings::sock_type_SOCK_SEQPACKET => SockType::SeqPacket,
            bindings::sock_type_SOCK_DGRAM => SockType::Dgram,
            _ => SockType::Other,
        }
    }

    /// Returns the queue on which the tasks wait that use this socket.
    ///
    /// C function: `sk_sleep()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    fn wait_queue(&self) -> *mut bindings::wait_queue_head_t {
        // SAFETY: The socket is live by the type invariant. A socket in a `recvmsg` call belongs to
        // an open file, so `sk_wq` is set and stays.
        unsafe { bindings::sk_sleep(self.as_raw()) }
    }

    /// Takes the socket lock. May sleep: process context only, no spinlock held.
    ///
    /// C function: `lock_sock()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn lock(&self) -> SockLock<'_> {
        // SAFETY: The socket is live by the type invariant. The caller is in process context, as
        // documented.
        unsafe { bindings::lock_sock(self.as_raw()) };
        SockLock {
            sk: self,
            _not_send: NotThreadSafe,
        }
    }

    /// Returns how long a receive may wait, and remembers how long the caller asked for.
    ///
    /// `nonblock` is whether the caller said `MSG_DONTWAIT`. Needs no lock.
    ///
    /// C function: `sock_rcvtimeo()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn receive_timeout(&self, nonblock: bool) -> Timeout {
        // SAFETY: The socket is live by the type invariant; the function reads one word of it.
        Timeout(unsafe { bindings::sock_rcvtimeo(self.as_raw(), nonblock) })
    }

    /// Returns the number of bytes a receive of `len` bytes must gather before it returns.
    ///
    /// That is `len` with `waitall` (`MSG_WAITALL`), else `SO_RCVLOWAT` or `len`, whichever is
    /// smaller; never 0. Needs no lock.
    ///
    /// C function: `sock_rcvlowat()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn receive_target(&self, waitall: bool, len: usize) -> usize {
        let len = c_int::try_from(len).unwrap_or(c_int::MAX);
        // SAFETY: The socket is live by the type invariant; the function reads one word of it.
        let target = unsafe { bindings::sock_rcvlowat(self.as_raw(), waitall.into(), len) };
        usize::try_from(target).unwrap_or(1)
    }
}

/// What is left of the time that a blocking call may wait, in jiffies.
///
/// It counts down over any number of sleeps, so that a wake-up for nothing does not start it anew.
#[derive(Clone, Copy)]
pub struct Timeout(c_long);

impl Timeout {
    /// Returns whether no time is left.
    #[inline]
    pub fn expired(&self) -> bool {
        self.0 <= 0
    }

    /// Returns the error for a wait that a signal ended: the call is restarted if it had no time
    /// limit ([`ERESTARTSYS`]), and fails with [`EINTR`] if it had one.
    ///
    /// C function: `sock_intr_errno()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn interrupted(&self) -> Error {
        if self.0 == MAX_SCHEDULE_TIMEOUT {
            ERESTARTSYS
        } else {
            EINTR
        }
    }
}

/// Proof that the current task holds the lock of a socket; releases it when dropped.
///
/// Dropping may run the backlog of the socket and thus send packets and wake tasks. No spinlock
/// may be held then.
///
/// # Invariants
///
/// The current task holds the socket lock of `sk`.
#[must_use = "the socket is unlocked at once when the guard is not kept"]
pub struct SockLock<'a> {
    sk: &'a Sock,
    _not_send: NotThreadSafe,
}

impl<'a> SockLock<'a> {
    /// Returns the socket that is locked.
    #[inline]
    pub fn sock(&self) -> &'a Sock {
        self.sk
    }

    /// Returns whether the local side shut down receiving (`RCV_SHUTDOWN`).
    #[inline]
    pub fn receive_shutdown(&self) -> bool {
        // SAFETY: The socket is live by the type invariant of `Sock`; volatile because some
        // protocols write the field without the lock.
        let shutdown = unsafe { addr_of!((*self.sk.as_raw()).sk_shutdown).read_volatile() };
        u32::from(shutdown) & bindings::RCV_SHUTDOWN != 0
    }

    /// Returns whether an error is pending on the socket (`sk_err`), without clearing it.
    #[inline]
    pub fn has_error(&self) -> bool {
        // SAFETY: The socket is live by the type invariant of `Sock`; volatile because an error is
        // reported without the lock.
        unsafe { addr_of!((*self.sk.as_raw()).sk_err).read_volatile() != 0 }
    }

    /// Returns whether the socket is in the state `TCP_ESTABLISHED`, which every connected socket
    /// has, whatever its protocol.
    #[inline]
    pub fn is_established(&self) -> bool {
        // SAFETY: The socket is live by the type invariant of `Sock`; volatile because the state
        // is read without the lock in C, so it is written with `WRITE_ONCE()`.
        let state = unsafe { addr_of!((*self.sk.as_raw()).__sk_common.skc_state).read_volatile() };
        u32::from(state) == bindings::TCP_ESTABLISHED
    }

    /// Gives the lock up, sleeps until `waiter` is woken, a signal comes or `timeout` has passed,
    /// and takes the lock again. `timeout` is reduced by the time slept.
    ///
    /// A wake-up that comes between the registration of `waiter` and the sleep is not lost: the
    /// call then returns at once. Everything that was learned about the socket before the call
    /// has to be looked up anew.
    ///
    /// Sleeps: process context only, no spinlock held.
    ///
    /// C function: `wait_woken()` in [`kernel/sched/wait.c`](srctree/kernel/sched/wait.c)
    pub fn wait(self, waiter: Pin<&mut Waiter<'a>>, timeout: &mut Timeout) -> Self {
        let sk = self.sk;
        drop(self);
        timeout.0 = waiter.sleep(timeout.0);
        sk.lock()
    }
}

impl Drop for SockLock<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant the current task holds the lock.
        unsafe { bindings::release_sock(self.sk.as_raw()) };
    }
}

/// An entry on the wait queue of a socket, for one blocking receive.
///
/// It has to be made before the caller looks for data, so that data which comes after the look
/// wakes the caller. While it exists the socket is marked as having a reader that waits.
///
/// # Invariants
///
/// `entry` is on the wait queue of `sk`, for the current task.
#[pin_data(PinnedDrop)]
pub struct Waiter<'a> {
    #[pin]
    entry: Opaque<bindings::wait_queue_entry>,
    sk: &'a Sock,
    _not_send: NotThreadSafe,
}

impl<'a> Waiter<'a> {
    /// Puts the current task on the wait queue of the socket that `lock` locks.
    ///
    /// C function: `add_wait_queue()` in [`kernel/sched/wait.c`](srctree/kernel/sched/wait.c)
    pub fn new(lock: &SockLock<'a>) -> impl PinInit<Self> {
        let sk = lock.sock();
        pin_init!(Self {
            // INVARIANT: The entry is put on the queue here, and only taken off in `drop`.
            entry <- Opaque::ffi_init(move |slot| {
                // SAFETY: `slot` is valid for writes.
                unsafe { bindings::init_wait(slot) };
                // SAFETY: `slot` was initialised just now, and nobody else knows it yet.
                unsafe { (*slot).func = Some(bindings::woken_wake_function) };
                // SAFETY: `slot` is an initialised entry that stays where it is until `drop` takes
                // it off the queue; the queue belongs to `sk`, which is live for `'a`.
                unsafe { bindings::add_wait_queue(sk.wait_queue(), slot) };
                // SAFETY: `sk` is live and has a wait queue, see `wait_queue()`.
                unsafe { bindings::sk_set_bit(WAITDATA, sk.as_raw()) };
            }),
            sk,
            _not_send: NotThreadSafe,
        })
    }

    /// Sleeps for at most `timeout` jiffies and returns what is left of them.
    fn sleep(self: Pin<&mut Self>, timeout: c_long) -> c_long {
        // SAFETY: By the type invariant the entry is on a wait queue for the current task and
        // wakes by `woken_wake_function()`, as `wait_woken()` asks for. The caller holds no lock.
        unsafe { bindings::wait_woken(self.entry.get(), bindings::TASK_INTERRUPTIBLE, timeout) }
    }
}

#[pinned_drop]
impl PinnedDrop for Waiter<'_> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `sk` is live and has a wait queue, see `wait_queue()`.
        unsafe { bindings::sk_clear_bit(WAITDATA, self.sk.as_raw()) };
        // SAFETY: By the type invariant the entry is on this queue. Afterwards no wake-up can
        // reach it, so that its memory may be reused.
        unsafe { bindings::remove_wait_queue(self.sk.wait_queue(), self.entry.get()) };
    }
}
