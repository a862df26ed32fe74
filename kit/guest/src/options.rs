// SPDX-License-Identifier: GPL-2.0-only
//! Parses option values that several commands have.

use std::time::Duration;

/// Parses a number of seconds, which may have a fraction.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
