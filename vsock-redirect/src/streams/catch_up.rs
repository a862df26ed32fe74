// SPDX-License-Identifier: GPL-2.0-only
//! Takes packets that are stuck in the queue of a source: the program runs for new packets only.

use std::time::Duration;

use anyhow::{bail, Result};
use rustix::event::PollFlags;

use super::direction::{Direction, BUFFER};
use super::wait::{Event, Wait};
use crate::end::Gone;
use crate::redirect::Redirect;
use crate::sys::{self, Received};

/// Limit for the bytes that the program has passed and that user space has not read yet. The kernel
/// charges such bytes to no socket, so nothing else bounds them.
const BEHIND_AT_MOST: u64 = 64 << 20;

/// Reads the packets and injects them behind the redirected data.
pub fn run(
    direction: &Direction<'_>,
    redirect: &mut Redirect,
    wait: &mut Wait<'_>,
) -> Result<Result<(), Gone>> {
    if direction.is_request() {
        take_requests(direction, redirect)
    } else {
        take_answers(direction, redirect, wait)
    }
}

/// Takes packets from the client.
///
/// The program goes on redirecting meanwhile. If it passed packets to user space instead, the
/// kernel would drop them if the client shut down its sending side at this moment. So a packet that
/// arrives in these microseconds may overtake the others. That is unlikely; the connection then
/// fails with an error.
fn take_requests(direction: &Direction<'_>, redirect: &mut Redirect) -> Result<Result<(), Gone>> {
    redirect.set_source(&direction.from.socket)?;
    let mut buffer = vec![0; BUFFER];
    let mut found = false;
    let before = redirect.shared().packets();
    while let Ok(Received::Bytes(count)) = sys::receive(direction.from.fd(), &mut buffer) {
        found = true;
        direction.tally.add_copied(count);
        if let Err(gone) = direction.inject(redirect, &buffer[..count])? {
            return Ok(Err(gone));
        }
    }
    if found && redirect.shared().packets() != before {
        bail!(
            "the client sent data at the moment of the switch to the kernel, and the order of the \
             data is in doubt: the connection is closed, connect again"
        );
    }
    Ok(Ok(()))
}

/// Takes packets from the vsock. The program passes all packets to user space meanwhile, so none
/// can overtake.
fn take_answers(
    direction: &Direction<'_>,
    redirect: &mut Redirect,
    wait: &mut Wait<'_>,
) -> Result<Result<(), Gone>> {
    redirect.hold();
    redirect.set_target(&direction.to.socket)?;
    redirect.set_source(&direction.from.socket)?;
    let passed_before = redirect.shared().passed();
    let mut buffer = vec![0; BUFFER];
    let mut read = 0;
    loop {
        let passed = redirect.shared().passed();
        // After this, all bytes that `passed` counts are in the queue.
        sys::barrier();
        let mut found = false;
        while let Ok(Received::Bytes(count)) = sys::receive(direction.from.fd(), &mut buffer) {
            found = true;
            read += count as u64;
            direction.tally.add_copied(count);
            if let Err(gone) = direction.inject(redirect, &buffer[..count])? {
                return Ok(Err(gone));
            }
            if (redirect.shared().passed() - passed_before).saturating_sub(read) > BEHIND_AT_MOST {
                bail!(
                    "the sender is more than 64 MiB ahead of the receiver, the connection is closed"
                );
            }
        }
        if redirect.release(passed) {
            return Ok(Ok(()));
        }
        if !found {
            match wait.event(PollFlags::IN, Some(Duration::from_millis(10)))? {
                Event::None => {}
                // The caller sees these events again.
                Event::Ended | Event::Stopped => return Ok(Ok(())),
                Event::Gone => return Ok(Err(Gone)),
            }
        }
    }
}
