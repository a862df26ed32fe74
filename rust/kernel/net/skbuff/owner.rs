// SPDX-License-Identifier: GPL-2.0

//! The owner of a socket buffer: `skb->sk` refers to it, and `skb->destructor` releases it.

use super::SkBuff;

use crate::{
    bindings,
    net::sock::Sock,
    prelude::*,
    sync::aref::ARef, //
};

use core::ptr::{
    self,
    NonNull, //
};

/// A value that a buffer holds, and drops when the buffer is freed or gets another owner.
///
/// The value is stored as a reference to a socket and a number. A buffer has room for these two, so
/// setting the owner of a buffer does not allocate memory.
pub trait SkBuffOwner: Send + 'static {
    /// Splits the value into the two parts that the buffer stores.
    ///
    /// # Context
    ///
    /// Any context. Must not sleep.
    fn into_parts(self) -> (ARef<Sock>, usize);

    /// Builds the value again from its two parts.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Must not sleep.
    ///
    /// # Safety
    ///
    /// The two parts must come from one call of [`SkBuffOwner::into_parts`], and may be used only
    /// once.
    unsafe fn from_parts(sk: ARef<Sock>, number: usize) -> Self;
}

impl SkBuff {
    /// Makes `sk` the owner of the buffer if `skb->sk` is null.
    ///
    /// The buffer holds a reference to `sk` until it is freed or gets another owner. No memory is
    /// charged to `sk`.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// [`ENOENT`] if `sk` is being freed.
    ///
    /// C function: `skb_set_owner_sk_safe()` in [`include/net/sock.h`](srctree/include/net/sock.h)
    pub fn set_owner_sk_safe(&mut self, sk: &Sock) -> Result {
        // SAFETY: The buffer is valid by the type invariant.
        if !unsafe { (*self.as_raw()).sk }.is_null() {
            return Ok(());
        }
        // SAFETY: By the type invariants the buffer is valid and this value has the only reference,
        // and `sk` is live.
        if unsafe { bindings::skb_set_owner_sk_safe(self.as_raw(), sk.as_raw()) } {
            Ok(())
        } else {
            Err(ENOENT)
        }
    }

    /// Makes `sk` the owner of the buffer, and charges the buffer's memory to the send buffer of
    /// `sk` until the buffer is freed or gets another owner.
    ///
    /// Drops the owner that the buffer had.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no lock.
    ///
    /// C function: `skb_set_owner_w()` in [`net/core/sock.c`](srctree/net/core/sock.c)
    pub fn set_owner_w(&mut self, sk: &Sock) {
        // SAFETY: By the type invariants the buffer is valid and this value has the only reference,
        // and `sk` is live.
        unsafe { bindings::skb_set_owner_w(self.as_raw(), sk.as_raw()) };
    }

    /// Gives the buffer an owner, and drops the owner that the buffer had.
    ///
    /// Sets `skb->sk` to the socket of `owner`.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no lock.
    ///
    /// # Errors
    ///
    /// `owner` itself, if the buffer holds pages of user space (`MSG_ZEROCOPY`) or has clones. A
    /// zerocopy buffer uses the field that would hold the number of the owner. A cloned buffer
    /// shares that field with its clones.
    ///
    /// # Safety
    ///
    /// The buffer may be freed, or given to another owner, only where a `T` may be dropped.
    pub unsafe fn set_owner<T: SkBuffOwner>(&mut self, owner: T) -> Result<(), T> {
        // SAFETY: The buffer is valid by the type invariant.
        let zerocopy = !unsafe { bindings::skb_zcopy(self.as_raw()) }.is_null();
        // SAFETY: The buffer is valid by the type invariant.
        if zerocopy || unsafe { bindings::skb_cloned(self.as_raw()) } != 0 {
            return Err(owner);
        }
        // SAFETY: By the type invariant the buffer is valid and this value has the only reference.
        unsafe { bindings::skb_orphan(self.as_raw()) };

        let (sk, number) = owner.into_parts();
        // SAFETY: The shared info is valid, and no clone shares it. The field is used only by
        // zerocopy buffers, and this is not one.
        unsafe {
            (*self.shinfo()).__bindgen_anon_2.destructor_arg = ptr::without_provenance_mut(number)
        };
        // SAFETY: By the type invariant the buffer is valid and this value has the only reference.
        // It has no owner after `skb_orphan()`. `Sock` is a transparent wrapper of `struct sock`.
        unsafe { (*self.as_raw()).sk = ARef::into_raw(sk).as_ptr().cast() };
        self.set_destructor(Some(drop_owner::<T>));
        Ok(())
    }

    /// Takes the owner back, and leaves the buffer without an owner.
    ///
    /// Returns [`None`] if the buffer has no owner.
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no lock.
    ///
    /// # Safety
    ///
    /// If the buffer has an owner, [`SkBuff::set_owner`] must have set it, with the same `T`.
    pub unsafe fn take_owner<T: SkBuffOwner>(&mut self) -> Option<T> {
        // SAFETY: The buffer is valid by the type invariant.
        let sk = NonNull::new(unsafe { (*self.as_raw()).sk })?;
        // SAFETY: By the type invariant the buffer is valid and this value has the only reference.
        // The destructor uses the field, and is removed below.
        unsafe { (*self.as_raw()).sk = ptr::null_mut() };
        self.set_destructor(None);
        // SAFETY: The shared info is valid. By the safety requirements `set_owner()` wrote the
        // field.
        let number = unsafe { (*self.shinfo()).__bindgen_anon_2.destructor_arg }.addr();
        // SAFETY: The buffer held a reference to `sk`, and has given it up.
        let sk = unsafe { ARef::from_raw(sk.cast()) };
        // SAFETY: By the safety requirements `set_owner()` got the parts from a `T`. The buffer has
        // given them up, so this is their only use.
        Some(unsafe { T::from_parts(sk, number) })
    }

    fn set_destructor(&mut self, destructor: Option<unsafe extern "C" fn(*mut bindings::sk_buff)>) {
        // SAFETY: By the type invariant the buffer is valid and this value has the only reference.
        // In the union, the destructor overlaps only `tcp_tsorted_anchor`, which buffers in a TCP
        // queue use. This buffer is in no queue.
        unsafe {
            (*self.as_raw())
                .__bindgen_anon_3
                .__bindgen_anon_1
                .destructor = destructor
        };
    }
}

/// Drops the owner of a buffer. This is the buffer's `destructor`.
///
/// # Context
///
/// Any context but hard interrupt. Does not sleep.
///
/// # Safety
///
/// `skb` must be valid. If it has an owner, [`SkBuff::set_owner`] must have set it, with the same
/// `T`. The caller must not use the owner afterwards.
unsafe extern "C" fn drop_owner<T: SkBuffOwner>(skb: *mut bindings::sk_buff) {
    // SAFETY: The buffer is valid by the safety requirements.
    let Some(sk) = NonNull::new(unsafe { (*skb).sk }) else {
        return;
    };
    // SAFETY: The buffer is valid by the safety requirements.
    let shinfo = unsafe { bindings::skb_shinfo(skb) };
    // SAFETY: The shared info of a valid buffer is valid. By the safety requirements `set_owner()`
    // wrote the field.
    let number = unsafe { (*shinfo).__bindgen_anon_2.destructor_arg }.addr();
    // SAFETY: The buffer holds a reference to `sk`, which the caller does not use afterwards.
    let sk = unsafe { ARef::from_raw(sk.cast()) };
    // SAFETY: By the safety requirements `set_owner()` got the parts from a `T`, and the caller
    // does not use them afterwards.
    drop(unsafe { T::from_parts(sk, number) });
}
