// SPDX-License-Identifier: GPL-2.0

//! A kernel spinlock that is taken with softirqs disabled.
//!
//! This module lets Rust code take a `spinlock_t` that C code takes with `spin_lock_bh()`.

use super::*;
use crate::prelude::*;

/// A spinlock that disables softirqs on the local CPU while it is held.
///
/// Such a lock protects data that process context and softirqs share. Many locks of the network
/// stack are of this kind. [`Lock::from_raw`] makes a reference to a lock that C code owns.
///
/// # Context
///
/// Process context or softirq. Does not sleep. The caller must not sleep while it holds the lock.
pub type SpinLockBh<T> = Lock<T, SpinLockBhBackend>;

/// A [`Lock`] backend: a kernel `spinlock_t` that is taken by `spin_lock_bh()`.
pub struct SpinLockBhBackend;

/// The [`Guard`] of a locked [`SpinLockBh`]: dropping it releases the lock and enables softirqs.
pub type SpinLockBhGuard<'a, T> = Guard<'a, T, SpinLockBhBackend>;

// SAFETY: The underlying kernel `spinlock_t` object ensures mutual exclusion. The default `relock`
// takes the lock by the same method as `lock`.
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
