// SPDX-License-Identifier: GPL-2.0-only
//! The kernel: its source, the work tree, and the images that are built from it.

pub mod base;
pub mod build;
pub mod prepare;
pub mod source;
pub mod tree;
