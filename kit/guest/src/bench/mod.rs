// SPDX-License-Identifier: GPL-2.0-only
//! `guest bench`: measures how fast bytes move from one socket to another, of which one is a vsock.
//!
//! There are four arms: the program writes to the vsock itself, a loop copies, socat copies, or a
//! sockmap redirects. All ends are on this machine, over the vsock loopback, unless a peer
//! ([`peer`]) holds the remote ends of the vsocks. Each measurement prints one line of JSON.

mod blocking;
mod connection;
mod end;
mod memory;
mod monitor;
mod open;
mod packets;
mod round_trips;
mod setup;
mod socat;
mod throughput;
mod worker;

pub mod options;
pub mod peer;

use anyhow::{Context, Result};
use serde_json::json;

use crate::report::print;
use monitor::Monitor;
use options::Args;
use setup::{Arm, Path, Setup};

pub fn run(args: &Args) -> Result<bool> {
    memory::report(args)?;
    for &path in &args.paths {
        let setups = args.setups(path);
        for &connections in &args.connections {
            report_throughput(args, path, &setups, connections)?;
        }
        report_round_trips(args, &setups)?;
    }
    Ok(true)
}

/// Measures each size, with `connections` connections at the same time.
fn report_throughput(args: &Args, path: Path, setups: &[Setup], connections: usize) -> Result<()> {
    let Some(&first) = setups.first() else {
        return Ok(());
    };
    // All socats would use the same path for their UNIX socket.
    let setups: Vec<Setup> = setups
        .iter()
        .copied()
        .filter(|setup| setup.arm != Arm::Socat || connections == 1)
        .collect();
    for &size in args.sizes.iter().filter(|size| path.takes(**size)) {
        let bytes = throughput::calibrate(first, size, connections, args.time())?;
        // The arms take turns in each round, so that a slow moment of the machine slows them all.
        for round in 0..args.rounds {
            for setup in &setups {
                report_rate(*setup, size, bytes, connections, round)?;
            }
        }
        let Some(device) = args.monitor.as_deref().filter(|_| connections == 1) else {
            continue;
        };
        for setup in &setups {
            report_packets(*setup, size, device)?;
        }
    }
    Ok(())
}

fn report_rate(
    setup: Setup,
    size: usize,
    bytes: usize,
    connections: usize,
    round: u32,
) -> Result<()> {
    let measured = throughput::measure(setup, size, bytes, connections)
        .with_context(|| format!("{}, {size} bytes", setup.name()))?;
    print(json!({
        "path": setup.path.name(),
        "size": size,
        "connections": connections,
        "arm": setup.arm_name(),
        "round": round,
        "bytes": measured.bytes,
        "of": bytes * connections,
        "mb_s": measured.rate() / 1e6,
        "cpu_ms_mib": measured.busy_per_mib(),
    }))
}

fn report_packets(setup: Setup, size: usize, device: &str) -> Result<()> {
    let packets = packets::count(setup, size, &Monitor::new(device))
        .with_context(|| format!("{}, {size} bytes, packets", setup.name()))?;
    print(json!({
        "path": setup.path.name(),
        "size": size,
        "connections": 1,
        "arm": setup.arm_name(),
        "round": 0,
        "packets_mib": packets.data,
        "updates_mib": packets.updates,
    }))
}

fn report_round_trips(args: &Args, setups: &[Setup]) -> Result<()> {
    let possible = setups.first().is_some_and(|first| first.has_round_trips());
    if args.trips == 0 || !possible {
        return Ok(());
    }
    for round in 0..args.rounds {
        for setup in setups.iter().filter(|setup| setup.arm != Arm::Socat) {
            let times = round_trips::measure(*setup, args.trips)
                .with_context(|| format!("{}, round trips", setup.name()))?;
            print(json!({
                "path": setup.path.name(),
                "arm": setup.arm_name(),
                "round": round,
                "p50_us": times[times.len() / 2],
                "p99_us": times[times.len() * 99 / 100],
            }))?;
        }
    }
    Ok(())
}
