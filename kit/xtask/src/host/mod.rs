// SPDX-License-Identifier: GPL-2.0-only
//! The machine that the kit runs on. [`env`] has its folders and locks, [`files`] has cache keys
//! and atomic writes, [`proc`] and [`step`] run programs, [`progress`] shows progress, and
//! [`toolroot`] is the Debian folder that has all tools.

pub mod env;
pub mod files;
pub mod proc;
pub mod progress;
pub mod step;
pub mod toolroot;
