// SPDX-License-Identifier: GPL-2.0-only
//! Receives a stream and compares it with the content of a seed.

use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use super::content::Hash;
use super::timed::{receive, send_all, Received};
use crate::report::rate;

const BUFFER: usize = 1 << 18;

/// What a stream must bring.
pub struct Expected {
    pub bytes: u64,
    pub seed: u64,
    /// Send back each byte that arrives.
    pub echo: bool,
    /// Read on to the end of the stream, which must come after `bytes`.
    pub to_eof: bool,
}

/// The result of a check.
pub struct Check {
    pub ok: bool,
    report: serde_json::Value,
}

impl Check {
    pub fn into_report(self) -> serde_json::Value {
        self.report
    }
}

/// The bytes that have arrived so far.
struct Arrived {
    hash: Hash,
    bytes: u64,
    /// When the first and the last bytes arrived.
    times: Option<(Instant, Instant)>,
    error: Option<String>,
}

impl Arrived {
    fn add(&mut self, bytes: &[u8]) {
        let now = Instant::now();
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

impl Expected {
    /// Receives the stream and compares it.
    pub fn check(&self, fd: &OwnedFd, deadline: Instant) -> Result<Check> {
        let mut arrived = Arrived {
            hash: Hash::new(),
            bytes: 0,
            times: None,
            error: None,
        };
        let end = self.receive_into(&mut arrived, fd, deadline)?;
        Ok(self.compare(&arrived, end))
    }

    /// Receives until the stream is complete or fails. Returns how it ended, as the report says it.
    fn receive_into(
        &self,
        arrived: &mut Arrived,
        fd: &OwnedFd,
        deadline: Instant,
    ) -> Result<&'static str> {
        let mut buffer = vec![0; BUFFER];
        while arrived.bytes < self.bytes || self.to_eof {
            let limit = match self.bytes.saturating_sub(arrived.bytes) {
                0 => 1,
                left => left.min(BUFFER as u64) as usize,
            };
            match receive(fd, &mut buffer[..limit], deadline) {
                Ok(Received::Bytes(count)) => {
                    arrived.add(&buffer[..count]);
                    if arrived.bytes > self.bytes {
                        return Ok("too much");
                    }
                    if self.echo && !send_all(fd, &buffer[..count], deadline)? {
                        return Ok("timeout");
                    }
                }
                Ok(Received::Eof) if arrived.bytes == self.bytes => break,
                Ok(Received::Eof) => return Ok("eof"),
                Ok(Received::Late) => return Ok("timeout"),
                Err(failure) => {
                    arrived.error = Some(format!("{failure:#}"));
                    return Ok("error");
                }
            }
        }
        Ok("complete")
    }

    fn compare(&self, arrived: &Arrived, end: &str) -> Check {
        let seconds = arrived
            .times
            .map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        let got = arrived.hash.text();
        let expected = Hash::expected(self.seed, self.bytes);
        let ok = end == "complete" && got == expected;
        let report = json!({
            "bytes": arrived.bytes,
            "wanted": self.bytes,
            "seconds": seconds,
            "mb_s": rate(arrived.bytes, seconds),
            "hash": got,
            "expected": expected,
            // True if the bytes that did arrive are right, so that only the rest is missing.
            "prefix_ok": got == Hash::expected(self.seed, arrived.bytes),
            "end": end,
            "error": arrived.error,
            "ok": ok,
        });
        Check { ok, report }
    }
}
