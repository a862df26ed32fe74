// SPDX-License-Identifier: GPL-2.0

//! The network layer's view of a socket.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use crate::{
    bindings,
    error::{
        code::{
            EINTR,
            ERESTARTSYS, //
        },
        Error, //
    },
    prelude::*,
    task::MAX_SCHEDULE_TIMEOUT,
    types::Opaque, //
};

/// The type of a socket, the second argument of `socket(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SockType {
    /// `SOCK_STREAM`: bytes without boundaries.
    Stream,
    /// `SOCK_SEQPACKET`: records, connected and in order.
    SeqPacket,
    /// `SOCK_DGRAM`: records, not connected.
    Dgram,
    /// Any other type.
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
// constant after creation or read as a single word.
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

    /// Returns the address family, `AF_*`.
    #[inline]
    pub fn family(&self) -> u16 {
        // SAFETY: The socket is live by the type invariant, and the family is set before the
        // socket is reachable and constant from then on.
        unsafe { (*self.as_raw()).__sk_common.skc_family }
    }

    /// Returns the type of the socket.
    #[inline]
    pub fn sk_type(&self) -> SockType {
        // SAFETY: The socket is live by the type invariant, and `sk_type` is set before the socket
        // is reachable and constant from then on.
        match u32::from(unsafe { (*self.as_raw()).sk_type }) {
            bindings::sock_type_SOCK_STREAM => SockType::Stream,
            bindings::sock_type_SOCK_SEQPACKET => SockType::SeqPacket,
            bindings::sock_type_SOCK_DGRAM => SockType::Dgram,
            _ => SockType::Other,
        }
    }

    /// Returns whether the local side shut down receiving, `RCV_SHUTDOWN`.
    #[inline]
    pub fn receive_shutdown(&self) -> bool {
        // SAFETY: The socket is live by the type invariant. Volatile, as other contexts write the
        // field without the socket lock.
        let shutdown = unsafe { (&raw const (*self.as_raw()).sk_shutdown).read_volatile() };
        u32::from(shutdown) & bindings::RCV_SHUTDOWN != 0
    }

    /// Returns whether an error is pending on the socket (`sk_err`), without clearing it.
    #[inline]
    pub fn has_error(&self) -> bool {
        // SAFETY: The socket is live by the type invariant. Volatile, as an error is reported
        // without the socket lock.
        unsafe { (&raw const (*self.as_raw()).sk_err).read_volatile() != 0 }
    }

    /// Returns whether the state is `TCP_ESTABLISHED`, that of a connected socket of any protocol.
    #[inline]
    pub fn is_established(&self) -> bool {
        // SAFETY: The socket is live by the type invariant. Volatile, as a transport that goes
        // away writes the state without the socket lock.
        let state = unsafe { (&raw const (*self.as_raw()).__sk_common.skc_state).read_volatile() };
        u32::from(state) == bindings::TCP_ESTABLISHED
    }

    /// Wakes the tasks that wait for data on the socket, whatever its callbacks are.
    ///
    /// Does not sleep.
    ///
    /// C function: `sock_def_readable()` in [`net/core/sock.c`](srctree/net/core/sock.c)
    // Not inlined, as the C function is not exported to modules.
    #[inline(never)]
    pub fn wake_readers(&self) {
        // SAFETY: The socket is live by the type invariant; the function takes the RCU read lock
        // that it needs.
        unsafe { bindings::sock_def_readable(self.as_raw()) };
    }

    /// Returns how long a receive may wait; not at all with `nonblock`.
    ///
    /// C function: `sock_rcvtimeo()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn rcvtimeo(&self, nonblock: bool) -> Timeout {
        // SAFETY: The socket is live by the type invariant; the function reads one word of it.
        Timeout(unsafe { bindings::sock_rcvtimeo(self.as_raw(), nonblock) })
    }

    /// Returns the number of bytes that a receive of `len` bytes must gather before it returns.
    ///
    /// That is `len` with `waitall`, else `SO_RCVLOWAT` or `len`, whichever is smaller; never 0.
    ///
    /// C function: `sock_rcvlowat()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn rcvlowat(&self, waitall: bool, len: usize) -> usize {
        let len = c_int::try_from(len).unwrap_or(c_int::MAX);
        // SAFETY: The socket is live by the type invariant; the function reads one word of it.
        let bytes = unsafe { bindings::sock_rcvlowat(self.as_raw(), waitall.into(), len) };
        usize::try_from(bytes).unwrap_or(1)
    }
}

/// What is left of the time that a blocking call may wait, in jiffies.
#[derive(Clone, Copy)]
pub struct Timeout(c_long);

impl Timeout {
    /// Takes what is left, as C code returned it.
    #[inline]
    pub(crate) fn set(&mut self, jiffies: c_long) {
        self.0 = jiffies;
    }

    /// Returns what is left, to hand to C code.
    #[inline]
    pub(crate) fn get(&self) -> c_long {
        self.0
    }

    /// Returns whether no time is left.
    #[inline]
    pub fn expired(&self) -> bool {
        self.0 <= 0
    }

    /// Returns the error for a wait that a signal ended.
    ///
    /// It is [`ERESTARTSYS`] if there is no time limit, so that the call is restarted, and
    /// [`EINTR`] if there is one.
    ///
    /// C function: `sock_intr_errno()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn intr_errno(&self) -> Error {
        if self.0 == MAX_SCHEDULE_TIMEOUT {
            ERESTARTSYS
        } else {
            EINTR
        }
    }
}
