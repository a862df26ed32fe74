// SPDX-License-Identifier: GPL-2.0-only
//! The counters that the BPF program and user space share.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};

/// The layout of `struct shared` in bpf/redirect.bpf.c.
#[repr(C)]
struct Layout {
    bytes: AtomicU64,
    packets: AtomicU64,
    passed: AtomicU64,
    taken: AtomicU64,
}

/// A mapping of the only element of the map `shared`.
///
/// # Invariants
///
/// The pointer is to a shared mapping of a `Layout`, which lives as long as this object.
pub struct Shared(NonNull<Layout>);

// SAFETY: The mapping belongs to the process, not to a thread, and all its fields are atomic.
unsafe impl Send for Shared {}
// SAFETY: As above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps the element.
    pub fn new(map: BorrowedFd<'_>) -> io::Result<Self> {
        let length = size_of::<Layout>().try_into().expect("not zero");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: The kernel chooses the address of the new mapping, so it replaces no other one.
        let address = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, map, 0) }?;
        Ok(Shared(address.cast()))
    }

    fn layout(&self) -> &Layout {
        // SAFETY: By the type invariant, the mapping lives as long as `self`. It is page aligned,
        // the value of the map has this layout, and each bit pattern is valid.
        unsafe { self.0.as_ref() }
    }

    /// Returns the bytes that the program redirected.
    pub fn bytes(&self) -> u64 {
        self.layout().bytes.load(Ordering::Acquire)
    }

    /// Returns the packets that the program redirected.
    pub fn packets(&self) -> u64 {
        self.layout().packets.load(Ordering::Acquire)
    }

    /// Returns the bytes that the program passed to the owner of the source.
    pub fn passed(&self) -> u64 {
        self.layout().passed.load(Ordering::Acquire)
    }

    /// Returns how many of the passed bytes user space has taken.
    pub fn taken(&self) -> u64 {
        self.layout().taken.load(Ordering::Acquire)
    }

    pub fn set_taken(&self, bytes: u64) {
        self.layout().taken.store(bytes, Ordering::Release);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping with this length, and no borrow of it outlives `self`.
        let _ = unsafe { munmap(self.0.cast(), size_of::<Layout>()) };
    }
}
