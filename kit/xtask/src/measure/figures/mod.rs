// SPDX-License-Identifier: GPL-2.0-only
//! The measurements, and the conclusions from them: medians, ratios, and which goals are met.

pub mod goals;
pub mod measured;
pub mod results;
pub mod rows;
#[cfg(test)]
pub mod samples;
pub mod table;
