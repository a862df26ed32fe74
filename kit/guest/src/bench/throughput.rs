// SPDX-License-Identifier: GPL-2.0-only
//! Measures throughput and processor time.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::time::TimeVal;

use super::blocking::{receive, send_all, BUFFER, LIMIT};
use super::connection::Connection;
use super::open::open;
use super::setup::{Arm, Setup};
use super::worker::{Crew, Worker};

/// Microseconds without a byte after which a source without flow control counts as ended.
const IDLE: i64 = 200_000;

pub struct Measured {
    pub bytes: usize,
    seconds: f64,
    /// Milliseconds that the processors were busy.
    busy: u64,
}

impl Measured {
    /// Returns bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Returns milliseconds of processor time per MiB.
    pub fn busy_per_mib(&self) -> f64 {
        self.busy as f64 / (self.bytes as f64 / f64::from(1 << 20))
    }
}

/// Copies until the time limit or the end of the connection.
pub fn copy(from: &OwnedFd, to: &OwnedFd) -> Result<[u64; 2]> {
    // The largest datagram, which is larger than socat's buffer, must fit.
    let mut buffer = vec![0; 2 * BUFFER];
    loop {
        let count = receive(from, &mut buffer)?;
        if count == 0 || !send_all(to, &buffer[..count])? {
            return Ok([0, 0]);
        }
    }
}

/// Returns how long the processors have been busy since boot, in milliseconds.
fn busy() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let mut fields = stat
        .lines()
        .next()
        .context("/proc/stat is empty")?
        .split_whitespace();
    fields.next();
    let fields: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq
    let ticks: u64 = [0, 1, 2, 5, 6].iter().filter_map(|i| fields.get(*i)).sum();
    // USER_HZ is 100.
    Ok(ticks * 10)
}

/// Sends `bytes` bytes over each of the new connections, and waits until they have arrived.
pub fn measure(setup: Setup, size: usize, bytes: usize, connections: usize) -> Result<Measured> {
    let connections = (0..connections)
        .map(|_| open(setup))
        .collect::<Result<Vec<_>>>()?;
    measure_on(&connections, setup, size, bytes)
}

/// The processes of a measurement.
struct Workers {
    crew: Crew,
    copies: Vec<Worker>,
    writers: Vec<Worker>,
    readers: Vec<Worker>,
}

impl Workers {
    /// Makes the processes. Readers tell times relative to `epoch`.
    fn new(
        connections: &[Connection],
        arm: Arm,
        size: usize,
        bytes: usize,
        epoch: Instant,
    ) -> Result<Self> {
        let crew = Crew::new()?;
        let (mut copies, mut writers, mut readers) = (Vec::new(), Vec::new(), Vec::new());
        for connection in connections {
            if let (Arm::Copy, Some(middle)) = (arm, &connection.middle) {
                copies.push(crew.add(|| copy(&middle.source, &middle.target))?);
            }
            writers.push(crew.add(|| {
                let deadline = Instant::now() + LIMIT;
                connection.writer.write(bytes, size, deadline)?;
                Ok([0, 0])
            })?);
            readers.push(crew.add(|| {
                let deadline = Instant::now() + LIMIT;
                let (arrived, last) = connection.reader.drain(bytes, deadline)?;
                Ok([arrived as u64, (last - epoch).as_nanos() as u64])
            })?);
        }
        Ok(Workers {
            crew,
            copies,
            writers,
            readers,
        })
    }
}

/// Does the same as [`measure`], over connections that are open already.
pub fn measure_on(
    connections: &[Connection],
    setup: Setup,
    size: usize,
    bytes: usize,
) -> Result<Measured> {
    if setup.is_lossy() {
        for connection in connections {
            connection.reader.set_read_limit(TimeVal::new(0, IDLE))?;
        }
    }
    let epoch = Instant::now();
    let workers = Workers::new(connections, setup.arm, size, bytes, epoch)?;
    // The processes that copy must live until this function returns. A drop kills them.
    let _copies = workers.copies;
    let busy_before = busy()?;
    let start = Instant::now();
    workers.crew.begin();
    let mut arrived = 0;
    let mut last = start;
    for reader in workers.readers {
        let [count, at] = reader.join()?;
        arrived += count as usize;
        last = last.max(epoch + Duration::from_nanos(at));
    }
    let busy = busy()? - busy_before;
    let complete = arrived == bytes * connections.len();
    let seconds = if complete || setup.is_lossy() {
        last - start
    } else {
        start.elapsed()
    };
    if complete {
        for writer in workers.writers {
            writer.join()?;
        }
    }
    Ok(Measured {
        bytes: arrived,
        seconds: seconds.as_secs_f64().max(1e-6),
        busy,
    })
}

/// Returns how many bytes the copy loop moves in `time`, over each of the connections.
pub fn calibrate(setup: Setup, size: usize, connections: usize, time: Duration) -> Result<usize> {
    let copy = Setup {
        arm: Arm::Copy,
        ..setup
    };
    let few = (size * 16).max(1 << 16);
    // The first run only warms up.
    measure(copy, size, few, connections)?;
    let rate = measure(copy, size, 4 * few, connections)?.rate();
    let bytes = (rate * time.as_secs_f64()) as usize / connections;
    Ok(bytes.clamp(few, 256 << 20) / size * size)
}
