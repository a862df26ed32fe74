// SPDX-License-Identifier: GPL-2.0

//! Joins buffers without copying: appends buffers to the fragment list of the first one.

use super::{
    SkBuff,
    SkBuffQueue, //
};

use crate::prelude::*;

impl SkBuff {
    /// Appends all buffers of a queue to the data of this one, as its fragment list.
    ///
    /// No byte is copied, and no memory is allocated.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// - [`EMSGSIZE`] if the length or the memory of all buffers is more bytes than an `int` can
    ///   count.
    /// - [`EINVAL`] if one of the buffers has a fragment list already.
    ///
    /// After an error, this buffer has the buffers of the queue before the one that caused the
    /// error, and the queue has the buffers after it. The buffer that caused the error is freed,
    /// unless it is this one.
    ///
    /// # Safety
    ///
    /// This buffer must not share its head with a clone. This buffer must not be charged to a
    /// socket, because `truesize` grows and the charge does not.
    pub unsafe fn append_frags(&mut self, mut others: Pin<&mut SkBuffQueue>) -> Result {
        // SAFETY: By the type invariant the buffer is valid, and so is its shared info.
        let mut end = unsafe { &raw mut (*self.shinfo()).frag_list };
        if self.has_frag_list() {
            return Err(EINVAL);
        }
        while let Some(other) = others.as_mut().pop_front() {
            if other.has_frag_list() {
                return Err(EINVAL);
            }
            let data_len = self.data_len().checked_add(other.len()).ok_or(EMSGSIZE)?;
            let len = self.len().checked_add(other.len()).ok_or(EMSGSIZE)?;
            let truesize = self
                .truesize()
                .checked_add(other.truesize())
                .ok_or(EMSGSIZE)?;
            c_int::try_from(len.max(truesize)).map_err(|_| EMSGSIZE)?;

            let other = other.into_raw();
            // SAFETY: `end` points to the null pointer that ends the list. By the safety
            // requirements no clone shares the list. `other` was taken out of a queue, which set
            // its `next` to null, so that `other` is a proper end of the list.
            unsafe { *end = other };
            // SAFETY: `other` is valid, and the list owns it from here on.
            end = unsafe { &raw mut (*other).__bindgen_anon_1.__bindgen_anon_1.next };
            // SAFETY: By the type invariant the buffer is valid and this value has the only
            // reference. The list has grown by the bytes that were added to `len`.
            unsafe { (*self.as_raw()).len = len };
            // SAFETY: As above, for `data_len`.
            unsafe { (*self.as_raw()).data_len = data_len };
            // SAFETY: As above, for `truesize`.
            unsafe { (*self.as_raw()).truesize = truesize };
        }
        Ok(())
    }

    /// Returns whether the buffer has a fragment list.
    fn has_frag_list(&self) -> bool {
        // SAFETY: By the type invariant the buffer is valid, and so is its shared info.
        !unsafe { (*self.shinfo()).frag_list }.is_null()
    }
}
