// SPDX-License-Identifier: GPL-2.0-only
//! Guests: the kernels that the kit boots, and what runs in them.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`programs`] | builds the repository's programs for guests |
//! | [`initramfs`] | packs programs and files into an initramfs |
//! | [`machine`] | starts User-Mode Linux or QEMU |
//! | [`outcome`] | reads in the console of a guest how a boot went |
//! | [`boot`] | boots a guest and ends it in time |
//! | [`pair`] | boots a host, and a guest inside it |

pub mod boot;
pub mod initramfs;
pub mod machine;
pub mod outcome;
pub mod pair;
pub mod programs;
