// SPDX-License-Identifier: GPL-2.0-only
//! The checks of `cargo xtask check`, by subject.

pub mod docs;
pub mod imports;
pub mod kernel;
pub mod kit;
pub mod series;
pub mod subject;
pub mod texts;
