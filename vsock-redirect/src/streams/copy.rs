// SPDX-License-Identifier: GPL-2.0-only
//! Copies in user space, until the kernel can take over.

use anyhow::{bail, Result};
use nix::errno::Errno;
use rustix::event::PollFlags;

use super::direction::{Direction, BUFFER};
use super::wait::{Event, Wait};
use crate::redirect::{Redirect, Unsupported};
use crate::sys::{self, Received};

/// Bytes to copy at most. If the sender is still ahead then, the kernel takes over with a queue
/// that is not empty.
const COPY_AT_MOST: usize = 16 << 20;

/// How the copying ends.
pub enum Next {
    /// The source sends nothing more.
    Eof,
    /// The receiver reads nothing more.
    Gone,
    /// The redirect can start. Its target is in the map.
    Redirect(Box<Redirect>),
}

/// How a receive and the send after it ended.
enum Step {
    More,
    /// There is no data at this moment, or enough was copied.
    CaughtUp,
    Eof,
    Gone,
}

/// Copies until the kernel can take over.
pub fn run(direction: &Direction<'_>) -> Result<Next> {
    let mut redirect: Option<Redirect> = None;
    let mut buffer = vec![0; BUFFER];
    let mut copied = 0;
    let mut wait = Wait::new(direction);
    loop {
        match copy_once(direction, &mut buffer, &mut copied)? {
            Step::More => continue,
            Step::CaughtUp => {}
            Step::Eof => return Ok(Next::Eof),
            Step::Gone => return Ok(Next::Gone),
        }
        if direction.may_redirect() {
            match redirect.take() {
                Some(redirect) => return Ok(Next::Redirect(Box::new(redirect))),
                // This takes time, in which more data may come. So copy again before the start.
                None => match prepare(direction)? {
                    Some(prepared) => redirect = Some(prepared),
                    None => return Ok(Next::Gone),
                },
            }
            continue;
        }
        match wait.event(PollFlags::IN, None)? {
            Event::None | Event::Ended => {}
            Event::Stopped if direction.is_request() => {}
            // The tool ends, and does not wait for answers that are not there yet.
            Event::Stopped => return Ok(Next::Eof),
            Event::Gone => return Ok(Next::Gone),
        }
    }
}

/// Receives once and sends on.
fn copy_once(direction: &Direction<'_>, buffer: &mut [u8], copied: &mut usize) -> Result<Step> {
    // Asked before the receive, so that no data can come between an empty receive and the end.
    let ended = direction.from.has_ended();
    match sys::receive(direction.from.fd(), buffer) {
        Ok(Received::Bytes(count)) => {
            let sent = direction.to.send_all(&buffer[..count], direction.stop())?;
            if sent.is_err() {
                return Ok(Step::Gone);
            }
            direction.tally.add_copied(count);
            *copied += count;
            // A full buffer may end in the middle of a packet. A redirect would send such a packet
            // from its beginning, so copy the rest first.
            if *copied < COPY_AT_MOST || count == buffer.len() {
                return Ok(Step::More);
            }
            Ok(Step::CaughtUp)
        }
        Ok(Received::Nothing) if !ended => Ok(Step::CaughtUp),
        Ok(Received::Nothing | Received::Eof) | Err(Errno::ECONNRESET) => Ok(Step::Eof),
        Err(error) => bail!("cannot receive: {}", error.desc()),
    }
}

/// Makes a redirect with its target. Returns `None` if the receiver reads nothing more.
fn prepare(direction: &Direction<'_>) -> Result<Option<Redirect>> {
    let mut redirect = Redirect::new()?;
    match redirect.set_target(&direction.to.socket) {
        // The kernel takes only connected sockets, and this one has ended.
        Err(error) if error.is::<Unsupported>() && !direction.to.writes() => Ok(None),
        Err(error) => Err(error),
        Ok(()) => Ok(Some(redirect)),
    }
}
