// SPDX-License-Identifier: GPL-2.0-only
//! One connection from its start to its end.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};
use fastrand::Rng;
use nix::sys::socket::{Shutdown, SockType};

use super::faults::Faults;
use super::maps::Shuffler;
use super::pair::{pair, STUCK};
use super::read::Reader;
use super::target::{Target, KEY};
use super::write::Writer;

/// What connections did.
#[derive(Default)]
pub struct Done {
    pub connections: u64,
    pub words: u64,
    /// Changes of maps.
    pub changes: u64,
}

impl AddAssign for Done {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.words += other.words;
        self.changes += other.changes;
    }
}

/// The threads of a connection, besides the one that reads behind the target.
struct Threads<'a> {
    writer: Writer<'a>,
    owner: Reader<'a>,
    shuffler: Shuffler<'a>,
}

/// Runs a connection. Writing ends after `time`.
pub fn run(mut rng: Rng, faults: Faults, time: Duration) -> Result<Done> {
    let kind = if rng.bool() {
        SockType::Stream
    } else {
        SockType::SeqPacket
    };
    // A redirect does not keep records whole, and with faults it may end for lack of memory.
    let redirects = kind == SockType::Stream && !faults.0 && rng.bool();
    let (reader, writer) = faults.retry(|| pair(kind, faults))?;
    let target = Target::new(rng.bool(), faults)?;
    let [write_rng, read_rng, shuffle_rng] = [(); 3].map(|()| rng.fork());
    let threads = Threads {
        writer: Writer {
            fd: &writer,
            kind,
            rng: write_rng,
            faults,
        },
        owner: Reader {
            fd: &reader,
            kind,
            redirects,
            rng: read_rng,
            faults,
        },
        shuffler: Shuffler {
            fd: &reader,
            target: &target.map,
            redirects,
            rng: shuffle_rng,
            faults,
        },
    };
    threads.run(&target, faults, time)
}

impl Threads<'_> {
    fn run(self, target: &Target, faults: Faults, time: Duration) -> Result<Done> {
        let Threads {
            writer,
            owner,
            shuffler,
        } = self;
        let stop = AtomicBool::new(false);
        let drained = AtomicU64::new(0);
        thread::scope(|scope| -> Result<_> {
            let writing = scope.spawn(|| faults.request().and_then(|()| writer.run(&stop)));
            let reading = scope.spawn(|| faults.request().and_then(|()| owner.run()));
            let draining = scope.spawn(|| target.drain(&drained));
            let shuffling = scope.spawn(|| faults.request().and_then(|()| shuffler.run(&stop)));
            let end = Instant::now() + time;
            while Instant::now() < end && !writing.is_finished() && !reading.is_finished() {
                thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Relaxed);
            let changes = join(shuffling);
            let written = join(writing);
            let read = join(reading);
            // 0 if the writer did not come to its end.
            let sent = written.as_ref().ok().copied().flatten().unwrap_or(0);
            if let Ok(read) = &read {
                await_redirects(faults, sent.saturating_sub(*read), &drained);
            }
            target.map.delete(KEY)?;
            faults.shut(&target.socket, Shutdown::Both)?;
            join(draining)?;
            written?;
            let (read, changes) = (read?, changes?);
            let drained = drained.load(Relaxed);
            ensure!(
                faults.0 || read + drained == sent,
                "{sent} words were sent, but the owner read {read} and the target got {drained}"
            );
            Ok(Done {
                connections: 1,
                words: sent,
                changes,
            })
        })
    }
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().expect("a thread panicked")
}

/// Waits until `expected` words have reached the target. Only the number tells that all are there,
/// because a redirect does not pass on the end of a stream.
fn await_redirects(faults: Faults, expected: u64, drained: &AtomicU64) {
    let deadline = Instant::now() + Duration::from_secs(STUCK as u64);
    while !faults.0 && drained.load(Relaxed) < expected && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}
