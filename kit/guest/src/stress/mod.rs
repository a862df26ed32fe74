// SPDX-License-Identifier: GPL-2.0-only
//! `guest stress`: reads and writes vsock connections in all ways, at random, while their sockets
//! move in and out of sockmaps with programs that pass or redirect.
//!
//! Each connection carries words that count up. A word reaches the owner of the reading socket if
//! the socket is in no map or the program passes it, and the target if the program redirects it.
//! At both places the words must count up, and at the end no word may be missing.

mod connection;
mod faults;
mod maps;
mod pair;
mod queries;
mod read;
mod target;
mod words;
mod write;

pub mod options;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use serde_json::json;

use crate::report::print;
use connection::Done;
use faults::Faults;
use options::Args;
use words::WORD;

/// Runs connections at the same time until the time is over, and prints a report. Returns whether
/// none of them failed.
pub fn run(args: &Args) -> Result<bool> {
    let start = Instant::now();
    let mut rng = Rng::with_seed(args.seed);
    let rngs: Vec<Rng> = (0..args.connections).map(|_| rng.fork()).collect();
    let results: Vec<Result<Done>> = thread::scope(|scope| {
        let threads: Vec<_> = rngs
            .into_iter()
            .map(|rng| scope.spawn(move || one_after_another(args, rng, start)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<_>| thread.join().expect("a thread panicked");
        threads.into_iter().map(join).collect()
    });
    let mut all = Done::default();
    let mut errors = Vec::new();
    for result in results {
        match result {
            Ok(done) => all += done,
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    let ok = errors.is_empty() && all.connections > 0;
    print(json!({
        "seed": args.seed,
        "seconds": start.elapsed().as_secs_f64(),
        "connections": all.connections,
        "bytes": all.words * WORD as u64,
        "changes of maps": all.changes,
        "errors": errors,
    }))?;
    Ok(ok)
}

/// Runs one connection after another until the time is over.
fn one_after_another(args: &Args, mut rng: Rng, start: Instant) -> Result<Done> {
    let mut all = Done::default();
    while start.elapsed() < args.time {
        let time = Duration::from_millis(rng.u64(50..2000));
        all += connection::run(rng.fork(), Faults(args.faults), time)?;
    }
    Ok(all)
}
