// SPDX-License-Identifier: GPL-2.0

//! Sockets as the network layer sees them (`struct sock`): state, callbacks and reference count.
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

/// The type of a socket: the second argument of `socket(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SockType {
    /// `SOCK_STREAM`: a stream of bytes without boundaries.
    Stream,
    /// `SOCK_SEQPACKET`: records in order, over a connection.
    SeqPacket,
    /// `SOCK_DGRAM`: datagrams, without a connection.
    Dgram,
    /// Any other type.
    Other,
}

/// A callback field of `struct sock`, such as `sk_write_space`.
type Callback = Option<unsafe extern "C" fn(*mut bindings::sock)>;

// Fields of `struct sock` are accessed here, so `bindgen` must lay out the struct as C does. A
// difference, for example in the size of the socket lock, changes the size of the struct.
const _: () = assert!(size_of::<bindings::sock>() == bindings::SIZEOF_SOCK);

/// A socket as the network layer sees it, which stays live while it is referred to.
///
/// # Invariants
///
/// Wraps an initialised `struct sock`. Somebody holds a counted reference to it as long as a Rust
/// reference to this value lives.
#[repr(transparent)]
pub struct Sock(Opaque<bindings::sock>);

// SAFETY: `struct sock` is shared between contexts by design. The methods read fields that are
// constant after creation, or that are read as one word.
unsafe impl Sync for Sock {}

// SAFETY: A `struct sock` does not belong to a thread: any thread may drop the last reference.
unsafe impl Send for Sock {}

// SAFETY: `sock_hold()` and `sock_put()` count the references that keep the socket live.
unsafe impl AlwaysRefCounted for Sock {
    #[inline]
    fn inc_ref(&self) {
        // SAFETY: By the type invariant somebody holds a reference, so that the count is not zero.
        unsafe { bindings::sock_hold(self.as_raw()) };
    }

    #[inline]
    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: By the safety requirements the caller gives up a reference. `Sock` is a
        // transparent wrapper.
        unsafe { bindings::sock_put(obj.as_ptr().cast()) };
    }
}

