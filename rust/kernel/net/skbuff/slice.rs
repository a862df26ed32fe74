// SPDX-License-Identifier: GPL-2.0

//! A range of bytes in a socket buffer that C code owns.

use crate::{
    bindings,
    prelude::*, //
};

use core::{
    iter::successors,
    marker::PhantomData,
    ptr::NonNull, //
};

/// A range of bytes in a socket buffer that C code owns and that does not change while it is
/// borrowed.
///
/// # Invariants
///
/// - `skb` is a valid `struct sk_buff`, which nobody changes or frees during `'a`.
/// - `skb` may be cloned: it does not hold a redirect target (`_sk_redir`), which shares a field
///   with the `dst`.
/// - `offset + len` is at most the length of `skb`.
/// - The number of bytes that `skb` has in fragments is at most its length.
#[derive(Clone, Copy)]
pub struct SkBuffSlice<'a> {
    skb: NonNull<bindings::sk_buff>,
    offset: u32,
    len: u32,
    _lifetime: PhantomData<&'a bindings::sk_buff>,
}

impl SkBuffSlice<'_> {
    /// Makes a slice of `len` bytes, beginning at byte `offset`, of a buffer that C code passed in.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if `skb` is null, if the buffer does not have these bytes, or if it claims more
    /// bytes in fragments than its length.
    ///
    /// # Safety
    ///
    /// `skb` must be null or valid. Nobody may change or free it during the lifetime of the slice.
    /// It must not hold a redirect target: `_sk_redir` shares a field with the `dst`.
    pub unsafe fn from_raw(skb: *mut bindings::sk_buff, offset: u32, len: u32) -> Result<Self> {
        let skb = NonNull::new(skb).ok_or(EINVAL)?;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        // SAFETY: The buffer is valid by the safety requirements.
        let buffer_len = unsafe { (*skb.as_ptr()).len };
        // SAFETY: The buffer is valid by the safety requirements.
        if end > buffer_len || unsafe { (*skb.as_ptr()).data_len } > buffer_len {
            return Err(EINVAL);
        }
        // INVARIANT: The safety requirements cover the buffer itself, and the checks above cover
        // the lengths.
        Ok(Self {
            skb,
            offset,
            len,
            _lifetime: PhantomData,
        })
    }

    /// Returns the `len` bytes of this slice that begin at byte `offset` of it.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if the slice does not have these bytes.
    pub fn part(&self, offset: u32, len: u32) -> Result<Self> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.len {
            return Err(EINVAL);
        }
        // INVARIANT: The part is inside this slice, so that its end is inside the buffer. The sum
        // below does not overflow, for the same reason.
        Ok(Self {
            offset: self.offset + offset,
            len,
            ..*self
        })
    }

    /// Returns the number of bytes in the slice.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether the slice has no bytes.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the offset in bytes of the slice in its buffer.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns the pointer for C functions that borrow the buffer.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::sk_buff {
        self.skb.as_ptr()
    }

    /// Returns the pointer to the part of the buffer that it shares with its clones.
    pub(super) fn shinfo(&self) -> *const bindings::skb_shared_info {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { bindings::skb_shinfo(self.skb.as_ptr()) }
    }

    /// Returns the length of the whole buffer in bytes.
    pub(super) fn buffer_len(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { (*self.skb.as_ptr()).len }
    }

    /// Returns the number of bytes in the linear part of the buffer.
    pub(super) fn head_len(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        self.buffer_len()
            .saturating_sub(unsafe { (*self.skb.as_ptr()).data_len })
    }

    /// Returns the number of bytes in the buffer that are not in its fragment list.
    pub(super) fn own_len(&self) -> u32 {
        self.list().fold(self.buffer_len(), |len, skb| {
            // SAFETY: The buffers in the fragment list of a valid buffer are valid.
            len.saturating_sub(unsafe { (*skb.as_ptr()).len })
        })
    }

    /// Returns the same bytes as a slice of a buffer in the fragment list.
    ///
    /// Returns [`None`] if no buffer in the fragment list has all of the bytes.
    pub(super) fn in_list(&self) -> Option<Self> {
        let mut start = self.own_len();
        for skb in self.list() {
            // SAFETY: The buffers in the fragment list of a valid buffer are valid.
            let len = unsafe { (*skb.as_ptr()).len };
            let offset = self.offset.checked_sub(start)?;
            // SAFETY: The buffers in the fragment list of a valid buffer are valid.
            let data_len = unsafe { (*skb.as_ptr()).data_len };
            // INVARIANT:
            // - The buffer in the list is valid, and belongs to a buffer that nobody changes or
            //   frees.
            // - It holds no redirect target: only a buffer that the verdict runs on gets one, and
            //   loses it before anything is done with its data. The verdict does not run on a
            //   buffer in a list.
            // - The check covers the lengths. The sum does not saturate: `offset` is at most
            //   `self.offset`, and `self.offset + self.len` is at most the length of `self.skb`.
            if offset.saturating_add(self.len) <= len && data_len <= len {
                return Some(Self {
                    skb,
                    offset,
                    ..*self
                });
            }
            start = start.saturating_add(len);
        }
        None
    }

    /// Returns the buffers in the fragment list.
    fn list(&self) -> impl Iterator<Item = NonNull<bindings::sk_buff>> {
        // SAFETY: By the type invariant the buffer is valid, and so is its shared info.
        let first = NonNull::new(unsafe { (*self.shinfo()).frag_list });
        successors(first, |skb| {
            // SAFETY: The buffers in the fragment list of a valid buffer are valid.
            NonNull::new(unsafe { (*skb.as_ptr()).__bindgen_anon_1.__bindgen_anon_1.next })
        })
    }
}
