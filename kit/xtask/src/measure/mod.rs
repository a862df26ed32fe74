// SPDX-License-Identifier: GPL-2.0-only
//! The verbs that measure: `demo` and `bench`, and the report on what `bench` measured.
//!
//! Each module uses only those above it:
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`figures`] | what was measured: the JSON file, medians and ratios, performance goals |
//! | [`plot`] | throughput as pictures |
//! | [`report`] | docs/benchmarks.md, from the JSON files |
//! | [`bench`] | the verb that measures, or writes the report |
//! | [`demo`] | the verb that compares the redirectors of one experiment |

pub mod bench;
pub mod demo;
mod figures;
mod plot;
pub mod report;