impl Sock {
    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// # Safety
    ///
    /// `ptr` must point to an initialised `struct sock`. Somebody must hold a counted reference to
    /// it during `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::sock) -> &'a Self {
        // SAFETY: By the safety requirements the `struct sock` is live during `'a`. `Self` is a
        // transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    /// Returns the pointer for C functions that take the socket.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::sock {
        self.0.get()
    }

    /// Returns the address family, `AF_*`.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn family(&self) -> u16 {
        // SAFETY: The socket is live by the type invariant.
        let family = unsafe { &raw mut (*self.as_raw()).__sk_common.skc_family };
        // SAFETY: As above. `IPV6_ADDRFORM` can change the field concurrently, and writes it as one
        // word.
        (unsafe { atomic_load(family.cast::<i16>(), Relaxed) }) as u16
    }

    /// Returns the type of the socket.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn sk_type(&self) -> SockType {
        // SAFETY: The socket is live by the type invariant. `sk_type` is set before anybody else
        // can reach the socket, and is constant from then on.
        match u32::from(unsafe { (*self.as_raw()).sk_type }) {
            bindings::sock_type_SOCK_STREAM => SockType::Stream,
            bindings::sock_type_SOCK_SEQPACKET => SockType::SeqPacket,
            bindings::sock_type_SOCK_DGRAM => SockType::Dgram,
            _ => SockType::Other,
        }
    }

    /// Calls `sk_state_change`, which wakes all processes that wait for the socket.
    ///
    /// Each of them checks again whether it must wait.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes and releases the lock of the wait queue.
    #[inline]
    pub fn wake_waiters(&self) {
        // SAFETY: The socket is live by the type invariant.
        let state_change = unsafe { &raw mut (*self.as_raw()).sk_state_change };
        // SAFETY: The field belongs to this socket. `sk_state_change` may be called in any context.
        unsafe { self.call(state_change) };
    }

    /// Calls `sk_write_space`, which wakes the senders of the socket because there is room to send.
    ///
    /// The senders are the processes that wait to send, and the backlog of a psock.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes and releases the lock of the wait
    /// queue. The caller may hold spinlocks.
    #[inline]
    pub fn write_space(&self) {
        // SAFETY: The socket is live by the type invariant.
        let write_space = unsafe { &raw mut (*self.as_raw()).sk_write_space };
        // SAFETY: The field belongs to this socket. `sk_write_space` may be called in softirqs and
        // with spinlocks held.
        unsafe { self.call(write_space) };
    }

    /// Calls a callback of the socket, if it is set.
    ///
    /// # Safety
    ///
    /// `callback` must point to a field of this socket. The current context must be one in which
    /// the callback may be called.
    unsafe fn call(&self, callback: *mut Callback) {
        // SAFETY: By the safety requirements the field belongs to this socket, which is live by the
        // type invariant. Code that replaces the callback writes the field as one word.
        let callback = unsafe { atomic_load(callback.cast::<*mut c_void>(), Relaxed) };
        // SAFETY: The field has the type `Callback`, whose `None` is the null pointer.
        let callback = unsafe { transmute::<*mut c_void, Callback>(callback) };
        if let Some(callback) = callback {
            // SAFETY: By the safety requirements the callback may be called here. It gets the
            // socket that it belongs to.
            unsafe { callback(self.as_raw()) };
        }
    }

    /// Returns `SO_RCVLOWAT`: the socket is readable if its receive queue has this number of bytes.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// C function: `sock_rcvlowat()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn rcvlowat(&self) -> u32 {
        // SAFETY: The socket is live by the type invariant. The function reads one word of it.
        let bytes = unsafe { bindings::sock_rcvlowat(self.as_raw(), 0, c_int::MAX) };
        u32::try_from(bytes).unwrap_or(1)
    }

    /// Returns whether the socket is connected. The answer can be out of date when it is used.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn is_established(&self) -> bool {
        // SAFETY: The socket is live by the type invariant.
        let state = unsafe { &raw mut (*self.as_raw()).__sk_common.skc_state };
        // SAFETY: As above. C code stores the byte in one access, even where it does not use
        // `WRITE_ONCE()`.
        let state = unsafe { atomic_load(state.cast::<i8>(), Relaxed) };
        i32::from(state) == bindings::TCP_ESTABLISHED as i32
    }

    /// Returns the flags `RCV_SHUTDOWN` and `SEND_SHUTDOWN`.
    #[inline]
    fn shutdown(&self) -> i32 {
        // SAFETY: The socket is live by the type invariant.
        let shutdown = unsafe { &raw mut (*self.as_raw()).sk_shutdown };
        // SAFETY: As above. C code stores the byte in one access, even where it does not use
        // `WRITE_ONCE()`.
        i32::from(unsafe { atomic_load(shutdown.cast::<i8>(), Relaxed) })
    }

    /// Returns whether the socket was shut down for sending. The answer can be out of date when it
    /// is used.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn is_send_shutdown(&self) -> bool {
        self.shutdown() & bindings::SEND_SHUTDOWN as i32 != 0
    }

    /// Returns whether the socket was shut down for receiving. The answer can be out of date when
    /// it is used.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn is_recv_shutdown(&self) -> bool {
        self.shutdown() & bindings::RCV_SHUTDOWN as i32 != 0
    }

    /// Returns the error that is pending on the socket, and leaves it pending.
    ///
    /// Returns [`None`] if there is no error.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn pending_error(&self) -> Option<Error> {
        // SAFETY: The socket is live by the type invariant. C code stores the word in one access,
        // even where it does not use `WRITE_ONCE()`.
        let err = unsafe { atomic_load(&raw mut (*self.as_raw()).sk_err, Relaxed) };
        (err != 0).then(|| Error::from_errno(err.saturating_neg()))
    }

    /// Returns the network namespace of the socket, for C functions that take it.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// C function: `sock_net()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    #[inline]
    pub fn net(&self) -> *mut bindings::net {
        // SAFETY: The socket is live by the type invariant.
        unsafe { bindings::sock_net(self.as_raw()) }
    }
}
