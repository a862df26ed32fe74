// SPDX-License-Identifier: GPL-2.0-only
//! The options of `guest stress`.

use std::time::Duration;

use crate::options::seconds;

#[derive(clap::Args)]
pub struct Args {
    /// Seed of all random decisions; the same seed repeats them, though not the timing
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long to make new connections
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    pub time: Duration,
    /// Number of connections at the same time
    #[arg(long, default_value_t = 3)]
    pub connections: u32,
    /// Ask the kernel to fail allocations, and accept calls that fail for lack of memory
    #[arg(long)]
    pub faults: bool,
}
