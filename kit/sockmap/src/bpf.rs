// SPDX-License-Identifier: GPL-2.0-only
//! Calls bpf(2), with the few commands that sockmaps need.

use std::ffi::c_long;
use std::io::{Error, Result};
use std::os::fd::{FromRawFd, OwnedFd};

/// The start of `union bpf_attr` of the kernel, as far as the commands below need it.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Attr {
    pub create: Create,
    pub load: Load,
    pub attach: Attach,
    pub element: Element,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Create {
    pub map_type: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Load {
    pub prog_type: u32,
    pub insn_cnt: u32,
    pub insns: u64,
    pub license: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Attach {
    pub target_fd: u32,
    pub attach_bpf_fd: u32,
    pub attach_type: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Element {
    pub map_fd: u64,
    pub key: u64,
    pub value: u64,
    pub flags: u64,
}

pub const BPF_MAP_CREATE: c_long = 0;
pub const BPF_MAP_UPDATE_ELEM: c_long = 2;
pub const BPF_MAP_DELETE_ELEM: c_long = 3;
pub const BPF_PROG_LOAD: c_long = 5;
pub const BPF_PROG_ATTACH: c_long = 8;
pub const BPF_PROG_DETACH: c_long = 9;
pub const BPF_MAP_TYPE_SOCKHASH: u32 = 18;
pub const BPF_PROG_TYPE_SK_SKB: u32 = 14;
pub const BPF_SK_SKB_VERDICT: u32 = 38;

/// Calls bpf(2).
pub fn bpf(command: c_long, attr: &Attr) -> Result<i32> {
    loop {
        // SAFETY: The attribute is initialised and has the length that the call says. Callers keep
        // alive all memory that it points to.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<Attr>()) };
        if result >= 0 {
            return Ok(result as i32);
        }
        let error = Error::last_os_error();
        // The verifier stops at a signal, and can start again.
        if command != BPF_PROG_LOAD || error.raw_os_error() != Some(libc::EAGAIN) {
            return Err(error);
        }
    }
}

/// Returns an attribute of zeros.
pub fn attr() -> Attr {
    Attr {
        element: Element {
            map_fd: 0,
            key: 0,
            value: 0,
            flags: 0,
        },
    }
}

/// Takes over a descriptor that bpf(2) returned.
pub fn owned(fd: i32) -> OwnedFd {
    // SAFETY: The kernel has just made the descriptor, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
