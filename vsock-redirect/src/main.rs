// SPDX-License-Identifier: GPL-2.0-only
//! `vsock-redirect`: what `socat` does with a UNIX socket and a vsock, inside the kernel.
//!
//! A BPF program (bpf/redirect.bpf.c) on a sockmap sends every packet that one socket receives to
//! the other; the tool only sets this up, watches for ends and errors, and takes it down without
//! losing anything.
//!
//! The BPF side is loaded with [aya](aya): it is Rust throughout, so the tool is one static binary
//! with neither libbpf nor libelf in it, and it needs no BTF of the running kernel.

mod address;
mod datagrams;
mod end;
mod redirect;
mod socket_file;
mod stats;
mod streams;
mod sys;

use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use address::{Peer, Source};
use stats::{Meter, Tally};
use sys::Stop;

/// Moves data from a UNIX socket to a vsock inside the kernel
///
/// SIGTERM and SIGINT end it: what was accepted is sent on, and the socket file is removed.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// unix-recv:PATH (datagrams, one way) or unix-listen:PATH (a stream, both ways)
    source: Source,
    /// vsock-connect:CID:PORT; the CID may be `host` (2) or `local` (1)
    peer: Peer,
    /// Print bytes and rates to stderr once a second
    #[arg(long)]
    stats: bool,
    /// Clients never shut down only their sending side: redirect answers from the start
    ///
    /// When a client does so nevertheless, answers that are queued in the kernel at that moment
    /// are lost. Without this option they are copied in user space until then.
    #[arg(long)]
    no_half_close: bool,
    /// How long a stop waits for the receiver to take what was accepted
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain_limit: u64,
}

/// What both modes share.
struct Tool {
    half_close: bool,
    stop: Arc<Stop>,
    to_vsock: Arc<Tally>,
    to_unix: Arc<Tally>,
    signals: SignalFd,
    meter: Option<Meter>,
    both_ways: bool,
    next: Instant,
}

const TICK: Duration = Duration::from_secs(1);

impl Tool {
    fn new(arguments: &Arguments) -> Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGINT);
        set.thread_block()?;
        Ok(Tool {
            half_close: !arguments.no_half_close,
            stop: Arc::new(Stop::new(Duration::from_secs(arguments.drain_limit))?),
            to_vsock: Arc::default(),
            to_unix: Arc::default(),
            signals: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            meter: arguments.stats.then(Meter::new),
            both_ways: matches!(arguments.source, Source::Stream(_)),
            next: Instant::now() + TICK,
        })
    }

    fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Whether there was a signal. It starts the time limit; a second one kills as usual.
    fn take_signal(&mut self) -> bool {
        match self.signals.read_signal() {
            Ok(Some(_)) => {
                self.stop.raise();
                let _ = SigSet::all().thread_unblock();
                true
            }
            _ => false,
        }
    }

    fn next_tick(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    fn tick(&mut self) {
        if Instant::now() >= self.next {
            self.next = Instant::now() + TICK;
            self.print_stats();
        }
    }

    fn print_stats(&mut self) {
        if let Some(meter) = &mut self.meter {
            let directions = [("to vsock", &*self.to_vsock), ("to unix", &*self.to_unix)];
            meter.print(&directions[..if self.both_ways { 2 } else { 1 }]);
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let mut tool = Tool::new(arguments)?;
    match &arguments.source {
        Source::Datagrams(path) => datagrams::run(&mut tool, path, arguments.peer),
        Source::Stream(path) => streams::run(&mut tool, path, arguments.peer),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vsock-redirect: {error:#}");
            ExitCode::FAILURE
        }
    }
}
