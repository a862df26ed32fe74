// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own bpf selftests, reduced to the sockmap ones: all of them would take an hour.

pub mod build;
pub mod faults;
pub mod guest;
pub mod names;
mod reduce;
pub mod results;
