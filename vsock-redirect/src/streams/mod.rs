// SPDX-License-Identifier: GPL-2.0-only
//! `unix-listen`: a vsock connection for each accepted one, both directions redirected.
//!
//! Each direction has a thread, which does nothing while the kernel moves the data:
//!
//! 1. It copies what is there already, until nothing is queued.
//! 2. It puts the sockets into the maps. What came in the instant between stays in the queue, where
//!    the kernel takes one packet for each that arrives, in order. What is still there when nothing
//!    has moved for some milliseconds is read and injected behind what was redirected. From the
//!    vsock nothing can overtake it: the program leaves everything to user space meanwhile
//!    (`Lane::hold`). See `take_requests` for the limit on the side of the client.
//! 3. At an end of file it drains the lane, copies a rest that no program ran for, and shuts down
//!    the other side.
//!
//! The answers (vsock to UNIX) are copied until the client has shut down its sending side, unless
//! `--no-half-close` says that it never does: a client's shutdown() makes the kernel remove its
//! peer from all maps, and drop what was queued for it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::{bail, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    accept4, listen, socket, AddressFamily, Backlog, Shutdown, SockFlag, SockType,
};
use rustix::event::PollFlags;

use crate::address::Peer;
use crate::end::{check_limit, End, Gone, Kind};
use crate::redirect::{Lane, Unsupported};
use crate::socket_file::SocketFile;
use crate::stats::Tally;
use crate::sys::{self, Flag, Received, Stop};
use crate::Tool;

/// Copying goes on for this much when the sender is never caught up with; then the kernel takes
/// over with a queue that is not empty.
const COPY_AT_MOST: usize = 16 << 20;

/// How far user space may fall behind a sender while the program leaves everything to it: such
/// bytes are charged to nobody.
const BEHIND_AT_MOST: u64 = 64 << 20;

const BUFFER: usize = 256 << 10;
const INJECT_AT_ONCE: usize = 32 << 10;
const STACK: usize = 1 << 20;

/// Shared by the connections.
struct Service {
    peer: Peer,
    half_close: bool,
    stop: Arc<Stop>,
    to_vsock: Arc<Tally>,
    to_unix: Arc<Tally>,
    /// Why the tool cannot go on at all.
    fatal: Mutex<Option<anyhow::Error>>,
    fatal_flag: Flag,
}

pub fn run(tool: &mut Tool, path: &Path, peer: Peer) -> Result<()> {
    // What is wrong with the machine shows now, not at the first client.
    drop(sys::vsock_socket()?);
    drop(Lane::new()?);

    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let file = SocketFile::bind(&listener, path)?;
    listen(&listener, Backlog::new(128)?)?;

    let service = Arc::new(Service {
        peer,
        half_close: tool.half_close,
        stop: Arc::clone(&tool.stop),
        to_vsock: Arc::clone(&tool.to_vsock),
        to_unix: Arc::clone(&tool.to_unix),
        fatal: Mutex::new(None),
        fatal_flag: Flag::new()?,
    });
    let mut threads: Vec<thread::JoinHandle<bool>> = Vec::new();
    let mut number = 0u64;
    loop {
        let listening = listener.as_fd();
        let [event, signal, fatal] = sys::poll(
            [
                (listening, PollFlags::IN),
                (tool.signals(), PollFlags::IN),
                (service.fatal_flag.fd(), PollFlags::IN),
            ],
            Some(tool.next_tick()),
        );
        tool.tick();
        threads.retain(|thread| !thread.is_finished());
        if (!signal.is_empty() && tool.take_signal()) || !fatal.is_empty() {
            break;
        }
        if event.is_empty() {
            continue;
        }
        match accept4(&listener, SockFlag::SOCK_CLOEXEC) {
            Ok(unix) => {
                number += 1;
                let (service, id) = (Arc::clone(&service), number);
                let work = move || serve(&service, id, unix);
                match thread::Builder::new().stack_size(STACK).spawn(work) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => eprintln!("connection {number}: no thread for it: {error}"),
                }
            }
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED) => {}
            Err(error) => {
                // Out of descriptors, most likely; the client waits in the queue.
                eprintln!("cannot accept a connection: {}", error.desc());
                thread::sleep(Duration::from_millis(100));
            }
        }
    }

    drop(file);
    drop(listener);
    tool.stop.raise();
    let mut clean = true;
    for thread in threads {
        clean &= thread.join().unwrap_or(false);
    }
    tool.print_stats();
    let fatal = service
        .fatal
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .take();
    match fatal {
        Some(error) => Err(error),
        None if !clean => bail!("not everything could be delivered before the end"),
        None => Ok(()),
    }
}

