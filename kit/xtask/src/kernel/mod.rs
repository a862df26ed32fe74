// SPDX-License-Identifier: GPL-2.0-only
//! The kernel: from its source to an image that boots.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`base`] | reads which kernel source the series is made for |
//! | [`source`] | fetches that source |
//! | [`patch`] | applies a patch to the content of files |
//! | [`changes`] | reads what the repository changes in Linux: overlay files and patches |
//! | [`tree`] | makes the work tree: source, overlay files and patches |
//! | [`flavour`] | names the kernels that can be built |
//! | [`make`] | runs the kernel's make |
//! | [`config`] | configures a kernel |
//! | [`build`] | builds a kernel and keeps its image |
//! | [`prepare`] | does all these steps, as far as a verb needs them |

pub mod base;
pub mod build;
pub mod changes;
pub mod config;
pub mod flavour;
pub mod make;
pub mod patch;
pub mod prepare;
pub mod source;
pub mod tree;
