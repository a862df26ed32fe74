// SPDX-License-Identifier: GPL-2.0-only
//! The writing end of a connection.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Result};
use fastrand::Rng;
use nix::errno::Errno;
use nix::sys::socket::{send, MsgFlags, Shutdown, SockType};

use super::faults::Faults;

pub struct Writer<'a> {
    pub fd: &'a OwnedFd,
    pub kind: SockType,
    pub rng: Rng,
    pub faults: Faults,
}

impl Writer<'_> {
    /// Sends words in pieces of any length until `stop`, then shuts down the sending side. Returns
    /// how many words were sent, or `None` if the connection ended early for lack of memory.
    pub fn run(mut self, stop: &AtomicBool) -> Result<Option<u64>> {
        let mut next: u64 = 0;
        while !stop.load(Relaxed) {
            let words = match self.rng.u8(..) {
                0..=127 => self.rng.usize(1..32),
                128..=250 => self.rng.usize(1..1024),
                _ => self.rng.usize(1..16384),
            };
            let bytes: Vec<u8> = (next..next + words as u64)
                .flat_map(u64::to_le_bytes)
                .collect();
            if !self.send_all(&bytes, next)? {
                return Ok(None);
            }
            next += words as u64;
            if self.rng.u8(..) < 8 {
                thread::sleep(Duration::from_millis(self.rng.u64(..5)));
            }
        }
        self.faults.shut(self.fd, Shutdown::Write)?;
        Ok(Some(next))
    }

    /// Sends all `bytes`, of which `word` is the first word. Returns false if the connection ended
    /// early for lack of memory.
    fn send_all(&mut self, bytes: &[u8], word: u64) -> Result<bool> {
        let mut at = 0;
        while at < bytes.len() {
            // A nonblocking send of a record may fail after it has sent a part of the record.
            let flags = if self.kind == SockType::Stream && self.rng.u8(..) < 64 {
                MsgFlags::MSG_DONTWAIT
            } else {
                MsgFlags::empty()
            };
            let flags_sent = flags | MsgFlags::MSG_NOSIGNAL;
            match send(self.fd.as_raw_fd(), &bytes[at..], flags_sent) {
                Ok(count) => at += count,
                Err(Errno::EAGAIN) if flags.contains(MsgFlags::MSG_DONTWAIT) => {
                    thread::sleep(Duration::from_micros(200));
                }
                // A part of the record may have been sent, so it cannot be sent again.
                Err(errno) if self.faults.excuse(errno) && self.kind == SockType::SeqPacket => {
                    return Ok(false)
                }
                Err(errno) if self.faults.excuse(errno) => thread::yield_now(),
                Err(errno) if self.faults.excuse_end(errno) => return Ok(false),
                Err(errno) => bail!("send of word {word}: {errno}"),
            }
        }
        Ok(true)
    }
}
