// SPDX-License-Identifier: GPL-2.0-only
//! Prints results as lines of JSON.

use std::io::{self, Write};

use anyhow::Result;

/// Prints one line.
pub fn print(value: serde_json::Value) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()?;
    Ok(())
}

/// Returns the rate in MB/s (10^6 bytes per second), and 0 if no time has passed.
pub fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 / seconds / 1e6
    } else {
        0.0
    }
}
