// SPDX-License-Identifier: GPL-2.0

//! Socket buffers: packets that somebody owns.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

use crate::{
    alloc::flags::{
        __GFP_NOWARN,
        GFP_ATOMIC, //
    },
    bindings,
    error::to_result,
    net::sock::Sock,
    page::PAGE_SIZE,
    prelude::*,
    sync::aref::ARef,
    types::Opaque, //
};

use core::{
    iter::successors,
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::{
        self,
        NonNull, //
    },
};

/// What a buffer holds until it is freed, or given to another socket, and drops then.
///
/// That is a reference to a socket and a number, so that no memory is needed for it.
pub trait SkBuffOwner: Send + 'static {
    /// Takes the value apart.
    fn into_parts(self) -> (ARef<Sock>, usize);

    /// Makes the value again.
    ///
    /// # Safety
    ///
    /// The two are what [`SkBuffOwner::into_parts`] returned, and are used once.
    unsafe fn from_parts(sk: ARef<Sock>, number: usize) -> Self;
}

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

    /// The number of bytes that are in fragments.
    fn data_len(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { (*self.as_raw()).data_len }
    }

    /// The number of bytes of memory that the buffer takes.
    fn truesize(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { (*self.as_raw()).truesize }
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

    /// Puts the buffers of a queue behind the data of this one, as its list of fragments.
    ///
    /// Does not sleep, nor allocate.
    ///
    /// # Errors
    ///
    /// [`EMSGSIZE`] if that is more than an `int` can count, [`EINVAL`] if one of the buffers has
    /// such a list already. Some of the others are in the list of this one then, the rest in the
    /// queue, and one is gone.
    ///
    /// # Safety
    ///
    /// The head of this buffer is not shared, and the buffer not charged to a socket, as it grows.
    pub unsafe fn append_frags(&mut self, mut others: Pin<&mut SkBuffQueue>) -> Result {
        // SAFETY: The shared info of a valid buffer is.
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
            // SAFETY: `end` is the end of the list, which is ours as the head is; `other` was the
            // first of a queue, so that it has no next one now.
            unsafe { *end = other };
            // SAFETY: `other` is valid, and in the list.
            end = unsafe { &raw mut (*other).__bindgen_anon_1.__bindgen_anon_1.next };
            // SAFETY: The buffer is valid and ours alone, and the list has that many bytes more.
            unsafe { (*self.as_raw()).len = len };
            // SAFETY: As above.
            unsafe { (*self.as_raw()).data_len = data_len };
            // SAFETY: As above.
            unsafe { (*self.as_raw()).truesize = truesize };
        }
        Ok(())
    }

    /// Returns whether other buffers hold a part of the data.
    fn has_frag_list(&self) -> bool {
        // SAFETY: The shared info of a valid buffer is.
        !unsafe { (*self.shinfo()).frag_list }.is_null()
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

impl SkBuff {
    fn shinfo(&self) -> *mut bindings::skb_shared_info {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { bindings::skb_shinfo(self.as_raw()) }
    }

    fn set_destructor(&mut self, destructor: Option<unsafe extern "C" fn(*mut bindings::sk_buff)>) {
        // SAFETY: The buffer is valid and ours alone. What shares the place is for TCP.
        unsafe {
            (*self.as_raw())
                .__bindgen_anon_3
                .__bindgen_anon_1
                .destructor = destructor
        };
    }

    /// Gives the buffer an owner, in place of the one that it had.
    ///
    /// `skb->sk` is then the socket of `owner`. Does not sleep.
    ///
    /// # Errors
    ///
    /// `owner` itself, if the buffer holds pages of user space (`MSG_ZEROCOPY`) or has clones: then
    /// there is no place for it.
    ///
    /// # Safety
    ///
    /// The buffer is only freed, or given to another socket, where a `T` may be dropped.
    pub unsafe fn set_owner<T: SkBuffOwner>(&mut self, owner: T) -> Result<(), T> {
        // SAFETY: The buffer is valid by the type invariant.
        let zerocopy = !unsafe { bindings::skb_zcopy(self.as_raw()) }.is_null();
        // SAFETY: As above.
        if zerocopy || unsafe { bindings::skb_cloned(self.as_raw()) } != 0 {
            return Err(owner);
        }
        // SAFETY: The buffer is valid and ours alone.
        unsafe { bindings::skb_orphan(self.as_raw()) };

        let (sk, number) = owner.into_parts();
        // SAFETY: The shared info is valid, and there is no clone that shares it. Nobody else uses
        // the field without a zerocopy flag.
        unsafe {
            (*self.shinfo()).__bindgen_anon_2.destructor_arg = ptr::without_provenance_mut(number)
        };
        // SAFETY: The buffer is valid, ours alone, and has no owner; `Sock` is a `struct sock`.
        unsafe { (*self.as_raw()).sk = ARef::into_raw(sk).as_ptr().cast() };
        self.set_destructor(Some(drop_owner::<T>));
        Ok(())
    }

    /// Takes the owner back, so that the buffer has none.
    ///
    /// # Safety
    ///
    /// If the buffer has an owner, then one that [`SkBuff::set_owner`] gave it with the same `T`.
    pub unsafe fn take_owner<T: SkBuffOwner>(&mut self) -> Option<T> {
        // SAFETY: The buffer is valid and ours alone.
        let sk = NonNull::new(unsafe { (*self.as_raw()).sk })?;
        // SAFETY: As above. The next owner finds no destructor of this one.
        unsafe { (*self.as_raw()).sk = ptr::null_mut() };
        self.set_destructor(None);
        // SAFETY: The shared info is valid, and the field was set by `set_owner()`.
        let number = unsafe { (*self.shinfo()).__bindgen_anon_2.destructor_arg }.addr();
        // SAFETY: The buffer held a reference to `sk`, which is no longer its own.
        let sk = unsafe { ARef::from_raw(sk.cast()) };
        // SAFETY: `set_owner()` took a `T` apart into these, and the buffer has them no more.
        Some(unsafe { T::from_parts(sk, number) })
    }

    /// Makes an empty buffer with room for `headroom` bytes. Does not sleep.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] without memory, [`EINVAL`] if that is too much.
    pub fn new(headroom: u32) -> Result<Self> {
        Self::alloc(headroom, 0, 0)
    }

    /// Allocates a buffer with room for `headroom` and `linear` bytes, and `paged` bytes of data in
    /// fragments.
    fn alloc(headroom: u32, linear: u32, paged: u32) -> Result<Self> {
        let head = headroom.checked_add(linear).ok_or(EINVAL)?;
        // Its parts are given to C as one.
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
        // INVARIANT: The buffer is new and nobody else knows it.
        let skb = Self(NonNull::new(skb).ok_or(ENOMEM)?);
        // SAFETY: The buffer has no linear data, and that much room for it.
        unsafe { bindings::skb_reserve(skb.as_raw(), headroom as c_int) };
        // SAFETY: The fragments hold that many bytes. They are in `truesize` already.
        unsafe { (*skb.as_raw()).len = paged };
        // SAFETY: As above.
        unsafe { (*skb.as_raw()).data_len = paged };
        Ok(skb)
    }

    /// Charges the buffer to the send buffer of `sk`, until it is freed. Does not sleep.
    ///
    /// C function: `skb_set_owner_w()` in [`net/core/sock.c`](srctree/net/core/sock.c)
    pub fn set_owner_w(&mut self, sk: &Sock) {
        // SAFETY: The buffer is valid and ours alone, `sk` is live.
        unsafe { bindings::skb_set_owner_w(self.as_raw(), sk.as_raw()) };
    }
}

/// The destructor of a buffer that has an owner.
///
/// # Safety
///
/// `skb` must be valid, and have an owner that [`SkBuff::set_owner`] gave it with the same `T`. The
/// caller forgets the owner then.
unsafe extern "C" fn drop_owner<T: SkBuffOwner>(skb: *mut bindings::sk_buff) {
    // SAFETY: The buffer is valid.
    let Some(sk) = NonNull::new(unsafe { (*skb).sk }) else {
        return;
    };
    // SAFETY: The buffer is valid.
    let shinfo = unsafe { bindings::skb_shinfo(skb) };
    // SAFETY: The shared info is valid, and the field was set by `set_owner()`.
    let number = unsafe { (*shinfo).__bindgen_anon_2.destructor_arg }.addr();
    // SAFETY: The buffer holds a reference to `sk`, which the caller forgets.
    let sk = unsafe { ARef::from_raw(sk.cast()) };
    // SAFETY: `set_owner()` took a `T` apart into these, and the caller forgets them.
    drop(unsafe { T::from_parts(sk, number) });
}

/// Bytes of a socket buffer that belongs to somebody else, lent for a call.
///
/// # Invariants
///
/// The pointer is to a valid `struct sk_buff`, which nobody changes or frees during `'a`. It has no
/// `dst` or a counted one. `offset + len` is at most its length, as is what is in fragments.
#[derive(Clone, Copy)]
pub struct SkBuffSlice<'a> {
    skb: NonNull<bindings::sk_buff>,
    offset: u32,
    len: u32,
    _lent: PhantomData<&'a bindings::sk_buff>,
}

