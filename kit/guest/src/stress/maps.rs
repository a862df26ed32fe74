// SPDX-License-Identifier: GPL-2.0-only
//! Moves a socket in and out of sockmaps, at random.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Result};
use fastrand::Rng;
use nix::errno::Errno;
use sockmap::{Map, Program};

use super::faults::Faults;
use super::queries::{poll_and_count, set_rcvlowat};
use super::target::KEY as TARGET_KEY;

/// The key of the socket in each map.
const KEY: u64 = 0;
/// How many maps there are at most.
const MAPS: usize = 3;

pub struct Shuffler<'a> {
    pub fd: &'a OwnedFd,
    pub target: &'a Map,
    /// Whether programs may redirect to the target.
    pub redirects: bool,
    pub rng: Rng,
    pub faults: Faults,
}

impl Shuffler<'_> {
    /// Works until `stop`. Returns the number of changes.
    pub fn run(mut self, stop: &AtomicBool) -> Result<u64> {
        let mut count = 0;
        let mut maps: Vec<Map> = Vec::new();
        while !stop.load(Relaxed) {
            count += 1;
            self.change(&mut maps)?;
            if self.rng.u8(..) < 200 {
                thread::sleep(Duration::from_micros(self.rng.u64(..3000)));
            }
        }
        // The owner still reads until the end. With a higher low-water mark, its reads could wait
        // for too many bytes.
        set_rcvlowat(self.fd, 1);
        Ok(count)
    }

    fn change(&mut self, maps: &mut Vec<Map>) -> Result<()> {
        match self.rng.u8(..10) {
            0 | 1 => {
                maps.push(self.new_map()?);
                if maps.len() > MAPS {
                    maps.swap_remove(self.rng.usize(..MAPS));
                }
            }
            2..=5 => {
                if let Some(map) = self.rng.choice(&*maps) {
                    self.check(map.insert(KEY, self.fd.as_fd()), "insert")?;
                }
            }
            6 | 7 => {
                if let Some(map) = self.rng.choice(&*maps) {
                    self.check(map.delete(KEY), "delete")?;
                }
            }
            8 => {
                let bytes = if self.rng.bool() {
                    1
                } else {
                    self.rng.i32(1..2000)
                };
                set_rcvlowat(self.fd, bytes);
            }
            _ => poll_and_count(self.fd)?,
        }
        Ok(())
    }

    /// Makes a map with a program that passes, one that redirects, or none.
    fn new_map(&mut self) -> Result<Map> {
        let map = loop {
            match Map::new(4) {
                Err(error) if self.is_expected(&error) => thread::yield_now(),
                result => break result?,
            }
        };
        let verdict = match self.rng.u8(..4) {
            0 => None,
            1 if self.redirects => {
                self.program(Program::redirect(self.target, TARGET_KEY as u32))?
            }
            _ => self.program(Program::pass())?,
        };
        if let Some(verdict) = &verdict {
            self.check(map.attach(verdict), "attach")?;
            if self.rng.u8(..) < 32 {
                self.check(map.insert(KEY, self.fd.as_fd()), "insert")?;
                self.check(map.detach(verdict), "detach")?;
            }
        }
        Ok(map)
    }

    /// Returns the program, or `None` if it failed with an expected error.
    fn program(&self, program: io::Result<Program>) -> Result<Option<Program>> {
        match program {
            Err(error) if self.is_expected(&error) => Ok(None),
            result => Ok(Some(result?)),
        }
    }

    /// Fails if a change failed with an unexpected error.
    fn check(&self, result: io::Result<()>, what: &str) -> Result<()> {
        match result {
            Err(error) if !self.is_expected(&error) => bail!("{what}: {error}"),
            _ => Ok(()),
        }
    }

    /// Returns whether a change may fail with this error: the connection may have ended, another
    /// map may have a program for the socket, and memory may be short.
    fn is_expected(&self, error: &io::Error) -> bool {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        matches!(
            errno,
            Errno::EOPNOTSUPP | Errno::EBUSY | Errno::ENOENT | Errno::EINVAL
        ) || self.faults.excuse(errno)
    }
}