/// One connection; returns false if data may be lost.
fn serve(service: &Service, id: u64, unix: OwnedFd) -> bool {
    let vsock = match sys::vsock_connect(service.peer) {
        Ok(vsock) => vsock,
        Err(error) => {
            // Closing the accepted socket tells the client.
            eprintln!("connection {id}: {error}");
            return true;
        }
    };
    let unix = End::new(unix, Kind::Unix);
    let vsock = End::new(vsock, Kind::Vsock);
    let client_done = match Flag::new() {
        Ok(flag) => flag,
        Err(error) => {
            eprintln!("connection {id}: {error}");
            return true;
        }
    };
    let flows = [
        Flow {
            service,
            from: &unix,
            to: &vsock,
            tally: &service.to_vsock,
            client_done: &client_done,
        },
        Flow {
            service,
            from: &vsock,
            to: &unix,
            tally: &service.to_unix,
            client_done: &client_done,
        },
    ];
    let [requests, answers] = &flows;
    let results = thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(STACK);
        match builder.spawn_scoped(scope, || requests.run()) {
            Ok(thread) => {
                let answers = answers.run();
                let requests = thread.join();
                [
                    requests.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread panicked"))),
                    answers,
                ]
            }
            Err(error) => [Err(error.into()), Ok(())],
        }
    });
    let mut clean = true;
    for error in results.into_iter().filter_map(Result::err) {
        clean = false;
        if error.is::<Unsupported>() {
            let mut fatal = service
                .fatal
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            fatal.get_or_insert(error);
            service.fatal_flag.raise();
        } else {
            eprintln!("connection {id}: {error:#}");
        }
    }
    if clean {
        vsock.flush(Duration::from_secs(2));
    }
    clean
}

/// How a direction ends, or goes on.
enum Next {
    Eof,
    Gone,
    Redirect(Box<Lane>),
}

/// One direction of one connection.
struct Flow<'a> {
    service: &'a Service,
    from: &'a End,
    to: &'a End,
    tally: &'a Tally,
    /// Raised when the direction from client to vsock has ended.
    client_done: &'a Flag,
}

