// SPDX-License-Identifier: GPL-2.0

//! A queue of socket buffers, which either C code protects with a lock or Rust code owns.

use super::SkBuff;

use crate::{
    bindings,
    prelude::*,
    types::Opaque, //
};

use core::ptr::NonNull;

/// A queue of socket buffers, without a lock of its own.
///
/// A mutable reference to the queue exists only while the caller owns the queue, or holds the lock
/// that protects the queue. Dropping the queue frees its buffers.
///
/// # Context
///
/// Dropping it: any context but hard interrupt. Does not sleep. Calls the destructors of the
/// buffers.
///
/// # Invariants
///
/// Wraps an initialised `struct sk_buff_head`. The queue holds the only reference to each buffer in
/// it.
#[pin_data(PinnedDrop)]
#[repr(transparent)]
pub struct SkBuffQueue {
    #[pin]
    head: Opaque<bindings::sk_buff_head>,
}

impl SkBuffQueue {
    /// Makes an empty queue. The queue's own spinlock is neither initialised nor used.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// C function: `__skb_queue_head_init()` in
    /// [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    pub fn new() -> impl PinInit<Self> {
        // INVARIANT: `head` is initialised, and has no buffers.
        pin_init!(Self {
            // SAFETY: `head` is valid for writes, and pinned.
            head <- Opaque::ffi_init(|head| unsafe { bindings::__skb_queue_head_init(head) }),
        })
    }

    /// Makes a reference to a queue that C code owns.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// # Safety
    ///
    /// `ptr` must point to an initialised queue that holds the only reference to each of its
    /// buffers. Nobody else may use the queue during `'a`: the caller holds the lock that protects
    /// it.
    #[inline]
    pub unsafe fn from_raw<'a>(ptr: *mut bindings::sk_buff_head) -> Pin<&'a mut Self> {
        // SAFETY: By the safety requirements the queue is initialised and nobody else uses it.
        // `Self` is a transparent wrapper.
        let queue = unsafe { &mut *ptr.cast::<Self>() };
        // SAFETY: C code does not move the queue, and Rust code cannot move it through a pinned
        // reference.
        unsafe { Pin::new_unchecked(queue) }
    }

    /// Removes the first buffer and returns it, or [`None`] if the queue is empty.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// C function: `__skb_dequeue()` in [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    #[inline]
    pub fn pop_front(self: Pin<&mut Self>) -> Option<SkBuff> {
        // SAFETY: The queue is initialised by the type invariant, and the mutable reference is
        // exclusive.
        let skb = unsafe { bindings::__skb_dequeue(self.head.get()) };
        // SAFETY: By the type invariant the queue held the only reference. The buffer is in no
        // queue after its removal.
        NonNull::new(skb).map(|skb| unsafe { SkBuff::from_raw(skb) })
    }

    /// Removes the last buffer and returns it, or [`None`] if the queue is empty.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// C function: `__skb_dequeue_tail()` in
    /// [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    #[inline]
    pub fn pop_back(self: Pin<&mut Self>) -> Option<SkBuff> {
        // SAFETY: The queue is initialised by the type invariant, and the mutable reference is
        // exclusive.
        let skb = unsafe { bindings::__skb_dequeue_tail(self.head.get()) };
        // SAFETY: By the type invariant the queue held the only reference. The buffer is in no
        // queue after its removal.
        NonNull::new(skb).map(|skb| unsafe { SkBuff::from_raw(skb) })
    }

    /// Inserts a buffer before all others.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// C function: `__skb_queue_head()` in
    /// [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    #[inline]
    pub fn push_front(self: Pin<&mut Self>, skb: SkBuff) {
        // INVARIANT: The queue takes over the only reference to the buffer.
        // SAFETY: The queue is initialised by the type invariant, and the mutable reference is
        // exclusive. By the invariant of `SkBuff` the buffer is valid and in no queue.
        unsafe { bindings::__skb_queue_head(self.head.get(), skb.into_raw()) };
    }

    /// Appends a buffer after all others.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// C function: `__skb_queue_tail()` in
    /// [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)
    #[inline]
    pub fn push_back(self: Pin<&mut Self>, skb: SkBuff) {
        // INVARIANT: The queue takes over the only reference to the buffer.
        // SAFETY: The queue is initialised by the type invariant, and the mutable reference is
        // exclusive. By the invariant of `SkBuff` the buffer is valid and in no queue.
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
