// SPDX-License-Identifier: GPL-2.0

//! Sockets as system calls see them (`struct socket`), and the message of a receive call.
//!
//! C headers: [`include/linux/net.h`](srctree/include/linux/net.h),
//! [`include/linux/socket.h`](srctree/include/linux/socket.h)

use crate::{
    bindings,
    net::sock::Sock,
    prelude::*,
    types::Opaque, //
};

/// A socket of user space during a system call. Code that has a reference may sleep.
///
/// # Invariants
///
/// - Wraps a `struct socket` that has a `struct sock`. An open file keeps both alive and
///   attached to each other as long as a reference to this value lives.
/// - The current context is process context, may sleep, and holds neither the socket lock nor a
///   spinlock.
#[repr(transparent)]
pub struct Socket(Opaque<bindings::socket>);

impl Socket {
    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Context
    ///
    /// Process context. Does not sleep. Takes no lock.
    ///
    /// # Safety
    ///
    /// - `ptr` must point to a `struct socket` with a `struct sock`. Both must stay alive and
    ///   attached to each other during `'a`, as they do while a system call holds the file.
    /// - The caller must be in process context and able to sleep during `'a`. It must not hold the
    ///   socket lock or a spinlock.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::socket) -> &'a Self {
        // SAFETY: By the safety requirements the `struct socket` is live during `'a`. `Self` is a
        // transparent wrapper.
        unsafe { &*ptr.cast() }
    }

    /// Returns the pointer for C functions that take the socket.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::socket {
        self.0.get()
    }

    /// Returns the socket as the network layer sees it.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn sk(&self) -> &Sock {
        // SAFETY: By the type invariant the socket is live, and an open file keeps the field
        // constant.
        let sk = unsafe { (*self.as_raw()).sk };
        // SAFETY: By the type invariant the `struct sock` stays as long as the reference to `self`.
        unsafe { Sock::from_raw(sk) }
    }
}

/// The message that a receive call fills: data, address of the sender, and control messages.
///
/// # Invariants
///
/// Wraps a valid `struct msghdr` whose iterator is a destination.
#[repr(transparent)]
pub struct MsgHdr(Opaque<bindings::msghdr>);

impl MsgHdr {
    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a valid `struct msghdr` whose iterator is a destination. Nobody else may
    /// use it during `'a`.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::msghdr) -> Pin<&'a mut Self> {
        // SAFETY: By the safety requirements the message is valid and nobody else uses it. `Self`
        // is a transparent wrapper.
        let msg = unsafe { &mut *ptr.cast::<Self>() };
        // SAFETY: C code does not move the message, and Rust code cannot move it through a pinned
        // reference.
        unsafe { Pin::new_unchecked(msg) }
    }

    /// Returns the pointer for C functions that fill the message.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn as_raw(self: Pin<&mut Self>) -> *mut bindings::msghdr {
        self.0.get()
    }
}

/// Converts the return value of a C function: a number of bytes, or a negative errno.
///
/// # Context
///
/// Any context. Does not sleep. Takes no lock.
///
/// # Errors
///
/// The error that the errno stands for, if `ret` is negative.
#[inline]
pub fn bytes_or_errno(ret: c_int) -> Result<usize> {
    usize::try_from(ret).map_err(|_| Error::from_errno(ret))
}