/// How memory is allocated here: nothing sleeps.
fn atomic_flags() -> bindings::gfp_t {
    (GFP_ATOMIC | __GFP_NOWARN).as_raw()
}

/// Up to this many bytes are copied, rather than to share pages.
const COPY_MAX: u32 = PAGE_SIZE as u32;

/// Up to this many bytes are copied to a linear buffer, which with its overhead fits in four pages.
const LINEAR_MAX: u32 = 3 * PAGE_SIZE as u32;

impl SkBuffSlice<'_> {
    /// Makes a slice of `len` bytes, from `offset` on, of a buffer that C code passed in.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if the buffer does not have them, or has more in fragments than its length.
    ///
    /// # Safety
    ///
    /// `skb` must be null or valid, and nobody may change or free it during the lifetime of the
    /// slice. Its `dst` must not be the target of a redirect: that has the same place.
    pub unsafe fn from_raw(skb: *mut bindings::sk_buff, offset: u32, len: u32) -> Result<Self> {
        let skb = NonNull::new(skb).ok_or(EINVAL)?;
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        // SAFETY: The buffer is valid.
        let buffer_len = unsafe { (*skb.as_ptr()).len };
        // SAFETY: As above.
        if end > buffer_len || unsafe { (*skb.as_ptr()).data_len } > buffer_len {
            return Err(EINVAL);
        }
        // INVARIANT: By the safety requirements, and the check.
        Ok(Self {
            skb,
            offset,
            len,
            _lent: PhantomData,
        })
    }

    /// Returns `len` bytes of this slice, from `offset` on.
    ///
    /// # Errors
    ///
    /// [`EINVAL`] if it does not have them.
    pub fn part(&self, offset: u32, len: u32) -> Result<Self> {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.len {
            return Err(EINVAL);
        }
        // INVARIANT: This slice has the bytes, so that the sum is in the buffer.
        Ok(Self {
            offset: self.offset + offset,
            len,
            ..*self
        })
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns where in the buffer the bytes begin.
    #[inline]
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns a pointer for calls that borrow the buffer.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::sk_buff {
        self.skb.as_ptr()
    }

    fn shinfo(&self) -> *const bindings::skb_shared_info {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { bindings::skb_shinfo(self.skb.as_ptr()) }
    }

    /// The number of bytes of the buffer.
    fn buffer_len(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        unsafe { (*self.skb.as_ptr()).len }
    }

    /// The number of bytes of the buffer that are not in fragments.
    fn head_len(&self) -> u32 {
        // SAFETY: The buffer is valid by the type invariant.
        self.buffer_len()
            .saturating_sub(unsafe { (*self.skb.as_ptr()).data_len })
    }

    /// The buffers in the list of fragments.
    fn list(&self) -> impl Iterator<Item = NonNull<bindings::sk_buff>> {
        // SAFETY: The shared info of a valid buffer is.
        let first = NonNull::new(unsafe { (*self.shinfo()).frag_list });
        successors(first, |skb| {
            // SAFETY: The buffers in the list of a valid buffer are valid.
            NonNull::new(unsafe { (*skb.as_ptr()).__bindgen_anon_1.__bindgen_anon_1.next })
        })
    }

    /// The number of bytes of the buffer that are not in the list.
    fn own_len(&self) -> u32 {
        self.list().fold(self.buffer_len(), |len, skb| {
            // SAFETY: The buffers in the list of a valid buffer are valid.
            len.saturating_sub(unsafe { (*skb.as_ptr()).len })
        })
    }

    /// These bytes in the buffer of the list that has them all, if there is one.
    fn in_list(&self) -> Option<Self> {
        let mut start = self.own_len();
        for skb in self.list() {
            // SAFETY: The buffers in the list of a valid buffer are valid.
            let len = unsafe { (*skb.as_ptr()).len };
            let offset = self.offset.checked_sub(start)?;
            // INVARIANT: The buffer is in the list of one that nobody changes, and has the bytes.
            if offset.saturating_add(self.len) <= len {
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

    /// Whether another buffer can hold references to the fragments.
    fn is_shareable(&self) -> bool {
        // SAFETY: The buffer is valid by the type invariant.
        let zerocopy = !unsafe { bindings::skb_zcopy(self.skb.as_ptr()) }.is_null();
        // SAFETY: As above.
        let readable = unsafe { bindings::skb_frags_readable(self.skb.as_ptr()) };
        !zerocopy && readable
    }

    /// Makes a buffer with these bytes, and room for `headroom` bytes before them.
    ///
    /// The bytes are either all in the linear part or all in fragments. With `share`, pages are
    /// shared where copying costs more, for who only reads them; the new buffer has the fragments
    /// of this one then, or a list with a clone of it. Does not sleep.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] without memory, [`EINVAL`] if there is too much.
    pub fn to_skb(self, headroom: u32, share: bool) -> Result<SkBuff> {
        let share = share && self.len > COPY_MAX && self.is_shareable();
        let is_whole = self.len == self.own_len() && self.len == self.buffer_len();
        if share && is_whole && self.head_len() > COPY_MAX {
            return self.wrap(headroom);
        }
        let part = self.in_list().unwrap_or(self);
        part.to_flat_skb(headroom, share && part.is_shareable())
    }

    /// [`Self::to_skb`], but the new buffer has no list.
    fn to_flat_skb(self, headroom: u32, share: bool) -> Result<SkBuff> {
        let Self { offset, len, .. } = self;
        let in_head = self.head_len().saturating_sub(offset).min(len);

        if share && in_head < len && offset + len <= self.own_len() {
            let mut skb = SkBuff::alloc(headroom, 0, in_head)?;
            self.copy_to_frags(&mut skb)?;
            match self.share_frags(&mut skb, offset + in_head) {
                // There are more of them than a buffer can hold.
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
        // SAFETY: This buffer is valid, and `to` is valid for `len` bytes.
        to_result(unsafe {
            bindings::skb_copy_bits(self.skb.as_ptr(), offset as c_int, to, len as c_int)
        })?;
        Ok(skb)
    }

    /// Makes a buffer that has a clone of the whole one as its data, so that no byte is copied.
    fn wrap(&self, headroom: u32) -> Result<SkBuff> {
        let skb = SkBuff::alloc(headroom, 0, 0)?;
        // SAFETY: The buffer is valid by the type invariant, and the flags do not let it sleep.
        let clone = unsafe { bindings::skb_clone(self.as_raw(), atomic_flags()) };
        let clone = NonNull::new(clone).ok_or(ENOMEM)?.as_ptr();
        // SAFETY: The new buffer is ours, and the clone becomes its own.
        unsafe { (*skb.shinfo()).frag_list = clone };
        // SAFETY: The new buffer is ours, and has these bytes.
        unsafe { (*skb.as_raw()).len = self.buffer_len() };
        // SAFETY: As above.
        unsafe { (*skb.as_raw()).data_len = self.buffer_len() };
        // SAFETY: The clone is valid.
        let clone_truesize = unsafe { (*clone).truesize };
        let truesize = skb.truesize().saturating_add(clone_truesize);
        // SAFETY: The new buffer is ours.
        unsafe { (*skb.as_raw()).truesize = truesize };
        Ok(skb)
    }

    /// Copies as many bytes to the fragments of `skb` as these have room for.
    fn copy_to_frags(&self, skb: &mut SkBuff) -> Result {
        let mut at = self.offset;
        // SAFETY: The buffer is ours, and keeps its fragments during the loop.
        for frag in unsafe { frags(skb.shinfo()) } {
            // SAFETY: The fragment is valid, and was allocated with an address.
            let to = unsafe { bindings::skb_frag_address(frag) };
            // SAFETY: The fragment is valid.
            let size = unsafe { bindings::skb_frag_size(frag) };
            // SAFETY: This buffer is valid, and `to` is valid for `size` bytes.
            to_result(unsafe {
                bindings::skb_copy_bits(self.skb.as_ptr(), at as c_int, to, size as c_int)
            })?;
            at = at.checked_add(size).ok_or(EINVAL)?;
        }
        Ok(())
    }

    /// Adds references to the fragments that hold the bytes from `at` in the buffer on to `skb`.
    ///
    /// # Errors
    ///
    /// [`EMSGSIZE`] if there are too many.
    fn share_frags(&self, skb: &mut SkBuff, mut at: u32) -> Result {
        let end = self.offset + self.len;
        // SAFETY: `skb` is ours, so that nobody else has its shared info. Who would write to the
        // pages copies them first, then.
        unsafe { (*skb.shinfo()).flags |= bindings::SKBFL_SHARED_FRAG as u8 };
        let mut frag_start = self.head_len();
        // SAFETY: By the type invariant the buffer keeps its fragments.
        for frag in unsafe { frags(self.shinfo()) } {
            // SAFETY: The fragment is valid.
            let size = unsafe { bindings::skb_frag_size(frag) };
            let frag_end = frag_start.checked_add(size).ok_or(EINVAL)?;
            if at < end && at < frag_end {
                let bytes = frag_end.min(end) - at;
                // SAFETY: The fragment is valid.
                let page = unsafe { bindings::skb_frag_page(frag) };
                // SAFETY: As above.
                let page_offset = unsafe { bindings::skb_frag_off(frag) } + (at - frag_start);
                // SAFETY: `skb` is valid and ours; the fragment holds a reference to its page,
                // which is of the kind that can be counted, as it is no zerocopy one.
                to_result(unsafe {
                    bindings::skb_append_pagefrags(
                        skb.as_raw(),
                        page,
                        page_offset as c_int,
                        bytes as usize,
                        bindings::MAX_SKB_FRAGS as usize,
                    )
                })?;
                // SAFETY: The buffer has a fragment with that many bytes more.
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

/// Returns pointers to the fragments of a buffer.
///
/// # Safety
///
/// `shinfo` must be the shared info of a valid buffer.
unsafe fn frags(
    shinfo: *const bindings::skb_shared_info,
) -> impl Iterator<Item = *const bindings::skb_frag_t> {
    // SAFETY: By the safety requirements.
    let count = unsafe { (*shinfo).nr_frags };
    // SAFETY: As above.
    let first = unsafe { &raw const (*shinfo).frags }.cast::<bindings::skb_frag_t>();
    (0..usize::from(count)).map(move |i| first.wrapping_add(i))
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

#[kunit_tests(rust_net_skbuff)]
mod tests {
    use super::*;

    use pin_init::stack_pin_init;

    /// A buffer with the bytes from `from` on, `linear` of them not in fragments.
    fn filled(from: u32, linear: u32, paged: u32) -> SkBuff {
        let skb = SkBuff::alloc(0, linear, paged).unwrap();
        // SAFETY: The buffer has room for `linear` bytes.
        unsafe { (*skb.as_raw()).len -= paged };
        // SAFETY: As above.
        unsafe { (*skb.as_raw()).data_len = 0 };
        // SAFETY: As above.
        unsafe { bindings::skb_put(skb.as_raw(), linear) };
        // SAFETY: The fragments hold that many bytes.
        unsafe { (*skb.as_raw()).len += paged };
        // SAFETY: As above.
        unsafe { (*skb.as_raw()).data_len = paged };
        for at in 0..linear + paged {
            let byte = (from + at) as u8;
            // SAFETY: The buffer is ours, and has the byte.
            let stored = unsafe {
                bindings::skb_store_bits(skb.as_raw(), at as c_int, (&raw const byte).cast(), 1)
            };
            assert_eq!(stored, 0);
        }
        skb
    }

    fn byte(skb: &SkBuff, at: u32) -> u8 {
        let mut byte = 0u8;
        // SAFETY: The buffer is valid, and there is room for a byte.
        let copied = unsafe {
            bindings::skb_copy_bits(skb.as_raw(), at as c_int, (&raw mut byte).cast(), 1)
        };
        assert_eq!(copied, 0);
        byte
    }

    fn slice(skb: &SkBuff, offset: u32, len: u32) -> Result<SkBuffSlice<'_>> {
        // SAFETY: The buffer is lent, and has no `dst`.
        unsafe { SkBuffSlice::from_raw(skb.as_raw(), offset, len) }
    }

    /// `PARTS` buffers in one: the first, and a list.
    fn joined(linear: u32, paged: u32) -> SkBuff {
        const PARTS: u32 = 3;
        let mut skb = filled(0, linear, paged);
        let truesize = skb.truesize();
        stack_pin_init!(let rest = SkBuffQueue::new());
        for part in 1..PARTS {
            let other = filled(part * (linear + paged), linear, paged);
            rest.as_mut().push_back(other);
        }
        // SAFETY: The buffers are new.
        unsafe { skb.append_frags(rest.as_mut()) }.unwrap();
        assert!(rest.as_mut().pop_front().is_none());
        assert_eq!(skb.len(), PARTS * (linear + paged));
        assert_eq!(skb.data_len(), skb.len() - linear);
        assert_eq!(skb.truesize(), PARTS * truesize);
        skb
    }

    #[test]
    fn appended_buffers_are_read_in_order() {
        for (linear, paged) in [(100, 0), (0, 5000), (7, 5000)] {
            let skb = joined(linear, paged);
            for at in 0..skb.len() {
                assert_eq!(byte(&skb, at), at as u8);
            }
        }
    }

    #[test]
    fn list_is_not_put_into_a_list() {
        stack_pin_init!(let rest = SkBuffQueue::new());
        rest.as_mut().push_back(joined(7, 0));
        // SAFETY: The buffers are new.
        let appended = unsafe { filled(0, 7, 0).append_frags(rest.as_mut()) };
        assert_eq!(appended, Err(EINVAL));
        rest.as_mut().push_back(filled(0, 7, 0));
        // SAFETY: As above.
        let appended = unsafe { joined(7, 0).append_frags(rest.as_mut()) };
        assert_eq!(appended, Err(EINVAL));
    }

    #[test]
    fn slices_of_a_list_are_its_bytes() {
        for (linear, paged) in [(100, 0), (0, 6000), (5000, 0), (10, 20_000)] {
            let skb = joined(linear, paged);
            let len = linear + paged;
            for (offset, len) in [
                (0, len),
                (len, len),
                (2 * len, len),
                (1, len),
                (len - 1, 2),
                (len + 3, len - 3),
                (0, 3 * len),
            ] {
                for share in [false, true] {
                    let new = slice(&skb, offset, len).unwrap().to_skb(44, share).unwrap();
                    assert_eq!(new.len(), len);
                    for at in 0..len {
                        assert_eq!(byte(&new, at), (offset + at) as u8);
                    }
                }
            }
        }
    }

    #[test]
    fn slices_are_within_their_buffer() {
        let skb = filled(0, 10, 0);
        assert!(slice(&skb, 0, 11).is_err());
        assert!(slice(&skb, 10, 1).is_err());
        assert!(slice(&skb, u32::MAX, 1).is_err());
        let all = slice(&skb, 2, 8).unwrap();
        assert_eq!(all.part(3, 5).unwrap().offset(), 5);
        assert!(all.part(3, 6).is_err());
        assert!(all.part(1, u32::MAX).is_err());
    }

    #[test]
    fn no_slice_of_a_buffer_with_more_in_fragments_than_its_length() {
        let skb = filled(0, 0, 6000);
        // SAFETY: The buffer is ours, and freed before anybody reads it.
        unsafe { (*skb.as_raw()).len = 100 };
        assert!(slice(&skb, 0, 100).is_err());
    }
}
