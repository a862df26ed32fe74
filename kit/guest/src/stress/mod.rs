// SPDX-License-Identifier: GPL-2.0-only
//! Everything at once, at random: vsock connections that are read and written in all ways while
//! their sockets go in and out of sockmaps, with programs that pass or redirect.
//!
//! Each connection carries words of eight bytes that count up. What was passed, or was in no map,
//! reaches the owner; what was redirected reaches the sink. Each counts up without a word twice,
//! and at the end nothing may be missing. A seed repeats the decisions, though not the timing.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use fastrand::Rng;
use nix::errno::Errno;
use nix::sys::socket::{
    accept4, connect, recv, send, setsockopt, shutdown, socketpair, sockopt, AddressFamily,
    MsgFlags, Shutdown, SockFlag, SockType,
};
use nix::sys::time::TimeVal;
use serde_json::json;
use sockmap::{Map, Program};

use crate::checked::{loopback_listener, open};

const WORD: usize = 8;
/// No call may take longer: something is stuck then.
const STUCK: i64 = 20;
/// The key of the one socket in a map.
const KEY: u64 = 0;

pub struct Stress {
    pub seed: u64,
    pub time: Duration,
    pub connections: u32,
    /// Allocations are made to fail: calls may fail for lack of memory.
    pub faults: bool,
}

/// A connection over loopback: who reads, and who writes.
fn pair(kind: SockType, faults: bool) -> Result<(OwnedFd, OwnedFd)> {
    let (listener, address) = loopback_listener(kind)?;
    let writer = open(AddressFamily::Vsock, kind)?;
    connect(writer.as_raw_fd(), &address).context("connect over loopback")?;
    let reader = accept4(&listener, SockFlag::SOCK_CLOEXEC)?;
    let stuck = if faults { 2 } else { STUCK };
    for fd in [&reader, &writer] {
        setsockopt(fd, sockopt::ReceiveTimeout, &TimeVal::new(stuck, 0))?;
        setsockopt(fd, sockopt::SendTimeout, &TimeVal::new(stuck, 0))?;
    }
    Ok((reader, writer))
}

/// Checks words that count up, with gaps where others got them.
struct Words {
    who: &'static str,
    part: Vec<u8>,
    /// The least that the next word can be.
    next: u64,
    count: u64,
}

