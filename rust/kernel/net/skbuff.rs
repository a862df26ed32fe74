// SPDX-License-Identifier: GPL-2.0

//! Socket buffers: packets that somebody owns.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::{
    bindings,
    error::to_result,
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

    /// Makes sure that the head of the buffer is not shared, and has `bytes` bytes before the data.
    ///
    /// May sleep, to allocate when the head has to move.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] if that did not work. The buffer is then as before.
    ///
    /// C function: `pskb_expand_head()` in [`net/core/skbuff.c`](srctree/net/core/skbuff.c)
    pub fn ensure_headroom(&mut self, bytes: u32) -> Result {
        // SAFETY: The buffer is valid by the type invariant.
        let headroom = unsafe { bindings::skb_headroom(self.as_raw()) };
        let more = bytes.saturating_sub(headroom);
        // SAFETY: As above.
        if more == 0 && unsafe { bindings::skb_cloned(self.as_raw()) } == 0 {
            return Ok(());
        }
        let more = c_int::try_from(more)?;
        // SAFETY: The buffer is valid and ours alone by the type invariant.
        to_result(unsafe {
            bindings::pskb_expand_head(self.as_raw(), more, 0, bindings::GFP_KERNEL)
        })
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

/// A queue of socket buffers, which somebody else protects or which only one context knows.
///
/// Dropping it frees the buffers in it.
///
/// # Invariants
///
/// Wraps an initialised `struct sk_buff_head`; the queue holds the only reference to each buffer in
/// it.
#[pin_data(PinnedDrop)]
#[repr(transparent)]
pub struct SkBuffQueue {
    #[pin]
    head: Opaque<bindings::sk_buff_head>,
}

impl SkBuffQueue {
    /// Makes an empty queue. Its own spinlock is not initialised, and not used here.
    ///
    /// C function: `__skb_queue_head_init()` in
    /// [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: The queue is initialised, and has no buffers.
        pin_init!(Self {
            // SAFETY: `head` is valid for writes, and pinned.
            head <- Opaque::ffi_init(|head| unsafe { bindings::__skb_queue_head_init(head) }),
        })
    }

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
    pub fn pop_front(self: Pin<&mut Self>) -> Option<SkBuff> {
        // SAFETY: The queue is valid and ours by the type invariant and the exclusive reference.
        let skb = unsafe { bindings::__skb_dequeue(self.head.get()) };
        // INVARIANT: The queue held the only reference, and now the buffer is in no queue.
        NonNull::new(skb).map(SkBuff)
    }

    /// Takes the last buffer.
    ///
    /// C function: `__skb_dequeue_tail()` in
    /// [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    #[inline]
    pub fn pop_back(self: Pin<&mut Self>) -> Option<SkBuff> {
        // SAFETY: The queue is valid and ours by the type invariant and the exclusive reference.
        let skb = unsafe { bindings::__skb_dequeue_tail(self.head.get()) };
        // INVARIANT: The queue held the only reference, and now the buffer is in no queue.
        NonNull::new(skb).map(SkBuff)
    }

    /// Puts a buffer in front of all others.
    ///
    /// C function: `__skb_queue_head()` in
    /// [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    #[inline]
    pub fn push_front(self: Pin<&mut Self>, skb: SkBuff) {
        // SAFETY: The queue is valid and ours; the buffer is in no queue and its reference moves
        // into this one.
        unsafe { bindings::__skb_queue_head(self.head.get(), skb.into_raw()) };
    }

    /// Puts a buffer behind all others.
    ///
    /// C function: `__skb_queue_tail()` in
    /// [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    #[inline]
    pub fn push_back(self: Pin<&mut Self>, skb: SkBuff) {
        // SAFETY: The queue is valid and ours; the buffer is in no queue and its reference moves
        // into this one.
        unsafe { bindings::__skb_queue_tail(self.head.get(), skb.into_raw()) };
    }
}

#[pinned_drop]
impl PinnedDrop for SkBuffQueue {
    fn drop(mut self: Pin<&mut Self>) {
        while let Some(skb) = self.as_mut().pop_front() {
            drop(skb);
        }
    }
}
