// SPDX-License-Identifier: GPL-2.0-only
//! vsock_test in a map: the kernel's own vsock_test and vsock_perf, and socat, with each connected
//! socket in a sockmap.
//!
//! They run unchanged, and also outside of a map. They are the oracle for the rule that a vsock in
//! a sockmap is transparent: the map must make no difference to them.

pub mod build;
pub mod cases;
pub mod guest;
pub mod results;
