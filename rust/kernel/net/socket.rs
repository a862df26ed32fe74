// SPDX-License-Identifier: GPL-2.0

//! A socket in a call of user space, and the message of a receive.
//!
//! C headers: [`include/linux/net.h`](srctree/include/linux/net.h),
//! [`include/linux/socket.h`](srctree/include/linux/socket.h)

use crate::{
    bindings,
    net::sock::Sock,
    prelude::*,
    types::Opaque, //
};

/// A socket of user space, in a call on an open file.
///
/// # Invariants
///
/// Wraps a `struct socket` that is grafted to a `struct sock`, and stays so at least as long as the
/// reference: an open file keeps it. The current context is a process that may sleep, and holds
/// neither the socket lock nor a spinlock.
#[repr(transparent)]
pub struct Socket(Opaque<bindings::socket>);

impl Socket {
    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Safety
    ///
    /// `ptr` must point to a `struct socket` with a `struct sock`, and both must stay together
    /// during `'a`, as they do while a system call holds the file. The caller is in process
    /// context, holds no lock of the socket, and may sleep during `'a`.
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
        // SAFETY: The socket is live by the type invariant, and the field does not change.
        let sk = unsafe { (*self.as_raw()).sk };
        // SAFETY: By the type invariant there is a `struct sock`, which stays.
        unsafe { Sock::from_raw(sk) }
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

/// Takes what a C function returned apart: a number of bytes, or a negative errno.
///
/// # Errors
///
/// The error that a negative number stands for.
#[inline]
pub fn bytes_or_errno(ret: c_int) -> Result<usize> {
    usize::try_from(ret).map_err(|_| Error::from_errno(ret))
}
