// SPDX-License-Identifier: GPL-2.0

//! Socket buffers: packets that somebody owns.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::{
    bindings,
    net::sock::Sock,
    prelude::*,
    types::Opaque, //
};

use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
};

/// A socket buffer that this code owns, in no queue.
///
/// Dropping it frees it and counts it as dropped; [`SkBuff::into_raw`] gives it away. It cannot be
/// used after either, and it cannot be forgotten by mistake.
///
/// # Invariants
///
/// The pointer is to a valid `struct sk_buff` that is in no queue and not shared: this value holds
/// the only reference.
pub struct SkBuff(NonNull<bindings::sk_buff>);

impl SkBuff {
    /// Takes ownership of a socket buffer.
    ///
    /// # Safety
    ///
    /// `ptr` must be valid and in no queue, and the caller gives up the only reference to it.
    #[inline]
    pub unsafe fn from_raw(ptr: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By the safety requirements.
        Self(ptr)
    }

    /// Gives ownership away, to C code that consumes the buffer.
    #[inline]
    pub fn into_raw(self) -> *mut bindings::sk_buff {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// Returns a pointer for calls that borrow the buffer.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::sk_buff {
        self.0.as_ptr()
    }

    /// Returns the number of bytes in the buffer: the linear part and the fragments.
    #[inline]
    pub fn len(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { (*self.as_raw()).len }
    }

    /// Returns whether the buffer has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes `bytes` bytes off the front.
    ///
    /// Does not sleep; may allocate atomically, to move fragments into the linear part.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] if that did not work, [`EINVAL`] if the buffer is shorter than that. The buffer
    /// is then as before.
    ///
    /// C function: `pskb_pull()` in [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    pub fn pull(&mut self, bytes: u32) -> Result {
        if bytes > self.len() {
            return Err(EINVAL);
        }
        // SAFETY: The buffer is valid and ours alone by the type invariant.
        let data = unsafe { bindings::pskb_pull(self.as_raw(), bytes) };
        if data.is_null() {
            return Err(ENOMEM);
        }
        Ok(())
    }

    /// Makes `sk` the owner of the buffer if it has none, so that `skb->sk` is set.
    ///
    /// The buffer then holds a reference to `sk` until it is freed or gets another owner. No memory
    /// is charged to `sk`. Does not sleep.
    ///
    /// # Errors
    ///
    /// [`ENOENT`] if `sk` is being freed.
    ///
    /// C function: `skb_set_owner_sk_safe()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    pub fn set_owner_sk_safe(&mut self, sk: &Sock) -> Result {
        // SAFETY: The buffer is valid and ours alone by the type invariant.
        if !unsafe { (*self.as_raw()).sk }.is_null() {
            return Ok(());
        }
        // SAFETY: The buffer is valid and ours alone, `sk` is live.
        if unsafe { bindings::skb_set_owner_sk_safe(self.as_raw(), sk.as_raw()) } {
            Ok(())
        } else {
            Err(ENOENT)
        }
    }
}

impl Drop for SkBuff {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant the buffer is valid and ours to free.
        unsafe { bindings::kfree_skb(self.as_raw()) };
    }
}

/// A queue of socket buffers that belongs to C code and is protected by a lock of its owner.
///
/// # Invariants
///
/// Wraps an initialised `struct sk_buff_head`; the queue holds the only reference to each buffer in
/// it.
#[repr(transparent)]
pub struct SkBuffQueue(Opaque<bindings::sk_buff_head>);

impl SkBuffQueue {
    /// Makes a reference from a pointer.
    ///
    /// # Safety
    ///
    /// `ptr` must point to an initialised queue of buffers that are not shared, and nobody else may
    /// use the queue during `'a`: the caller holds the lock that protects it.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::sk_buff_head) -> Pin<&'a mut Self> {
        // SAFETY: The caller promises a valid queue and that it is ours; `Self` is a transparent
        // wrapper.
        let queue = unsafe { &mut *ptr.cast::<Self>() };
        // SAFETY: C code does not move the queue, and nobody can through the pinned reference.
        unsafe { Pin::new_unchecked(queue) }
    }

    /// Takes the first buffer.
    ///
    /// C function: `__skb_dequeue()` in [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    #[inline]
    pub fn pop(self: Pin<&mut Self>) -> Option<SkBuff> {
        // SAFETY: The queue is valid and ours by the type invariant and the exclusive reference.
        let skb = unsafe { bindings::__skb_dequeue(self.0.get()) };
        // INVARIANT: The queue held the only reference, and now the buffer is in no queue.
        NonNull::new(skb).map(SkBuff)
    }

    /// Puts a buffer back in front of all others.
    ///
    /// C function: `__skb_queue_head()` in
    /// [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    #[inline]
    pub fn push_front(self: Pin<&mut Self>, skb: SkBuff) {
        // SAFETY: The queue is valid and ours; the buffer is in no queue and its reference moves
        // into this one.
        unsafe { bindings::__skb_queue_head(self.0.get(), skb.into_raw()) };
    }
}
