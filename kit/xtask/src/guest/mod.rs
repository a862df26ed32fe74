// SPDX-License-Identifier: GPL-2.0-only
//! Guests: what they run, how they boot, and what their consoles say.

pub mod boot;
pub mod initramfs;
pub mod pair;
pub mod programs;
