// SPDX-License-Identifier: GPL-2.0-only
//! `--stats`: how much went each way, once a second, from the counters of the BPF programs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::redirect::Shared;

/// The counters of one direction, over all connections that were.
#[derive(Default)]
pub struct Tally {
    /// What user space had to copy: data from before the redirect was in place.
    copied: AtomicU64,
    /// The lanes in use, and the bytes of those that ended.
    lanes: Mutex<(Vec<Arc<Shared>>, u64)>,
}

impl Tally {
    pub fn add_copied(&self, bytes: usize) {
        self.copied.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn enter(&self, lane: &Arc<Shared>) {
        self.lock().0.push(Arc::clone(lane));
    }

    pub fn leave(&self, lane: &Arc<Shared>) {
        let mut lanes = self.lock();
        lanes.0.retain(|other| !Arc::ptr_eq(other, lane));
        lanes.1 += lane.bytes();
    }

    /// Bytes redirected by the kernel, bytes copied by user space.
    pub fn get(&self) -> (u64, u64) {
        let lanes = self.lock();
        let live: u64 = lanes.0.iter().map(|lane| lane.bytes()).sum();
        (live + lanes.1, self.copied.load(Ordering::Relaxed))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Vec<Arc<Shared>>, u64)> {
        self.lanes
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Both directions, and when they were last looked at.
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

    /// One line on stderr.
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

/// MB/s, 10^6 bytes.
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
