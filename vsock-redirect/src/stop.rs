// SPDX-License-Identifier: GPL-2.0-only
//! Events between threads, and the time limit of the end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use nix::sys::eventfd::EventFd;
use rustix::event::PollFlags;

use crate::sys::poll;

/// An event that happens once. A poll for `POLLIN` waits for it.
pub struct Flag(EventFd);

impl Flag {
    pub fn new() -> io::Result<Self> {
        Ok(Flag(EventFd::new()?))
    }

    pub fn raise(&self) {
        // Fails only if the counter is full, and then the flag is raised already.
        let _ = self.0.write(1);
    }

    pub fn is_raised(&self) -> bool {
        !poll([(self.fd(), PollFlags::IN)], Some(Duration::ZERO))[0].is_empty()
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The request to end the tool. It starts the time limit for the receivers of accepted data.
pub struct Stop {
    pub flag: Flag,
    limit: Duration,
    since: OnceLock<Instant>,
}

impl Stop {
    pub fn new(limit: Duration) -> io::Result<Self> {
        Ok(Stop {
            flag: Flag::new()?,
            limit,
            since: OnceLock::new(),
        })
    }

    /// Requests the end and starts the time limit.
    pub fn raise(&self) {
        self.since.get_or_init(Instant::now);
        self.flag.raise();
    }

    /// Returns whether the time limit is over. It never is before [`Self::raise`].
    pub fn is_over(&self) -> bool {
        self.since
            .get()
            .is_some_and(|since| since.elapsed() > self.limit)
    }

    /// Fails if the time limit is over.
    pub fn check_limit(&self) -> Result<()> {
        if self.is_over() {
            bail!(
                "the receiver did not take all accepted data within the time limit, the rest is \
                 lost (--drain-limit sets a longer one)"
            );
        }
        Ok(())
    }
}
