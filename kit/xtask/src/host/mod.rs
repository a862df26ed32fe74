// SPDX-License-Identifier: GPL-2.0-only
//! The machine that the kit runs on: folders, processes, and the tool root.

pub mod env;
pub mod files;
pub mod proc;
pub mod progress;
pub mod step;
pub mod toolroot;
