// SPDX-License-Identifier: GPL-2.0-only
//! `test`: the kit's unit tests, KUnit, the sockmap selftests, and programs that look for races.
//!
//! The test bed um has the Rust version with KASAN and the other debugging options. It runs KUnit,
//! our selftest, vsock_test in a map, our selftest with allocations that fail, and the stress
//! program.
//!
//! The test bed qemu has lockdep. It runs upstream's sockmap selftests and ours, once with each
//! version, side by side. Every case that passes with C has to pass with Rust.

mod args;
mod compare;
mod guest;
mod kit;
mod kunit;
mod qemu;
mod run;
mod tally;
mod um;
mod vsock_test;

pub use self::args::Args;
pub use self::run::run;
