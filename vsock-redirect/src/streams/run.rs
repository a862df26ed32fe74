// SPDX-License-Identifier: GPL-2.0-only
//! Runs a direction: copies, redirects, and finishes without losing data.

use std::time::Duration;

use anyhow::Result;
use nix::sys::socket::Shutdown;
use rustix::event::PollFlags;

use super::catch_up;
use super::copy::{self, Next};
use super::direction::{Direction, BUFFER};
use super::wait::{Event, Wait};
use crate::end::Gone;
use crate::redirect::{Redirect, Unsupported};
use crate::sys::{self, Received};

/// How long to wait for a change while packets may be stuck in the queue, and how long otherwise.
const LIMIT_UNSETTLED: Duration = Duration::from_millis(5);
const LIMIT_SETTLED: Duration = Duration::from_millis(1000);

/// Runs a direction to its end, and tells the sockets about the end.
pub fn run(direction: &Direction<'_>) -> Result<()> {
    let result = copy_then_redirect(direction);
    match &result {
        Ok(Ok(())) => direction.to.shutdown(Shutdown::Write),
        // This tells the sender that nobody reads its data.
        Ok(Err(Gone)) => direction.from.shutdown(Shutdown::Read),
        Err(_) => {
            direction.from.shutdown(Shutdown::Both);
            direction.to.shutdown(Shutdown::Both);
        }
    }
    if direction.is_request() {
        direction.client_done.raise();
    }
    result.map(|_| ())
}

fn copy_then_redirect(direction: &Direction<'_>) -> Result<Result<(), Gone>> {
    let mut redirect = match copy::run(direction)? {
        Next::Eof => return Ok(Ok(())),
        Next::Gone => return Ok(Err(Gone)),
        Next::Redirect(redirect) => redirect,
    };
    direction.tally.enter(redirect.shared());
    let result = start_and_watch(direction, &mut redirect);
    direction.tally.leave(redirect.shared());
    result
}

/// Starts the redirect and watches it until the end.
fn start_and_watch(direction: &Direction<'_>, redirect: &mut Redirect) -> Result<Result<(), Gone>> {
    match redirect.set_source(&direction.from.socket) {
        // The kernel takes only connected sockets, and this one has ended.
        Err(error) if error.is::<Unsupported>() && direction.from.has_ended() => {
            return finish(direction, redirect)
        }
        other => other?,
    }
    let mut wait = Wait::new(direction);
    let mut settled = false;
    let mut before = None;
    loop {
        let limit = if settled {
            LIMIT_SETTLED
        } else {
            LIMIT_UNSETTLED
        };
        match wait.event(PollFlags::empty(), Some(limit))? {
            Event::None => {}
            Event::Ended => return finish(direction, redirect),
            Event::Stopped => {
                if !direction.is_request() {
                    redirect.hold();
                }
                return finish(direction, redirect);
            }
            Event::Gone => return Ok(Err(Gone)),
        }
        let error = direction.to.take_error();
        if let Err(gone) = direction.to.check_redirect(error)? {
            return Ok(Err(gone));
        }
        let waiting = sys::has_data(direction.from.fd()) || !redirect.is_redirecting();
        let now = (redirect.shared().packets(), redirect.shared().passed());
        if waiting && before == Some(now) {
            if let Err(gone) = catch_up::run(direction, redirect, &mut wait)? {
                return Ok(Err(gone));
            }
        }
        // Once the queue was empty, the kernel takes one packet for each that arrives, so none
        // stays behind. The slow check goes on in case the socket has left the map.
        settled = !waiting;
        before = Some(now);
    }
}

/// Sends on all data of a source that has ended.
fn finish(direction: &Direction<'_>, redirect: &Redirect) -> Result<Result<(), Gone>> {
    sys::barrier();
    if let Err(gone) = direction.to.drain(redirect, direction.stop())? {
        return Ok(Err(gone));
    }
    let mut buffer = vec![0; BUFFER];
    while let Ok(Received::Bytes(count)) = sys::receive(direction.from.fd(), &mut buffer) {
        direction.tally.add_copied(count);
        let sent = direction.to.send_all(&buffer[..count], direction.stop())?;
        if let Err(gone) = sent {
            return Ok(Err(gone));
        }
    }
    Ok(Ok(()))
}
