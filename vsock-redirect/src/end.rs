// SPDX-License-Identifier: GPL-2.0-only
//! One connected socket, as the source of one direction and the target of the other.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use nix::errno::Errno;
use nix::sys::socket::{shutdown, Shutdown};
use rustix::event::PollFlags;

use crate::redirect::{Lane, Marker};
use crate::sys::{self, Stop};

/// The far end of a target no longer reads: not a fault, but nothing more can be delivered.
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
    /// A pending error that the thread of the other direction came upon.
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
        // Fails where the peer is gone, and then there is nothing to tell it.
        let _ = shutdown(self.socket.as_raw_fd(), how);
    }

    /// Moves a pending error aside, since `poll` would report it again and again.
    pub fn note_error(&self) {
        if let Some(error) = sys::take_error(self.fd()) {
            self.error.store(error as i32, Ordering::Release);
        }
    }

    /// The error of this end as a target.
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

    /// Nothing more will come from the peer.
    pub fn has_ended(&self) -> bool {
        self.events().intersects(PollFlags::RDHUP | PollFlags::HUP)
    }

    /// Whether the peer would still take data, as far as can be told without sending any.
    pub fn writes(&self) -> bool {
        match self.kind {
            Kind::Unix => !self.events().contains(PollFlags::HUP),
            Kind::Vsock => sys::vsock_peer_reads(self.fd()),
        }
    }

    /// Sends all, waiting for room.
    pub fn send_all(&self, mut bytes: &[u8], stop: &Stop) -> Result<Result<(), Gone>> {
        while !bytes.is_empty() {
            match sys::send(self.fd(), bytes) {
                Ok(Some(count)) => bytes = &bytes[count..],
                Ok(None) => {
                    check_limit(stop)?;
                    // Wakes now and then to look at the limit.
                    let limit = Some(Duration::from_millis(500));
                    sys::poll([(self.fd(), PollFlags::OUT)], limit);
                }
                Err(Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN) => return Ok(Err(Gone)),
                Err(error) => bail!("cannot send to the {} socket: {error}", self.name()),
            }
        }
        Ok(Ok(()))
    }

    /// What a pending error of this target means while a lane sends to it.
    pub fn check_redirect(&self, error: Option<Errno>) -> Result<Result<(), Gone>> {
        match (error, self.kind) {
            (None, _) => Ok(Ok(())),
            // A UNIX client that went away, with data unread or not.
            (Some(Errno::EPIPE | Errno::ECONNRESET), Kind::Unix) => Ok(Err(Gone)),
            (Some(_), Kind::Vsock) if !self.writes() => Ok(Err(Gone)),
            (Some(error), _) => bail!(
                "the kernel gave up the redirect to the {} socket ({}), data is lost",
                self.name(),
                error.desc()
            ),
        }
    }

    /// Returns when all that was redirected so far has been handed to this target.
    /// Nothing may be redirected or injected at the same time.
    pub fn drain(&self, lane: &Lane, stop: &Stop) -> Result<Result<(), Gone>> {
        if let Err(gone) = self.check_redirect(self.take_error())? {
            return Ok(Err(gone));
        }
        while !lane.inject(&[])? {
            if let Err(gone) = self.check_redirect(self.take_error())? {
                return Ok(Err(gone));
            }
            check_limit(stop)?;
            lane.wait_room(stop);
        }
        let mut pause = Duration::from_millis(1);
        loop {
            match lane.marker(self.take_error(), || self.writes()) {
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
            check_limit(stop)?;
            // An error of the target ends the wait early; a marker that passes does not.
            sys::poll([(self.fd(), PollFlags::empty())], Some(pause));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Waits until the vsock transport has taken what was sent, where the kernel can tell.
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

/// An error once the time limit of a drain is over.
pub fn check_limit(stop: &Stop) -> Result<()> {
    if stop.is_over() {
        bail!(
            "the receiver did not take what was accepted within the time limit, the rest is lost"
        );
    }
    Ok(())
}
