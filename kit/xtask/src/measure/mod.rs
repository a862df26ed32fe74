// SPDX-License-Identifier: GPL-2.0-only
//! The verbs that measure: `demo` and `bench`.

pub mod bench;
pub mod demo;
