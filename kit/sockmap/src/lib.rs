// SPDX-License-Identifier: GPL-2.0-only
//! Maps of sockets, and verdict programs of a few instructions for them.
//!
//! The programs are so small that they are written as instructions. So this library needs no object
//! file and no BTF. It works in a preloaded library, and on a kernel without BTF.

mod bpf;

use std::ffi::c_long;
use std::io::Result;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use bpf::{attr, bpf, owned, Attach, Create, Element, Load};

const BPF_FUNC_SK_REDIRECT_HASH: u32 = 72;

/// Returns the code of an instruction.
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

/// A sockhash with keys of eight bytes.
pub struct Map(OwnedFd);

impl Map {
    /// Makes an empty map.
    pub fn new(max_entries: u32) -> Result<Self> {
        let mut attr = attr();
        attr.create = Create {
            map_type: bpf::BPF_MAP_TYPE_SOCKHASH,
            key_size: 8,
            value_size: 8,
            max_entries,
        };
        Ok(Map(owned(bpf(bpf::BPF_MAP_CREATE, &attr)?)))
    }

    /// Puts a socket into the map. It replaces a socket that has the same key.
    pub fn insert(&self, key: u64, socket: BorrowedFd) -> Result<()> {
        let value = socket.as_raw_fd() as u64;
        let mut attr = attr();
        attr.element = Element {
            map_fd: self.0.as_raw_fd() as u64,
            key: &raw const key as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        bpf(bpf::BPF_MAP_UPDATE_ELEM, &attr)?;
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
        bpf(bpf::BPF_MAP_DELETE_ELEM, &attr)?;
        Ok(())
    }

    /// Attaches a program. It gives the verdict on packets of sockets that enter the map after
    /// this.
    pub fn attach(&self, program: &Program) -> Result<()> {
        self.attachment(bpf::BPF_PROG_ATTACH, program)
    }

    /// Detaches a program.
    pub fn detach(&self, program: &Program) -> Result<()> {
        self.attachment(bpf::BPF_PROG_DETACH, program)
    }

    fn attachment(&self, command: c_long, program: &Program) -> Result<()> {
        let mut attr = attr();
        attr.attach = Attach {
            target_fd: self.0.as_raw_fd() as u32,
            attach_bpf_fd: program.0.as_raw_fd() as u32,
            attach_type: bpf::BPF_SK_SKB_VERDICT,
        };
        bpf(command, &attr)?;
        Ok(())
    }
}

/// A verdict program.
pub struct Program(OwnedFd);

impl Program {
    /// Loads a program that passes each packet to its own socket.
    pub fn pass() -> Result<Self> {
        Self::load(&[mov(0, SK_PASS), EXIT])
    }

    /// Loads a program that drops each packet.
    pub fn drop_all() -> Result<Self> {
        Self::load(&[mov(0, SK_DROP), EXIT])
    }

    /// Loads a program that redirects each packet to the socket with `key` in `map`, which sends
    /// it.
    pub fn redirect(map: &Map, key: u32) -> Result<Self> {
        let fd = map.0.as_raw_fd() as u32;
        Self::load(&[
            // *(u64 *)(r10 - 8) = key
            insn(0x7a, 10, 0, -8, key),
            // r2 = map, an instruction of two parts
            insn(0x18, 2, 1, 0, fd),
            0,
            // r3 = r10 - 8, the address of the key
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
            prog_type: bpf::BPF_PROG_TYPE_SK_SKB,
            insn_cnt: insns.len() as u32,
            insns: insns.as_ptr() as u64,
            license: license.as_ptr() as u64,
        };
        Ok(Program(owned(bpf(bpf::BPF_PROG_LOAD, &attr)?)))
    }
}
