// SPDX-License-Identifier: GPL-2.0

//! Makes a new buffer from a slice: copies a small slice, and shares the pages of a large one.

use super::{
    owned::atomic_flags,
    SkBuff,
    SkBuffSlice, //
};

use crate::{
    bindings,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*, //
};

use core::ptr::NonNull;

/// The largest number of bytes that are copied even if their pages could be shared.
const COPY_MAX: u32 = PAGE_SIZE as u32;

/// The largest number of bytes that are copied into a linear buffer. Together with the overhead of
/// a buffer they fit in four pages.
const LINEAR_MAX: u32 = 3 * PAGE_SIZE as u32;

impl SkBuffSlice<'_> {
    /// Makes a buffer with the bytes of the slice, and with `headroom` free bytes before them.
    ///
    /// The bytes are either all in the linear part of the new buffer or all in fragments.
    ///
    /// With `share`, the new buffer refers to the pages of the old one if copying would cost more.
    /// The new buffer then has fragments in common with the old buffer, or has a clone of the old
    /// buffer in its fragment list. Its user must only read the bytes.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// - [`ENOMEM`] if an allocation fails, or if fragments cannot hold that many bytes.
    /// - [`EINVAL`] if `headroom` and the bytes together are more than an `int` can count.
    /// - [`EINVAL`] or [`EFAULT`] if the fragments hold fewer bytes than the buffer's length says.
    pub fn to_skb(self, headroom: u32, share: bool) -> Result<SkBuff> {
        let share = share && self.len() > COPY_MAX && self.is_shareable();
        let is_whole = self.len() == self.own_len() && self.len() == self.buffer_len();
        if share && is_whole && self.head_len() > COPY_MAX {
            return self.wrap(headroom);
        }
        let part = self.in_list().unwrap_or(self);
        part.to_flat_skb(headroom, share && part.is_shareable())
    }

    /// Returns whether another buffer may refer to the page fragments of the slice's buffer.
    fn is_shareable(&self) -> bool {
        // SAFETY: The buffer is valid by the type invariant.
        let zerocopy = !unsafe { bindings::skb_zcopy(self.as_raw()) }.is_null();
        // SAFETY: The buffer is valid by the type invariant.
        let readable = unsafe { bindings::skb_frags_readable(self.as_raw()) };
        !zerocopy && readable
    }

    /// Makes the new buffer of [`Self::to_skb`], without a fragment list.
    ///
    /// `share` may only be set if [`Self::is_shareable`] is true.
    fn to_flat_skb(self, headroom: u32, share: bool) -> Result<SkBuff> {
        let (offset, len) = (self.offset(), self.len());
        let in_head = self.head_len().saturating_sub(offset).min(len);

        if share && in_head < len && offset + len <= self.own_len() {
            let mut skb = SkBuff::alloc(headroom, 0, in_head)?;
            self.copy_to_frags(&mut skb)?;
            match self.share_frags(&mut skb, offset + in_head) {
                // The bytes are in more fragments than a buffer can have. They are copied instead.
                Err(EMSGSIZE) => {}
                result => return result.map(|()| skb),
            }
        }

        if len > LINEAR_MAX {
            let mut skb = SkBuff::alloc(headroom, 0, len)?;
            self.copy_to_frags(&mut skb)?;
            return Ok(skb);
        }
        let skb = SkBuff::alloc(headroom, len, 0)?;
        // SAFETY: The new buffer has room for `len` bytes behind its headroom.
        let to = unsafe { bindings::skb_put(skb.as_raw(), len) };
        // SAFETY: By the type invariant this buffer is valid and has the bytes. `to` is valid for
        // writes of `len` bytes.
        to_result(unsafe {
            bindings::skb_copy_bits(self.as_raw(), offset as c_int, to, len as c_int)
        })?;
        Ok(skb)
    }

    /// Makes a buffer whose fragment list is a clone of the slice's whole buffer. Copies no bytes.
    fn wrap(&self, headroom: u32) -> Result<SkBuff> {
        let skb = SkBuff::alloc(headroom, 0, 0)?;
        // SAFETY: By the type invariant the buffer is valid and may be cloned. The flags do not let
        // the function sleep.
        let clone = unsafe { bindings::skb_clone(self.as_raw(), atomic_flags()) };
        let clone = NonNull::new(clone).ok_or(ENOMEM)?.as_ptr();
        // SAFETY: The new buffer is valid and only `skb` refers to it. It has no fragment list yet,
        // and takes ownership of the clone.
        unsafe { (*skb.shinfo()).frag_list = clone };
        // SAFETY: The new buffer is valid, and its data is all of the clone.
        unsafe { (*skb.as_raw()).len = self.buffer_len() };
        // SAFETY: As above, and no byte is in the linear part.
        unsafe { (*skb.as_raw()).data_len = self.buffer_len() };
        // SAFETY: The clone is valid.
        let clone_truesize = unsafe { (*clone).truesize };
        let truesize = skb.truesize().saturating_add(clone_truesize);
        // SAFETY: The new buffer is valid, and owns the memory of the clone, too.
        unsafe { (*skb.as_raw()).truesize = truesize };
        Ok(skb)
    }

    /// Fills the fragments of `skb` with the first bytes of the slice.
    fn copy_to_frags(&self, skb: &mut SkBuff) -> Result {
        let mut at = self.offset();
        // SAFETY: `skb` is valid, and keeps its fragments during the loop.
        for frag in unsafe { frags(skb.shinfo()) } {
            // SAFETY: The fragment is valid. `SkBuff::alloc()` made it of pages with an address.
            let to = unsafe { bindings::skb_frag_address(frag) };
            // SAFETY: The fragment is valid.
            let size = unsafe { bindings::skb_frag_size(frag) };
            // SAFETY: By the type invariant this buffer is valid. `to` is valid for writes of
            // `size` bytes.
            to_result(unsafe {
                bindings::skb_copy_bits(self.as_raw(), at as c_int, to, size as c_int)
            })?;
            at = at.checked_add(size).ok_or(EINVAL)?;
        }
        Ok(())
    }

    /// Lets `skb` refer to page fragments of the slice's buffer: those with the bytes from `at` to
    /// the end of the slice.
    ///
    /// `at` is an offset in the slice's buffer, and must not be in the linear part.
    /// [`Self::is_shareable`] must be true.
    ///
    /// # Errors
    ///
    /// - [`EMSGSIZE`] if the bytes are in more fragments than `skb` can have.
    /// - [`EINVAL`] if the fragments hold fewer bytes than the buffer's length says.
    fn share_frags(&self, skb: &mut SkBuff, mut at: u32) -> Result {
        let end = self.offset() + self.len();
        // The flag says that the pages are shared. Code that would write to them copies them first.
        // SAFETY: `skb` is valid and has no clone, so that nobody else uses its shared info.
        unsafe { (*skb.shinfo()).flags |= bindings::SKBFL_SHARED_FRAG as u8 };
        let mut frag_start = self.head_len();
        // SAFETY: By the type invariant this buffer is valid, and keeps its fragments.
        for frag in unsafe { frags(self.shinfo()) } {
            // SAFETY: The fragment is valid.
            let size = unsafe { bindings::skb_frag_size(frag) };
            let frag_end = frag_start.checked_add(size).ok_or(EINVAL)?;
            if at < end && at < frag_end {
                let bytes = frag_end.min(end) - at;
                // SAFETY: The fragment is valid.
                let page = unsafe { bindings::skb_frag_page(frag) };
                // SAFETY: The fragment is valid.
                let page_offset = unsafe { bindings::skb_frag_off(frag) } + (at - frag_start);
                // SAFETY: `skb` is valid and nobody else uses it. The fragment holds a reference to
                // its page. More references may be taken, as the buffer is not a zerocopy one.
                to_result(unsafe {
                    bindings::skb_append_pagefrags(
                        skb.as_raw(),
                        page,
                        page_offset as c_int,
                        bytes as usize,
                        bindings::MAX_SKB_FRAGS as usize,
                    )
                })?;
                // SAFETY: `skb` is valid, and its fragments have grown by `bytes` bytes.
                unsafe { bindings::skb_len_add(skb.as_raw(), bytes as c_int) };
                at += bytes;
            }
            frag_start = frag_end;
        }
        if at == end {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }
}

/// Returns pointers to the page fragments of a buffer.
///
/// # Safety
///
/// `shinfo` must be the shared info of a valid buffer, which must keep its fragments while the
/// iterator and the pointers are in use.
unsafe fn frags(
    shinfo: *const bindings::skb_shared_info,
) -> impl Iterator<Item = *const bindings::skb_frag_t> {
    // SAFETY: The shared info is valid by the safety requirements.
    let count = unsafe { (*shinfo).nr_frags };
    // SAFETY: The shared info is valid by the safety requirements.
    let first = unsafe { &raw const (*shinfo).frags }.cast::<bindings::skb_frag_t>();
    (0..usize::from(count)).map(move |i| first.wrapping_add(i))
}
