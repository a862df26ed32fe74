// SPDX-License-Identifier: GPL-2.0

//! The network layer's view of a socket.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use crate::{
    bindings,
    prelude::*,
    sync::{
        aref::AlwaysRefCounted,
        atomic::{
            atomic_load,
            Relaxed, //
        },
    },
    types::Opaque, //
};

use core::{
    mem::transmute,
    ptr::NonNull, //
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

/// What a socket calls when something happens to it, such as `sk_write_space`.
type Callback = Option<unsafe extern "C" fn(*mut bindings::sock)>;

// What follows the lock in the struct is where C has it.
const _: () = assert!(size_of::<bindings::sock>() == bindings::SIZEOF_SOCK);

/// A socket as the network layer sees it.
///
/// # Invariants
///
/// Wraps an initialised `struct sock` to which somebody holds a counted reference as long as this
/// one lives.
#[repr(transparent)]
pub struct Sock(Opaque<bindings::sock>);

// SAFETY: `struct sock` is shared between contexts by design: what is read through `&Sock` is
// constant after creation or read as a single word.
unsafe impl Sync for Sock {}

// SAFETY: A `struct sock` belongs to no context, and any of them may drop the last reference.
unsafe impl Send for Sock {}

// SAFETY: The functions count references to the socket.
unsafe impl AlwaysRefCounted for Sock {
    #[inline]
    fn inc_ref(&self) {
        // SAFETY: The socket is live by the type invariant, so somebody holds a reference.
        unsafe { bindings::sock_hold(self.as_raw()) };
    }

    #[inline]
    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller gives up a reference. `Sock` is a transparent wrapper.
        unsafe { bindings::sock_put(obj.as_ptr().cast()) };
    }
}

impl Sock {
    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Safety
    ///
    /// `ptr` must point to an initialised `struct sock` to which somebody holds a counted reference
    /// during `'a`.
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
        // SAFETY: The socket is live by the type invariant.
        let family = unsafe { &raw mut (*self.as_raw()).__sk_common.skc_family };
        // SAFETY: As above. `IPV6_ADDRFORM` changes the field, as one.
        (unsafe { atomic_load(family.cast::<i16>(), Relaxed) }) as u16
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

    /// Wakes all who wait for something to happen to the socket, so that they look again.
    ///
    /// Does not sleep.
    #[inline]
    pub fn wake_waiters(&self) {
        // SAFETY: The socket is live by the type invariant.
        let state_change = unsafe { &raw mut (*self.as_raw()).sk_state_change };
        // SAFETY: It is that of this socket, and may be called in any context.
        unsafe { self.call(state_change) };
    }

    /// Tells who sends that there is space again: who waits for it, and the backlog of a psock.
    ///
    /// Does not sleep; not in hard interrupts, perhaps with spinlocks held.
    #[inline]
    pub fn write_space(&self) {
        // SAFETY: The socket is live by the type invariant.
        let write_space = unsafe { &raw mut (*self.as_raw()).sk_write_space };
        // SAFETY: It is that of this socket, and may be called in softirqs and with spinlocks held.
        unsafe { self.call(write_space) };
    }

    /// Calls a callback of the socket, if there is one.
    ///
    /// # Safety
    ///
    /// `callback` points to a field of this socket, and may be called in this context.
    unsafe fn call(&self, callback: *mut Callback) {
        // SAFETY: By the safety requirements. Who puts another callback there writes a pointer.
        let callback = unsafe { atomic_load(callback.cast::<*mut c_void>(), Relaxed) };
        // SAFETY: The field has this type; null is none.
        let callback = unsafe { transmute::<*mut c_void, Callback>(callback) };
        if let Some(callback) = callback {
            // SAFETY: By the safety requirements.
            unsafe { callback(self.as_raw()) };
        }
    }

    /// Returns how many bytes must be there for the socket to be readable, `SO_RCVLOWAT`.
    ///
    /// C function: `sock_rcvlowat()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn rcvlowat(&self) -> u32 {
        // SAFETY: The socket is live by the type invariant; the function reads one word of it.
        let bytes = unsafe { bindings::sock_rcvlowat(self.as_raw(), 0, c_int::MAX) };
        u32::try_from(bytes).unwrap_or(1)
    }

    /// Returns whether the socket is connected at this moment. Needs no lock.
    #[inline]
    pub fn is_established(&self) -> bool {
        // SAFETY: The socket is live by the type invariant.
        let state = unsafe { &raw mut (*self.as_raw()).__sk_common.skc_state };
        // SAFETY: As above. C stores the byte as one, marked or not; an old value is good enough
        // for who holds no lock.
        let state = unsafe { atomic_load(state.cast::<i8>(), Relaxed) };
        i32::from(state) == bindings::TCP_ESTABLISHED as i32
    }

    /// `RCV_SHUTDOWN` and `SEND_SHUTDOWN`.
    #[inline]
    fn shutdown(&self) -> i32 {
        // SAFETY: The socket is live by the type invariant.
        let shutdown = unsafe { &raw mut (*self.as_raw()).sk_shutdown };
        // SAFETY: As above. C stores the byte as one, marked or not; an old value is good enough
        // for who holds no lock.
        i32::from(unsafe { atomic_load(shutdown.cast::<i8>(), Relaxed) })
    }

    /// Returns whether the socket was shut down for sending. Needs no lock.
    #[inline]
    pub fn is_send_shutdown(&self) -> bool {
        self.shutdown() & bindings::SEND_SHUTDOWN as i32 != 0
    }

    /// Returns whether the socket was shut down for receiving. Needs no lock.
    #[inline]
    pub fn is_recv_shutdown(&self) -> bool {
        self.shutdown() & bindings::RCV_SHUTDOWN as i32 != 0
    }

    /// Returns the error that is pending on the socket, and leaves it there. Needs no lock.
    #[inline]
    pub fn pending_error(&self) -> Option<Error> {
        // SAFETY: The socket is live by the type invariant. C stores the word as one, marked or
        // not.
        let err = unsafe { atomic_load(&raw mut (*self.as_raw()).sk_err, Relaxed) };
        (err != 0).then(|| Error::from_errno(err.saturating_neg()))
    }

    /// Returns the network namespace of the socket, to hand to C code.
    ///
    /// C function: `sock_net()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn net(&self) -> *mut bindings::net {
        // SAFETY: The socket is live by the type invariant, and keeps its namespace.
        unsafe { bindings::sock_net(self.as_raw()) }
    }
}
