// SPDX-License-Identifier: GPL-2.0

//! What a receive call of user space brings along: its buffer and its flags.
//!
//! C header: [`include/linux/socket.h`](srctree/include/linux/socket.h)

use crate::{
    bindings,
    prelude::*,
    types::Opaque, //
};

/// The message of a `recvmsg` call: the buffer that the data goes to, and what is returned beside
/// it.
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
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::msghdr) -> &'a mut Self {
        // SAFETY: The caller promises a valid message and that it is ours; `Self` is a transparent
        // wrapper.
        unsafe { &mut *ptr.cast() }
    }

    /// Returns the pointer to hand to C code.
    #[inline]
    pub fn as_raw(&mut self) -> *mut bindings::msghdr {
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
