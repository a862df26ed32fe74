// SPDX-License-Identifier: GPL-2.0-only
//! Maps of sockets, and programs of a few instructions for them.
//!
//! The programs here are so small that they are written as instructions: that needs neither an
//! object file nor BTF, so that it works in a preloaded library and on a kernel without BTF.

use std::ffi::c_long;
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The start of the kernel's `union bpf_attr`, for the commands used here.
#[repr(C)]
#[derive(Clone, Copy)]
union Attr {
    create: Create,
    load: Load,
    attach: Attach,
    element: Element,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Create {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Attach {
    target_fd: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Element {
    map_fd: u64,
    key: u64,
    value: u64,
    flags: u64,
}

const BPF_MAP_CREATE: c_long = 0;
const BPF_MAP_UPDATE_ELEM: c_long = 2;
const BPF_MAP_DELETE_ELEM: c_long = 3;
const BPF_PROG_LOAD: c_long = 5;
const BPF_PROG_ATTACH: c_long = 8;
const BPF_PROG_DETACH: c_long = 9;
const BPF_MAP_TYPE_SOCKHASH: u32 = 18;
const BPF_PROG_TYPE_SK_SKB: u32 = 14;
const BPF_SK_SKB_VERDICT: u32 = 38;
const BPF_FUNC_SK_REDIRECT_HASH: u32 = 72;

/// One instruction: code, registers, offset and immediate value.
const fn insn(code: u8, dst: u8, src: u8, offset: i16, imm: u32) -> u64 {
    code as u64
        | (dst as u64) << 8
        | (src as u64) << 12
        | (offset as u16 as u64) << 16
        | (imm as u64) << 32
}

const fn mov(dst: u8, imm: u32) -> u64 {
    insn(0xb7, dst, 0, 0, imm)
}

const EXIT: u64 = insn(0x95, 0, 0, 0, 0);
const SK_DROP: u32 = 0;
const SK_PASS: u32 = 1;

fn bpf(command: c_long, attr: &Attr) -> Result<i32> {
    loop {
        // SAFETY: The attribute is initialised and as long as it says; what it points to is alive.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr, size_of::<Attr>()) };
        if result >= 0 {
            return Ok(result as i32);
        }
        let error = Error::last_os_error();
        // The verifier stops when a signal comes.
        if command != BPF_PROG_LOAD || error.raw_os_error() != Some(libc::EAGAIN) {
            return Err(error);
        }
    }
}

/// An attribute of zeros.
fn attr() -> Attr {
    Attr {
        element: Element {
            map_fd: 0,
            key: 0,
            value: 0,
            flags: 0,
        },
    }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: The kernel has just made the descriptor for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A sockhash with keys of eight bytes.
pub struct Map(OwnedFd);

impl Map {
    /// Makes an empty one.
    pub fn new(max_entries: u32) -> Result<Self> {
        let mut attr = attr();
        attr.create = Create {
            map_type: BPF_MAP_TYPE_SOCKHASH,
            key_size: 8,
            value_size: 8,
            max_entries,
        };
        Ok(Map(owned(bpf(BPF_MAP_CREATE, &attr)?)))
    }

    /// Puts a socket into the map, in place of one that has the key.
    pub fn insert(&self, key: u64, socket: BorrowedFd) -> Result<()> {
        let value = socket.as_raw_fd() as u64;
        let mut attr = attr();
        attr.element = Element {
            map_fd: self.0.as_raw_fd() as u64,
            key: &raw const key as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        bpf(BPF_MAP_UPDATE_ELEM, &attr)?;
        Ok(())
    }

    /// Takes a socket out of the map.
    pub fn delete(&self, key: u64) -> Result<()> {
        let mut attr = attr();
        attr.element = Element {
            map_fd: self.0.as_raw_fd() as u64,
            key: &raw const key as u64,
            value: 0,
            flags: 0,
        };
        bpf(BPF_MAP_DELETE_ELEM, &attr)?;
        Ok(())
    }

    /// Lets a program judge what arrives at the sockets that enter the map from now on.
    pub fn attach(&self, program: &Program) -> Result<()> {
        self.attachment(BPF_PROG_ATTACH, program)
    }

    /// Undoes [`Self::attach`].
    pub fn detach(&self, program: &Program) -> Result<()> {
        self.attachment(BPF_PROG_DETACH, program)
    }

    fn attachment(&self, command: c_long, program: &Program) -> Result<()> {
        let mut attr = attr();
        attr.attach = Attach {
            target_fd: self.0.as_raw_fd() as u32,
            attach_bpf_fd: program.0.as_raw_fd() as u32,
            attach_type: BPF_SK_SKB_VERDICT,
        };
        bpf(command, &attr)?;
        Ok(())
    }
}

/// A verdict.
pub struct Program(OwnedFd);

impl Program {
    /// Passes everything.
    pub fn pass() -> Result<Self> {
        Self::load(&[mov(0, SK_PASS), EXIT])
    }

    /// Drops everything.
    pub fn drop_all() -> Result<Self> {
        Self::load(&[mov(0, SK_DROP), EXIT])
    }

    /// Redirects everything to the socket with a key in a map, to be sent by it.
    pub fn redirect(map: &Map, key: u32) -> Result<Self> {
        let fd = map.0.as_raw_fd() as u32;
        Self::load(&[
            // The key on the stack.
            insn(0x7a, 10, 0, -8, key),
            // r2 = the map, in two halves
            insn(0x18, 2, 1, 0, fd),
            0,
            // r3 = r10 - 8
            insn(0xbf, 3, 10, 0, 0),
            insn(0x07, 3, 0, 0, -8_i32 as u32),
            mov(4, 0),
            insn(0x85, 0, 0, 0, BPF_FUNC_SK_REDIRECT_HASH),
            EXIT,
        ])
    }

    fn load(insns: &[u64]) -> Result<Self> {
        let license = c"GPL";
        let mut attr = attr();
        attr.load = Load {
            prog_type: BPF_PROG_TYPE_SK_SKB,
            insn_cnt: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            license: license.as_ptr() as u64,
        };
        Ok(Program(owned(bpf(BPF_PROG_LOAD, &attr)?)))
    }
}
