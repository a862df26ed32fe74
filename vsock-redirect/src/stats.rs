// SPDX-License-Identifier: GPL-2.0-only
//! `--stats`: prints the bytes and rates of each direction, from the counters of the BPF programs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::redirect::Shared;

/// The counters of one direction, over all connections since the start.
#[derive(Default)]
pub struct Tally {
    /// Bytes that user space received and sent on, or injected, itself.
    copied: AtomicU64,
    /// The redirects in use, and the bytes of those that have ended.
    redirects: Mutex<(Vec<Arc<Shared>>, u64)>,
}

impl Tally {
    /// Counts bytes that user space copied.
    pub fn add_copied(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts the bytes of a redirect that starts.
    pub fn enter(&self, redirect: &Arc<Shared>) {
        self.lock().0.push(Arc::clone(redirect));
    }

    /// Keeps the bytes of a redirect that has ended.
    pub fn leave(&self, redirect: &Arc<Shared>) {
        let mut redirects = self.lock();
        redirects.0.retain(|other| !Arc::ptr_eq(other, redirect));
        redirects.1 += redirect.bytes();
    }

    /// Returns the bytes that the kernel redirected, and the bytes that user space copied.
    pub fn get(&self) -> (u64, u64) {
        let redirects = self.lock();
        let live: u64 = redirects.0.iter().map(|redirect| redirect.bytes()).sum();
        (live + redirects.1, self.copied.load(Ordering::Relaxed))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Vec<Arc<Shared>>, u64)> {
        self.redirects
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Computes rates since the last line.
pub struct Meter {
    start: Instant,
    last: Instant,
    previous: [u64; 2],
}

impl Meter {
    pub fn new() -> Self {
        let now = Instant::now();
        Meter {
            start: now,
            last: now,
            previous: [0; 2],
        }
    }

    /// Prints one line to stderr.
    pub fn print(&mut self, directions: &[(&str, &Tally)]) {
        let now = Instant::now();
        let elapsed = now.duration_since(self.last).as_secs_f64();
        let mut line = format!("{:7.1} s", now.duration_since(self.start).as_secs_f64());
        for ((name, tally), previous) in directions.iter().zip(&mut self.previous) {
            let (redirected, copied) = tally.get();
            let total = redirected + copied;
            let rate = rate(total - *previous, elapsed);
            line += &format!("  {name}: {total} bytes ({copied} copied) {rate:.1} MB/s");
            *previous = total;
        }
        self.last = now;
        eprintln!("{line}");
    }
}

/// Returns the rate in MB/s (10^6 bytes per second), and 0 if no time has passed.
fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 / seconds / 1e6
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(rate(5_000_000, 2.0), 2.5);
        assert_eq!(rate(1, 0.0), 0.0);
    }

    #[test]
    fn copied_bytes_count() {
        let tally = Tally::default();
        tally.add_copied(3);
        tally.add_copied(4);
        assert_eq!(tally.get(), (0, 7));
    }
}