impl Flow<'_> {
    fn run(&self) -> Result<()> {
        let result = self.transfer();
        match &result {
            Ok(Ok(())) => self.to.shutdown(Shutdown::Write),
            // The source learns that nobody reads what it sends.
            Ok(Err(Gone)) => self.from.shutdown(Shutdown::Read),
            Err(_) => {
                self.from.shutdown(Shutdown::Both);
                self.to.shutdown(Shutdown::Both);
            }
        }
        if self.is_request() {
            self.client_done.raise();
        }
        result.map(|_| ())
    }

    fn is_request(&self) -> bool {
        self.from.kind == Kind::Unix
    }

    fn stop(&self) -> &Stop {
        &self.service.stop
    }

    fn transfer(&self) -> Result<Result<(), Gone>> {
        let mut lane = match self.copy()? {
            Next::Eof => return Ok(Ok(())),
            Next::Gone => return Ok(Err(Gone)),
            Next::Redirect(lane) => lane,
        };
        self.tally.enter(lane.shared());
        let result = self.redirect(&mut lane);
        self.tally.leave(lane.shared());
        result
    }

    /// Copies until the kernel can take over.
    fn copy(&self) -> Result<Next> {
        let mut lane: Option<Lane> = None;
        let mut buffer = vec![0; BUFFER];
        let mut copied = 0;
        let mut wait = Wait::new(self);
        loop {
            // Looked at before the receive: then nothing can come after what it finds.
            let ended = self.from.has_ended();
            match sys::receive(self.from.fd(), &mut buffer) {
                Ok(Received::Bytes(count)) => {
                    if self.to.send_all(&buffer[..count], self.stop())?.is_err() {
                        return Ok(Next::Gone);
                    }
                    self.tally.add_copied(count);
                    copied += count;
                    // A full buffer may end in the middle of a packet, and such a packet would be
                    // redirected from its beginning.
                    if copied < COPY_AT_MOST || count == buffer.len() {
                        continue;
                    }
                }
                Ok(Received::Nothing) if !ended => {}
                Ok(Received::Nothing | Received::Eof) | Err(Errno::ECONNRESET) => {
                    return Ok(Next::Eof)
                }
                Err(error) => bail!("cannot receive: {}", error.desc()),
            }
            if self.may_redirect() {
                match lane.take() {
                    Some(lane) => return Ok(Next::Redirect(Box::new(lane))),
                    None => {
                        // Takes a moment, in which more may come.
                        let mut new = Lane::new()?;
                        match new.set_target(&self.to.socket) {
                            Err(error) if error.is::<Unsupported>() && !self.to.writes() => {
                                return Ok(Next::Gone)
                            }
                            other => other?,
                        }
                        lane = Some(new);
                        continue;
                    }
                }
            }
            match wait.event(PollFlags::IN, None)? {
                Event::None | Event::Ended => {}
                Event::Stopped if self.is_request() => {}
                // An answer that has not come by now is not waited for.
                Event::Stopped => return Ok(Next::Eof),
                Event::Gone => return Ok(Next::Gone),
            }
        }
    }

    fn may_redirect(&self) -> bool {
        self.is_request() || !self.service.half_close || self.client_done.is_raised()
    }

    fn redirect(&self, lane: &mut Lane) -> Result<Result<(), Gone>> {
        match lane.set_source(&self.from.socket) {
            // The kernel takes only connected sockets; this one ended in the meantime.
            Err(error) if error.is::<Unsupported>() && self.from.has_ended() => {
                return self.finish(lane)
            }
            other => other?,
        }
        let mut wait = Wait::new(self);
        let mut settled = false;
        let mut before = None;
        loop {
            let limit = Duration::from_millis(if settled { 1000 } else { 5 });
            match wait.event(PollFlags::empty(), Some(limit))? {
                Event::None => {}
                Event::Ended => return self.finish(lane),
                Event::Stopped => {
                    if !self.is_request() {
                        lane.hold();
                    }
                    return self.finish(lane);
                }
                Event::Gone => return Ok(Err(Gone)),
            }
            if let Err(gone) = self.to.check_redirect(self.to.take_error())? {
                return Ok(Err(gone));
            }
            let waiting = sys::has_data(self.from.fd()) || !lane.is_redirecting();
            let now = (lane.shared().packets(), lane.shared().passed());
            if waiting && before == Some(now) {
                let taken = if self.is_request() {
                    self.take_requests(lane)
                } else {
                    self.take_answers(lane, &mut wait)
                };
                if let Err(gone) = taken? {
                    return Ok(Err(gone));
                }
            }
            // Once the queue was seen empty, each arrival makes the kernel take one packet, and so
            // none stays behind; the slow look goes on for the case that the socket left the map.
            settled = !waiting;
            before = Some(now);
        }
    }

    /// Takes from the client by hand what no program will run for.
    ///
    /// The program keeps redirecting: what it left to user space would be dropped if the client
    /// shut down its sending side now. So the connection is given up, loudly, in the unlikely case
    /// that a packet came in these microseconds and may have overtaken.
    fn take_requests(&self, lane: &mut Lane) -> Result<Result<(), Gone>> {
        lane.set_source(&self.from.socket)?;
        let mut buffer = vec![0; BUFFER];
        let mut found = false;
        let before = lane.shared().packets();
        while let Ok(Received::Bytes(count)) = sys::receive(self.from.fd(), &mut buffer) {
            found = true;
            self.tally.add_copied(count);
            if let Err(gone) = self.inject(lane, &buffer[..count])? {
                return Ok(Err(gone));
            }
        }
        if found && lane.shared().packets() != before {
            bail!("the client sent at the very moment of the switch to the kernel, the order is in doubt");
        }
        Ok(Ok(()))
    }

    /// Takes from the vsock by hand what no program will run for, and lets the program go on
    /// behind it.
    fn take_answers(&self, lane: &mut Lane, wait: &mut Wait<'_>) -> Result<Result<(), Gone>> {
        lane.hold();
        lane.set_target(&self.to.socket)?;
        lane.set_source(&self.from.socket)?;
        let passed_before = lane.shared().passed();
        let mut buffer = vec![0; BUFFER];
        let mut read = 0;
        loop {
            let passed = lane.shared().passed();
            sys::barrier();
            // What is counted in `passed` is in the queue by now.
            let mut found = false;
            while let Ok(Received::Bytes(count)) = sys::receive(self.from.fd(), &mut buffer) {
                found = true;
                read += count as u64;
                self.tally.add_copied(count);
                if let Err(gone) = self.inject(lane, &buffer[..count])? {
                    return Ok(Err(gone));
                }
                if (lane.shared().passed() - passed_before).saturating_sub(read) > BEHIND_AT_MOST {
                    bail!("the sender is too far ahead, the connection is given up");
                }
            }
            if lane.release(passed) {
                return Ok(Ok(()));
            }
            if !found {
                match wait.event(PollFlags::IN, Some(Duration::from_millis(10)))? {
                    Event::None => {}
                    // The caller sees it again.
                    Event::Ended | Event::Stopped => return Ok(Ok(())),
                    Event::Gone => return Ok(Err(Gone)),
                }
            }
        }
    }

    fn inject(&self, lane: &Lane, bytes: &[u8]) -> Result<Result<(), Gone>> {
        for piece in bytes.chunks(INJECT_AT_ONCE) {
            while !lane.inject(piece)? {
                if let Err(gone) = self.to.check_redirect(self.to.take_error())? {
                    return Ok(Err(gone));
                }
                if !self.to.writes() {
                    return Ok(Err(Gone));
                }
                check_limit(self.stop())?;
                lane.wait_room(self.stop());
            }
        }
        Ok(Ok(()))
    }

    /// The source has ended: sends on all that it had sent.
    fn finish(&self, lane: &Lane) -> Result<Result<(), Gone>> {
        sys::barrier();
        if let Err(gone) = self.to.drain(lane, self.stop())? {
            return Ok(Err(gone));
        }
        let mut buffer = vec![0; BUFFER];
        while let Ok(Received::Bytes(count)) = sys::receive(self.from.fd(), &mut buffer) {
            self.tally.add_copied(count);
            if let Err(gone) = self.to.send_all(&buffer[..count], self.stop())? {
                return Ok(Err(gone));
            }
        }
        Ok(Ok(()))
    }
}

