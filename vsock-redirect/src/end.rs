// SPDX-License-Identifier: GPL-2.0-only
//! An end: a connected socket, which is the source of one direction and the target of the other.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use nix::errno::Errno;
use nix::sys::socket::{shutdown, Shutdown};
use rustix::event::PollFlags;

use crate::redirect::{Marker, Redirect};
use crate::stop::Stop;
use crate::{sys, vsock};

/// The receiver behind a target has stopped reading. This is no error, but nothing more can be
/// delivered.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Unix,
    Vsock,
}

pub struct End {
    pub socket: OwnedFd,
    pub kind: Kind,
    /// A pending error that the thread of the other direction has found.
    error: AtomicI32,
}

impl End {
    pub fn new(socket: OwnedFd, kind: Kind) -> Self {
        End {
            socket,
            kind,
            error: AtomicI32::new(0),
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn shutdown(&self, how: Shutdown) {
        // Fails if the peer is gone, and then nobody needs the shutdown.
        let _ = shutdown(self.socket.as_raw_fd(), how);
    }

    /// Keeps a pending error for [`Self::take_error`]. If it stayed in the socket, poll() would
    /// report it again and again.
    pub fn note_error(&self) {
        if let Some(error) = sys::take_error(self.fd()) {
            self.error.store(error as i32, Ordering::Release);
        }
    }

    /// Returns and clears the error of this end as a target.
    pub fn take_error(&self) -> Option<Errno> {
        self.note_error();
        match self.error.swap(0, Ordering::AcqRel) {
            0 => None,
            error => Some(Errno::from_raw(error)),
        }
    }

    fn events(&self) -> PollFlags {
        sys::poll([(self.fd(), PollFlags::RDHUP)], Some(Duration::ZERO))[0]
    }

    /// Returns whether the peer sends nothing more.
    pub fn has_ended(&self) -> bool {
        self.events().intersects(PollFlags::RDHUP | PollFlags::HUP)
    }

    /// Returns whether the peer would still take data, as far as the kernel can tell without a
    /// send.
    pub fn writes(&self) -> bool {
        match self.kind {
            Kind::Unix => !self.events().contains(PollFlags::HUP),
            Kind::Vsock => vsock::peer_reads(self.fd()),
        }
    }

    /// Sends all bytes, and waits for room where needed.
    pub fn send_all(&self, mut bytes: &[u8], stop: &Stop) -> Result<Result<(), Gone>> {
        while !bytes.is_empty() {
            match sys::send(self.fd(), bytes) {
                Ok(Some(count)) => bytes = &bytes[count..],
                Ok(None) => {
                    stop.check_limit()?;
                    // Wakes up now and then to check the time limit.
                    let limit = Some(Duration::from_millis(500));
                    sys::poll([(self.fd(), PollFlags::OUT)], limit);
                }
                Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN) => return Ok(Err(Gone)),
                Err(error) => bail!("cannot send to the {} socket: {error}", self.name()),
            }
        }
        Ok(Ok(()))
    }

    /// Interprets a pending error of this target during a redirect.
    pub fn check_redirect(&self, error: Option<Errno>) -> Result<Result<(), Gone>> {
        match (error, self.kind) {
            (None, _) => Ok(Ok(())),
            // The UNIX client has closed its socket, after it read all data or before.
            (Some(Errno::EPIPE | Errno::ECONNRESET), Kind::Unix) => Ok(Err(Gone)),
            (Some(_), Kind::Vsock) if !self.writes() => Ok(Err(Gone)),
            (Some(error), _) => bail!(
                "the kernel ended the redirect to the {} socket ({}), data is lost",
                self.name(),
                error.desc()
            ),
        }
    }

    /// Waits until this target has all data that was redirected so far. Nothing may be redirected
    /// or injected at the same time.
    pub fn drain(&self, redirect: &Redirect, stop: &Stop) -> Result<Result<(), Gone>> {
        if let Err(gone) = self.check_redirect(self.take_error())? {
            return Ok(Err(gone));
        }
        while !redirect.inject(&[])? {
            if let Err(gone) = self.check_redirect(self.take_error())? {
                return Ok(Err(gone));
            }
            stop.check_limit()?;
            redirect.wait_room(stop);
        }
        let mut pause = Duration::from_millis(1);
        loop {
            match redirect.marker(self.take_error(), || self.writes()) {
                Marker::Passed => return Ok(Ok(())),
                Marker::Failed(error) => {
                    if let Err(gone) = self.check_redirect(Some(error))? {
                        return Ok(Err(gone));
                    }
                }
                Marker::Underway => {}
            }
            if !self.writes() {
                return Ok(Err(Gone));
            }
            stop.check_limit()?;
            // An error of the target ends this wait early, but the marker does not.
            sys::poll([(self.fd(), PollFlags::empty())], Some(pause));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Waits until the vsock transport has taken all data, if the kernel can tell.
    pub fn flush(&self, limit: Duration) {
        let start = Instant::now();
        while matches!(sys::unsent(self.fd()), Ok(1..)) && start.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Unix => "UNIX",
            Kind::Vsock => "vsock",
        }
    }
}
