// SPDX-License-Identifier: GPL-2.0-only
//! Measures the kernel memory of idle connections.

use std::fs;

use anyhow::{Context, Result};
use nix::sys::resource::{setrlimit, Resource};
use serde_json::json;

use super::open::open;
use super::options::Args;
use super::setup::Arm;
use crate::report::print;

/// How many connections are measured together.
const CONNECTIONS: usize = 32;

/// Returns the kernel memory that grows with sockets and maps, in KiB.
fn kernel_memory() -> Result<f64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let field = |name: &str| -> Option<f64> {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let parts = ["Slab:", "VmallocUsed:", "Percpu:"].map(field);
    parts
        .into_iter()
        .sum::<Option<f64>>()
        .context("a field of /proc/meminfo is missing")
}

/// Prints how much kernel memory an idle redirected connection takes, with its maps and programs.
///
/// All connections stay open until the end. If one closed, the next would use its memory again, and
/// the result would be too small.
pub fn report(args: &Args) -> Result<()> {
    let files = (16 * (CONNECTIONS + 1) * args.paths.len()).max(1 << 12);
    setrlimit(Resource::RLIMIT_NOFILE, files as u64, files as u64)
        .with_context(|| format!("cannot raise the limit of open files to {files}: run as root"))?;
    let mut kept = Vec::new();
    for &path in &args.paths {
        let setups = args.setups(path).into_iter();
        for setup in setups.filter(|setup| setup.arm == Arm::Sockmap) {
            // Allocations that happen only once happen for the first connection.
            kept.push(open(setup).with_context(|| setup.name())?);
            let before = kernel_memory()?;
            for _ in 0..CONNECTIONS {
                kept.push(open(setup).with_context(|| setup.name())?);
            }
            print(json!({
                "path": path.name(),
                "arm": setup.arm_name(),
                "round": 0,
                "idle_kib": (kernel_memory()? - before) / CONNECTIONS as f64,
            }))?;
        }
    }
    Ok(())
}
