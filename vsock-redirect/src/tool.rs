// SPDX-License-Identifier: GPL-2.0-only
//! The state that both forms share: signals, statistics and the time limit of the end.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::stats::{Meter, Tally};
use crate::stop::Stop;

const TICK: Duration = Duration::from_secs(1);

pub struct Options {
    /// Clients may shut down only their sending side, and still wait for answers.
    pub half_close: bool,
    pub drain_limit: Duration,
    pub stats: bool,
    pub both_ways: bool,
}

pub struct Tool {
    pub half_close: bool,
    pub stop: Arc<Stop>,
    pub to_vsock: Arc<Tally>,
    pub to_unix: Arc<Tally>,
    signals: SignalFd,
    meter: Option<Meter>,
    both_ways: bool,
    next: Instant,
}

impl Tool {
    pub fn new(options: Options) -> Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGINT);
        set.thread_block()?;
        Ok(Tool {
            half_close: options.half_close,
            stop: Arc::new(Stop::new(options.drain_limit)?),
            to_vsock: Arc::default(),
            to_unix: Arc::default(),
            signals: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            meter: options.stats.then(Meter::new),
            both_ways: options.both_ways,
            next: Instant::now() + TICK,
        })
    }

    /// Returns a descriptor that is readable when there is a signal.
    pub fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Returns whether there was a signal. The first signal starts the time limit. It also unblocks
    /// all signals, so that a second one kills the process.
    pub fn take_signal(&mut self) -> bool {
        match self.signals.read_signal() {
            Ok(Some(_)) => {
                self.stop.raise();
                let _ = SigSet::all().thread_unblock();
                true
            }
            _ => false,
        }
    }

    /// Returns the time until [`Self::tick`] has work to do.
    pub fn next_tick(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Prints statistics if a second has passed.
    pub fn tick(&mut self) {
        if Instant::now() >= self.next {
            self.next = Instant::now() + TICK;
            self.print_stats();
        }
    }

    pub fn print_stats(&mut self) {
        if let Some(meter) = &mut self.meter {
            let directions = [("to vsock", &*self.to_vsock), ("to unix", &*self.to_unix)];
            meter.print(&directions[..if self.both_ways { 2 } else { 1 }]);
        }
    }
}
