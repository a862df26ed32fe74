// SPDX-License-Identifier: GPL-2.0-only
//! `bench`: how fast the ways to move bytes between sockets are, side by side.
//!
//! An arm is a way to move the bytes: a direct sender, a copy loop, socat, or the sockmap of a
//! kernel. Both ends of each connection are in one guest, so that vsock is its loopback. On the
//! test bed `pair` the far ends of the vsocks are on the guest's host instead.
//!
//! The arms take turns within a boot. The C and the Rust sockmap each need a kernel of their own,
//! so the boots of these kernels take turns as well. Both measure the copy loop too, which shows
//! how much two boots differ.
//!
//! The third kernel is the pristine one: the source without the series. A redirect can stop there,
//! run in an endless loop or use up the memory. So each of its measurements has its own boot, and
//! one that fails is reported but is no error.

mod args;
mod guest;
mod run;
mod work;

pub use self::args::Args;
pub use self::run::run;