enum Event {
    None,
    /// The source sends no more.
    Ended,
    /// The tool was told to stop.
    Stopped,
    /// The target takes no more.
    Gone,
}

/// Waits for something to happen to a flow, without being woken by the same thing twice.
struct Wait<'a> {
    flow: &'a Flow<'a>,
    stopped: bool,
    half_closed: bool,
}

impl<'a> Wait<'a> {
    fn new(flow: &'a Flow<'a>) -> Self {
        Wait {
            flow,
            stopped: false,
            half_closed: false,
        }
    }

    fn event(&mut self, readable: PollFlags, limit: Option<Duration>) -> Result<Event> {
        let flow = self.flow;
        let if_not = |seen, flag| if seen { PollFlags::empty() } else { flag };
        let awaits_client = !readable.is_empty() && !flow.may_redirect();
        // A target that has half-closed is not reported again, and so must be asked.
        let limit = match limit {
            None if self.half_closed => Some(Duration::from_secs(1)),
            limit => limit,
        };
        let [from, to, stop, _] = sys::poll(
            [
                (flow.from.fd(), readable | PollFlags::RDHUP),
                (flow.to.fd(), if_not(self.half_closed, PollFlags::RDHUP)),
                (flow.stop().flag.fd(), if_not(self.stopped, PollFlags::IN)),
                (flow.client_done.fd(), if_not(!awaits_client, PollFlags::IN)),
            ],
            limit,
        );
        if from.contains(PollFlags::ERR) {
            flow.from.note_error();
        }
        if !to.is_empty() || self.half_closed {
            if !flow.to.writes() {
                return Ok(Event::Gone);
            }
            self.half_closed |= to.contains(PollFlags::RDHUP);
        }
        if from.intersects(PollFlags::RDHUP | PollFlags::HUP) {
            return Ok(Event::Ended);
        }
        if !self.stopped && !stop.is_empty() {
            self.stopped = true;
            if flow.is_request() {
                // The client can send no more; what it has sent is still there.
                flow.from.shutdown(Shutdown::Read);
            }
            return Ok(Event::Stopped);
        }
        Ok(Event::None)
    }
}
