// SPDX-License-Identifier: GPL-2.0-only
//! Waits for events of a direction.

use std::time::Duration;

use anyhow::Result;
use nix::sys::socket::Shutdown;
use rustix::event::PollFlags;

use super::direction::Direction;
use crate::sys;

pub enum Event {
    None,
    /// The source sends nothing more.
    Ended,
    /// A signal or a fatal error ends the tool.
    Stopped,
    /// The receiver behind the target reads nothing more.
    Gone,
}

/// Waits for events. A condition that stays true wakes the thread only once.
pub struct Wait<'a> {
    direction: &'a Direction<'a>,
    stopped: bool,
    /// The receiver behind the target has shut down its sending side.
    half_closed: bool,
}

impl<'a> Wait<'a> {
    pub fn new(direction: &'a Direction<'a>) -> Self {
        Wait {
            direction,
            stopped: false,
            half_closed: false,
        }
    }

    /// Waits for an event, or for `readable` of the source. Returns [`Event::None`] at the limit.
    pub fn event(&mut self, readable: PollFlags, limit: Option<Duration>) -> Result<Event> {
        let direction = self.direction;
        let if_not = |seen, flag| if seen { PollFlags::empty() } else { flag };
        let awaits_client = !readable.is_empty() && !direction.may_redirect();
        // poll() does not report the end of a half-closed target, so check it once a second.
        let limit = match limit {
            None if self.half_closed => Some(Duration::from_secs(1)),
            limit => limit,
        };
        let stop = &direction.stop().flag;
        let client_done = direction.client_done;
        let [from, to, stop, _] = sys::poll(
            [
                (direction.from.fd(), readable | PollFlags::RDHUP),
                (
                    direction.to.fd(),
                    if_not(self.half_closed, PollFlags::RDHUP),
                ),
                (stop.fd(), if_not(self.stopped, PollFlags::IN)),
                (client_done.fd(), if_not(!awaits_client, PollFlags::IN)),
            ],
            limit,
        );
        if from.contains(PollFlags::ERR) {
            direction.from.note_error();
        }
        if !to.is_empty() || self.half_closed {
            if !direction.to.writes() {
                return Ok(Event::Gone);
            }
            self.half_closed |= to.contains(PollFlags::RDHUP);
        }
        if from.intersects(PollFlags::RDHUP | PollFlags::HUP) {
            return Ok(Event::Ended);
        }
        if !self.stopped && !stop.is_empty() {
            self.stopped = true;
            if direction.is_request() {
                // The client can send nothing more, but data that it has sent stays in the queue.
                direction.from.shutdown(Shutdown::Read);
            }
            return Ok(Event::Stopped);
        }
        Ok(Event::None)
    }
}
