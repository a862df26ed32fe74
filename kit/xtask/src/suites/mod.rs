// SPDX-License-Identifier: GPL-2.0-only
//! The test suites, and the verbs `test` and `stress` that run them.

pub mod oracle;
pub mod selftests;
pub mod stress;
pub mod test;
pub mod vmtest;
