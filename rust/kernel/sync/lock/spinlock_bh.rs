// SPDX-License-Identifier: GPL-2.0

//! A kernel spinlock that keeps softirqs away.
//!
//! This module allows Rust code to use a `spinlock_t` that C code takes with `spin_lock_bh()`.

use super::*;
use crate::prelude::*;

/// A spinlock that is taken with softirqs disabled on this CPU.
///
/// For data that process context and softirqs share. Most of the locks in the network stack are of
/// this kind; [`Lock::from_raw`] makes a reference to one of those.
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// A kernel `spinlock_t` lock backend that disables softirqs.
pub struct SpinLockBhBackend;

/// A [`Guard`] acquired from locking a [`SpinLockBh`].
pub type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

// SAFETY: The underlying kernel `spinlock_t` object ensures mutual exclusion. `relock` uses the
// default implementation that always calls the same locking method.
unsafe impl Backend for SpinLockBhBackend {
    type State = bindings::spinlock_t;
    type GuardState = ();

    #[inline]
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: The safety requirements ensure that `ptr` is valid for writes, and `name` and
        // `key` are valid for read indefinitely.
        unsafe { bindings::__spin_lock_init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The safety requirements of this function ensure that `ptr` points to an
        // initialised lock.
        unsafe { bindings::spin_lock_bh(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, _guard_state: &Self::GuardState) {
        // SAFETY: The safety requirements of this function ensure that the caller owns the lock.
        unsafe { bindings::spin_unlock_bh(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: The safety requirements of this function ensure that `ptr` points to an
        // initialised lock.
        (unsafe { bindings::spin_trylock_bh(ptr) } != 0).then_some(())
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        // SAFETY: The safety requirements of this function ensure that `ptr` points to an
        // initialised lock.
        unsafe { bindings::spin_assert_is_held(ptr) }
    }
}