impl Words {
    fn new(who: &'static str) -> Self {
        Words {
            who,
            part: Vec::new(),
            next: 0,
            count: 0,
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.part.extend_from_slice(bytes);
        let whole = self.part.len() / WORD * WORD;
        for chunk in self.part[..whole].chunks_exact(WORD) {
            let word = u64::from_le_bytes(chunk.try_into()?);
            ensure!(
                word >= self.next,
                "{}: word {word} came after {}",
                self.who,
                self.next.wrapping_sub(1)
            );
            self.next = word + 1;
            self.count += 1;
        }
        self.part.drain(..whole);
        Ok(())
    }
}

/// What the threads of a connection share.
struct Shared {
    stop: AtomicBool,
    /// How many words were sent, when all are.
    sent: AtomicU64,
    /// How many words have reached the sink.
    drained: AtomicU64,
}

fn fails_for_memory(faults: bool, errno: Errno) -> bool {
    faults && matches!(errno, Errno::ENOMEM | Errno::ENOBUFS)
}

/// Whether a connection came to its end early, since there was no memory for a packet that tells the
/// peer about space or about the end. vsock does not send it again.
fn given_up(faults: bool, errno: Errno) -> bool {
    faults && matches!(errno, Errno::EAGAIN | Errno::EPIPE | Errno::ECONNRESET)
}

/// Shuts a connection down, which a peer that has given up may have done before.
fn shut(fd: &OwnedFd, how: Shutdown, faults: bool) -> Result<()> {
    match shutdown(fd.as_raw_fd(), how) {
        Err(Errno::ENOTCONN) if faults => Ok(()),
        result => Ok(result?),
    }
}

/// Sends words in pieces of any length until told to stop, then half-closes.
fn write(fd: &OwnedFd, kind: SockType, mut rng: Rng, shared: &Shared, faults: bool) -> Result<()> {
    let mut next: u64 = 0;
    while !shared.stop.load(Relaxed) {
        let words = match rng.u8(..) {
            0..=127 => rng.usize(1..32),
            128..=250 => rng.usize(1..1024),
            _ => rng.usize(1..16384),
        };
        let bytes: Vec<u8> = (next..next + words as u64)
            .flat_map(u64::to_le_bytes)
            .collect();
        let mut at = 0;
        while at < bytes.len() {
            // A send of a record that cannot wait can fail after it has sent a part of it.
            let flags = if kind == SockType::Stream && rng.u8(..) < 64 {
                MsgFlags::MSG_DONTWAIT
            } else {
                MsgFlags::empty()
            };
            match send(fd.as_raw_fd(), &bytes[at..], flags | MsgFlags::MSG_NOSIGNAL) {
                Ok(count) => at += count,
                Err(Errno::EAGAIN) if flags.contains(MsgFlags::MSG_DONTWAIT) => {
                    thread::sleep(Duration::from_micros(200));
                }
                // Of a record a part may have been sent already.
                Err(errno) if fails_for_memory(faults, errno) && kind == SockType::SeqPacket => {
                    return Ok(())
                }
                Err(errno) if fails_for_memory(faults, errno) => thread::yield_now(),
                Err(errno) if given_up(faults, errno) => return Ok(()),
                Err(errno) => bail!("send of word {next}: {errno}"),
            }
        }
        next += words as u64;
        if rng.u8(..) < 8 {
            thread::sleep(Duration::from_millis(rng.u64(..5)));
        }
    }
    shared.sent.store(next, Relaxed);
    shut(fd, Shutdown::Write, faults)?;
    Ok(())
}

/// Reads in all ways until the end, and returns how many words came.
///
/// A redirect takes what no verdict has seen, also the rest of a packet that was read in part, so
/// there only whole words are read, and what was peeked can be gone.
fn read(fd: &OwnedFd, kind: SockType, redirects: bool, mut rng: Rng, faults: bool) -> Result<u64> {
    let mut words = Words::new("owner");
    let mut buffer = vec![0; 1 << 18];
    let mut peeked: Vec<u8> = Vec::new();
    loop {
        // A short buffer cuts a record.
        let len = match rng.u8(..) {
            _ if kind == SockType::SeqPacket => buffer.len(),
            0..=99 => rng.usize(1..64),
            100..=199 => rng.usize(64..4096),
            _ => rng.usize(4096..1 << 16),
        };
        let len = if redirects {
            len.next_multiple_of(WORD)
        } else {
            len
        };
        let flags = match rng.u8(..) {
            0..=40 => MsgFlags::MSG_DONTWAIT,
            41..=70 => MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT,
            71..=80 => MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT,
            81..=90 => MsgFlags::MSG_OOB | MsgFlags::MSG_DONTWAIT,
            91..=120 if len < 1 << 14 => MsgFlags::MSG_WAITALL,
            _ => MsgFlags::empty(),
        };
        let not_data = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_OOB;
        match recv(fd.as_raw_fd(), &mut buffer[..len], flags) {
            Ok(_) if flags.intersects(not_data) && !flags.contains(MsgFlags::MSG_OOB) => {
                bail!("data from the error queue")
            }
            // Out-of-band is asked for after the end too.
            Ok(count) if flags.contains(MsgFlags::MSG_OOB) => {
                ensure!(count == 0, "data that is out of band")
            }
            Ok(count) if flags.contains(MsgFlags::MSG_PEEK) => {
                peeked.clear();
                peeked.extend_from_slice(&buffer[..count]);
            }
            Ok(0) => break,
            Ok(count) => {
                let both = if redirects {
                    0
                } else {
                    count.min(peeked.len())
                };
                ensure!(
                    buffer[..both] == peeked[..both],
                    "what was peeked is not what was read"
                );
                peeked.clear();
                words.take(&buffer[..count])?;
            }
            Err(Errno::EAGAIN) if flags.contains(MsgFlags::MSG_DONTWAIT) => {
                if rng.u8(..) < 128 {
                    thread::yield_now();
                }
            }
            Err(Errno::EOPNOTSUPP) if flags.contains(MsgFlags::MSG_OOB) => {}
            Err(errno) if fails_for_memory(faults, errno) => {}
            Err(errno) if given_up(faults, errno) => break,
            Err(errno) => bail!("recv after word {}: {errno}", words.next.wrapping_sub(1)),
        }
        if rng.u8(..) < 4 {
            thread::sleep(Duration::from_millis(rng.u64(..20)));
        }
    }
    ensure!(faults || words.part.is_empty(), "owner: a word is cut");
    Ok(words.count)
}

/// Reads what was redirected until the end, and tells how many words that are so far.
fn drain(fd: &OwnedFd, shared: &Shared) -> Result<()> {
    let mut words = Words::new("sink");
    let mut buffer = vec![0; 1 << 18];
    loop {
        match recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(0) => return Ok(()),
            Ok(count) => words.take(&buffer[..count])?,
            // Nothing is redirected for as long as that.
            Err(Errno::EAGAIN) => {}
            Err(errno) => bail!("recv at the sink: {errno}"),
        }
        shared.drained.store(words.count, Relaxed);
    }
}

