// SPDX-License-Identifier: GPL-2.0

//! Allocates, measures, shortens and frees a socket buffer that Rust code owns.

use crate::{
    alloc::flags::{
        __GFP_NOWARN,
        GFP_ATOMIC, //
    },
    bindings,
    error::to_result,
    prelude::*, //
};

use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
};

/// A socket buffer to which only this value has a reference, and which is in no queue.
///
/// Dropping the value frees the buffer and counts the packet as dropped. [`SkBuff::into_raw`] gives
/// the buffer to C code. After either, the compiler refuses each use of the value.
///
/// # Context
///
/// Dropping it: any context but hard interrupt. Does not sleep. Calls the destructor of the buffer.
///
/// # Invariants
///
/// The pointer is to a valid `struct sk_buff` that is in no queue and not shared: this value holds
/// the only reference.
pub struct SkBuff(NonNull<bindings::sk_buff>);

impl SkBuff {
    /// Allocates an empty buffer with `headroom` free bytes before its data.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// - [`ENOMEM`] if the allocation fails.
    /// - [`EINVAL`] if `headroom` is more than an `int` can count.
    ///
    /// C function: `alloc_skb_with_frags()` in [`net/core/skbuff.c`](srctree/net/core/skbuff.c)
    pub fn new(headroom: u32) -> Result<Self> {
        Self::alloc(headroom, 0, 0)
    }

    /// Takes ownership of a socket buffer from C code.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// # Safety
    ///
    /// `ptr` must be valid and in no queue. The caller gives up the only reference to it.
    #[inline]
    pub unsafe fn from_raw(ptr: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By the safety requirements the buffer is valid, in no queue, and the caller
        // passes the only reference.
        Self(ptr)
    }

    /// Gives ownership to C code that consumes the buffer.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn into_raw(self) -> *mut bindings::sk_buff {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// Returns the pointer for C functions that borrow the buffer.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::sk_buff {
        self.0.as_ptr()
    }

    /// Returns the length of the data in bytes: the linear part and the fragments.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn len(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { (*self.as_raw()).len }
    }

    /// Returns whether the buffer has no data.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of data bytes that are in fragments.
    pub(super) fn data_len(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { (*self.as_raw()).data_len }
    }

    /// Returns the number of bytes of memory that the buffer occupies.
    pub(super) fn truesize(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { (*self.as_raw()).truesize }
    }

    /// Returns the pointer to the part of the buffer that it shares with its clones.
    pub(super) fn shinfo(&self) -> *mut bindings::skb_shared_info {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { bindings::skb_shinfo(self.as_raw()) }
    }

    /// Removes `bytes` bytes from the front of the data.
    ///
    /// May move bytes from fragments to the linear part, and then allocates memory without
    /// sleeping.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// - [`ENOMEM`] if the allocation fails.
    /// - [`EINVAL`] if the buffer has fewer than `bytes` bytes.
    ///
    /// After an error the data is unchanged.
    ///
    /// C function: `pskb_pull()` in [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    pub fn pull(&mut self, bytes: u32) -> Result {
        if bytes > self.len() {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the buffer is valid and this value has the only reference.
        let data = unsafe { bindings::pskb_pull(self.as_raw(), bytes) };
        if data.is_null() {
            return Err(ENOMEM);
        }
        Ok(())
    }

    /// Makes sure that the linear part is not shared with a clone and has at least `bytes` free
    /// bytes before the data.
    ///
    /// # Context
    ///
    /// Process context. May sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// - [`ENOMEM`] if the allocation fails.
    /// - [`EINVAL`] if `bytes` is more than an `int` can count.
    ///
    /// After an error the buffer is unchanged.
    ///
    /// C function: `pskb_expand_head()` in [`net/core/skbuff.c`](srctree/net/core/skbuff.c)
    pub fn ensure_headroom(&mut self, bytes: u32) -> Result {
        // SAFETY: The buffer is valid by the type invariant.
        let headroom = unsafe { bindings::skb_headroom(self.as_raw()) };
        let more = bytes.saturating_sub(headroom);
        // SAFETY: The buffer is valid by the type invariant.
        if more == 0 && unsafe { bindings::skb_cloned(self.as_raw()) } == 0 {
            return Ok(());
        }
        let more = c_int::try_from(more)?;
        // SAFETY: By the type invariant the buffer is valid and this value has the only reference.
        to_result(unsafe {
            bindings::pskb_expand_head(self.as_raw(), more, 0, bindings::GFP_KERNEL)
        })
    }

    /// Allocates a buffer with `paged` bytes of data in page fragments.
    ///
    /// The linear part has no data. It has `headroom` free bytes before the data, and room for
    /// `linear` bytes of data.
    ///
    /// The buffer's length is `paged`. The content of the fragments is not initialised.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// - [`ENOMEM`] if the allocation fails, or if `paged` is more than fragments can hold.
    /// - [`EINVAL`] if `headroom + linear` is more than an `int` can count.
    pub(super) fn alloc(headroom: u32, linear: u32, paged: u32) -> Result<Self> {
        let head = headroom.checked_add(linear).ok_or(EINVAL)?;
        // C functions take `headroom` and `linear` as `int`.
        c_int::try_from(head)?;
        let mut err = 0;
        // SAFETY: `err` is valid for a write, and the flags do not let the function sleep.
        let skb = unsafe {
            bindings::alloc_skb_with_frags(
                head as c_ulong,
                paged as c_ulong,
                bindings::PAGE_ALLOC_COSTLY_ORDER as c_int,
                &mut err,
                atomic_flags(),
            )
        };
        // INVARIANT: The buffer is new: it is valid, in no queue, and nobody else refers to it.
        let skb = Self(NonNull::new(skb).ok_or(ENOMEM)?);
        // SAFETY: The linear part is empty, and has room for `headroom` bytes.
        unsafe { bindings::skb_reserve(skb.as_raw(), headroom as c_int) };
        // SAFETY: The buffer is valid and its fragments hold `paged` bytes. The allocation has
        // counted them in `truesize`.
        unsafe { (*skb.as_raw()).len = paged };
        // SAFETY: As above.
        unsafe { (*skb.as_raw()).data_len = paged };
        Ok(skb)
    }
}

impl Drop for SkBuff {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant the buffer is valid and this value has the only reference.
        // The value is not used afterwards.
        unsafe { bindings::kfree_skb(self.as_raw()) };
    }
}

/// Returns the flags for allocations that must not sleep, and whose failure is handled.
pub(super) fn atomic_flags() -> bindings::gfp_t {
    (GFP_ATOMIC | __GFP_NOWARN).as_raw()
}
