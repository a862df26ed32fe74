// SPDX-License-Identifier: GPL-2.0-only
//! The series as mails, and the checks that they pass.

pub mod check;
pub mod manifest;
pub mod series;