/// Puts the reading socket into maps and takes it out again. Returns how often.
fn shuffle(
    fd: &OwnedFd,
    sink: &Map,
    mut rng: Rng,
    redirects: bool,
    stop: &AtomicBool,
    faults: bool,
) -> Result<u64> {
    let expected = |error: &io::Error| {
        let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
        // The connection may have ended, and another map may have a program for it.
        matches!(
            errno,
            Errno::EOPNOTSUPP | Errno::EBUSY | Errno::ENOENT | Errno::EINVAL
        ) || fails_for_memory(faults, errno)
    };
    let check = |result: io::Result<()>, what: &str| match result {
        Err(error) if !expected(&error) => bail!("{what}: {error}"),
        _ => Ok(()),
    };
    let retry = |make: &dyn Fn() -> io::Result<Map>| loop {
        match make() {
            Err(error) if expected(&error) => thread::yield_now(),
            result => return result,
        }
    };
    let program = |program: io::Result<Program>| match program {
        Err(error) if expected(&error) => Ok(None),
        result => result.map(Some),
    };
    let mut count = 0;
    let mut maps: Vec<Map> = Vec::new();
    while !stop.load(Relaxed) {
        count += 1;
        match rng.u8(..10) {
            0 | 1 => {
                let map = retry(&|| Map::new(4))?;
                let verdict = match rng.u8(..4) {
                    0 => None,
                    1 if redirects => program(Program::redirect(sink, KEY as u32))?,
                    _ => program(Program::pass())?,
                };
                if let Some(verdict) = &verdict {
                    check(map.attach(verdict), "attach")?;
                    if rng.u8(..) < 32 {
                        check(map.insert(KEY, fd.as_fd()), "insert")?;
                        check(map.detach(verdict), "detach")?;
                    }
                }
                maps.push(map);
                if maps.len() > 3 {
                    maps.swap_remove(rng.usize(..3));
                }
            }
            2..=5 => {
                if let Some(map) = rng.choice(&maps) {
                    check(map.insert(KEY, fd.as_fd()), "insert")?;
                }
            }
            6 | 7 => {
                if let Some(map) = rng.choice(&maps) {
                    check(map.delete(KEY), "delete")?;
                }
            }
            8 => {
                let bytes = if rng.bool() { 1 } else { rng.i32(1..2000) };
                set_rcvlowat(fd, bytes);
            }
            _ => poll_and_count(fd)?,
        }
        if rng.u8(..) < 200 {
            thread::sleep(Duration::from_micros(rng.u64(..3000)));
        }
    }
    // What is below the mark would not be read at the end.
    set_rcvlowat(fd, 1);
    Ok(count)
}

fn set_rcvlowat(fd: &OwnedFd, bytes: i32) {
    let value = (&raw const bytes).cast();
    let len = size_of_val(&bytes) as libc::socklen_t;
    // It fails where the transport has no room for as much; the old value is as good.
    //
    // SAFETY: `value` is as long as `len` says.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            value,
            len,
        )
    };
}

/// What poll() and SIOCINQ say may be old at once, but has to be possible.
fn poll_and_count(fd: &OwnedFd) -> Result<()> {
    let mut bytes: i32 = -1;
    // SAFETY: FIONREAD, which is SIOCINQ, writes an integer.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &mut bytes) };
    ensure!(result != 0 || bytes >= 0, "SIOCINQ says {bytes}");
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: One entry.
    unsafe { libc::poll(&mut poll, 1, 0) };
    ensure!(poll.revents & libc::POLLNVAL == 0, "poll says POLLNVAL");
    Ok(())
}

/// Lets allocations fail in this thread from now on. Not in others: making a thread must work.
fn ask_for_faults(faults: bool) -> Result<()> {
    if faults {
        std::fs::write("/proc/thread-self/make-it-fail", "1")?;
    }
    Ok(())
}

/// Tries what may fail for lack of memory until it works.
fn patiently<T>(stress: &Stress, make: impl Fn() -> Result<T>) -> Result<T> {
    loop {
        match make() {
            Err(_) if stress.faults => thread::yield_now(),
            result => return result,
        }
    }
}

/// One connection from its start to its end. Returns the words, and the changes of maps.
fn connection(stress: &Stress, mut rng: Rng, time: Duration) -> Result<(u64, u64)> {
    // A redirect cuts records, and with faults it may end for lack of memory.
    let kind = if rng.bool() {
        SockType::Stream
    } else {
        SockType::SeqPacket
    };
    let redirects = kind == SockType::Stream && !stress.faults && rng.bool();
    let (reader, writer) = patiently(stress, || pair(kind, stress.faults))?;
    let (sink, sink_end) = if rng.bool() {
        socketpair(
            AddressFamily::Unix,
            SockType::Stream,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?
    } else {
        patiently(stress, || pair(SockType::Stream, stress.faults))?
    };
    let sink_map = patiently(stress, || {
        let map = Map::new(1)?;
        map.insert(KEY, sink.as_fd())?;
        Ok(map)
    })?;

    let shared = Shared {
        stop: AtomicBool::new(false),
        sent: AtomicU64::new(0),
        drained: AtomicU64::new(0),
    };
    let faults = stress.faults;
    let [r1, r2, r3] = [(); 3].map(|()| rng.fork());
    thread::scope(|scope| -> Result<_> {
        let shared = &shared;
        let writing = scope.spawn(|| {
            ask_for_faults(faults)?;
            write(&writer, kind, r1, shared, faults)
        });
        let reading = scope.spawn(|| {
            ask_for_faults(faults)?;
            read(&reader, kind, redirects, r2, faults)
        });
        let draining = scope.spawn(|| drain(&sink_end, shared));
        let shuffling = scope.spawn(|| {
            ask_for_faults(faults)?;
            shuffle(&reader, &sink_map, r3, redirects, &shared.stop, faults)
        });
        let end = Instant::now() + time;
        while Instant::now() < end && !writing.is_finished() && !reading.is_finished() {
            thread::sleep(Duration::from_millis(5));
        }
        shared.stop.store(true, Relaxed);
        let joined = "a thread panicked";
        let changes = shuffling.join().expect(joined);
        let written = writing.join().expect(joined);
        let read_words = reading.join().expect(joined);
        let sent = shared.sent.load(Relaxed);
        let drained = || shared.drained.load(Relaxed);
        // What was redirected has no end of its own.
        if let Ok(read_words) = &read_words {
            let limit = Instant::now() + Duration::from_secs(STUCK as u64);
            while !faults && read_words + drained() < sent && Instant::now() < limit {
                thread::sleep(Duration::from_millis(1));
            }
        }
        sink_map.delete(KEY)?;
        shut(&sink, Shutdown::Both, faults)?;
        draining.join().expect(joined)?;
        written?;
        let (read_words, changes) = (read_words?, changes?);
        ensure!(
            faults || read_words + drained() == sent,
            "{sent} words were sent, {read_words} read by the owner and {} by the sink",
            drained()
        );
        Ok((sent, changes))
    })
}

/// Runs connections at the same time, new ones after old ones, until the time is over.
pub fn run(stress: &Stress) -> Result<bool> {
    let start = Instant::now();
    let mut rng = Rng::with_seed(stress.seed);
    let rngs: Vec<Rng> = (0..stress.connections).map(|_| rng.fork()).collect();
    let results: Vec<Result<(u64, u64, u64)>> = thread::scope(|scope| {
        let lanes: Vec<_> = rngs
            .into_iter()
            .map(|mut rng| {
                scope.spawn(move || {
                    let (mut connections, mut words, mut changes) = (0, 0, 0);
                    while start.elapsed() < stress.time {
                        let time = Duration::from_millis(rng.u64(50..2000));
                        let (sent, changed) = connection(stress, rng.fork(), time)?;
                        connections += 1;
                        words += sent;
                        changes += changed;
                    }
                    Ok((connections, words, changes))
                })
            })
            .collect();
        let join = |lane: thread::ScopedJoinHandle<_>| lane.join().expect("a thread panicked");
        lanes.into_iter().map(join).collect()
    });
    let (mut connections, mut words, mut changes) = (0, 0, 0);
    let mut errors = Vec::new();
    for result in results {
        match result {
            Ok(done) => {
                connections += done.0;
                words += done.1;
                changes += done.2;
            }
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    println!(
        "{}",
        json!({
            "seed": stress.seed,
            "seconds": start.elapsed().as_secs_f64(),
            "connections": connections,
            "bytes": words * WORD as u64,
            "changes of maps": changes,
            "errors": errors,
        })
    );
    Ok(errors.is_empty() && connections > 0)
}
