// SPDX-License-Identifier: GPL-2.0-only
//! The sockets, and the loops that send and receive.

mod content;

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use nix::errno::Errno;
use nix::libc::{VMADDR_CID_ANY, VMADDR_CID_LOCAL, VMADDR_PORT_ANY};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    accept4, bind, connect, getsockname, listen, recv, send as send_bytes, setsockopt, shutdown,
    socket, sockopt, AddressFamily, Backlog, MsgFlags, Shutdown, SockFlag, SockType, SockaddrLike,
    UnixAddr, VsockAddr,
};
use serde_json::json;

use crate::Send;
use content::{Content, Hash};

const BUFFER: usize = 1 << 18;

pub struct Serve {
    pub port: u32,
    pub bytes: u64,
    pub seed: u64,
    pub count: u32,
    pub timeout: Duration,
    pub echo: bool,
    pub greeting: usize,
}

pub fn unix_datagram(path: &Path, room: usize) -> Result<OwnedFd> {
    let fd = open(AddressFamily::Unix, SockType::Datagram)?;
    // A datagram has to fit into the send buffer with its overhead. Root may pass the system's
    // limit; for others the kernel takes as much as it allows.
    if setsockopt(&fd, sockopt::SndBufForce, &room).is_err() {
        setsockopt(&fd, sockopt::SndBuf, &room)?;
    }
    connect_to(fd, &UnixAddr::new(path)?, &path.display().to_string())
}

pub fn unix_stream(path: &Path) -> Result<OwnedFd> {
    let fd = open(AddressFamily::Unix, SockType::Stream)?;
    connect_to(fd, &UnixAddr::new(path)?, &path.display().to_string())
}

pub fn vsock_connect(cid: u32, port: u32) -> Result<OwnedFd> {
    let fd = open(AddressFamily::Vsock, SockType::Stream)?;
    connect_to(
        fd,
        &VsockAddr::new(cid, port),
        &format!("vsock {cid}:{port}"),
    )
}

pub fn open(family: AddressFamily, kind: SockType) -> Result<OwnedFd> {
    Ok(socket(family, kind, SockFlag::SOCK_CLOEXEC, None)?)
}

/// A vsock that listens on the loopback, and its address.
pub fn loopback_listener(kind: SockType) -> Result<(OwnedFd, VsockAddr)> {
    listener(kind, VMADDR_CID_LOCAL, VMADDR_PORT_ANY)
}

/// A vsock that listens, and its address.
pub fn listener(kind: SockType, cid: u32, port: u32) -> Result<(OwnedFd, VsockAddr)> {
    let listener = open(AddressFamily::Vsock, kind)?;
    bind(listener.as_raw_fd(), &VsockAddr::new(cid, port))
        .with_context(|| format!("cannot listen on vsock port {port}"))?;
    listen(&listener, Backlog::new(64)?)?;
    let address = getsockname(listener.as_raw_fd())?;
    Ok((listener, address))
}

fn connect_to(fd: OwnedFd, address: &dyn SockaddrLike, name: &str) -> Result<OwnedFd> {
    connect(fd.as_raw_fd(), address).with_context(|| format!("cannot connect to {name}"))?;
    Ok(fd)
}

/// Waits for `flags`; false when the time is up.
fn wait(fd: &OwnedFd, flags: PollFlags, deadline: Instant) -> Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(fd.as_fd(), flags)], limit) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends all of it; false when the time is up.
fn send_all(fd: &OwnedFd, mut bytes: &[u8], deadline: Instant) -> Result<bool> {
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    while !bytes.is_empty() {
        match send_bytes(fd.as_raw_fd(), bytes, flags) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EAGAIN) => {
                if !wait(fd, PollFlags::POLLOUT, deadline)? {
                    return Ok(false);
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("send"),
        }
    }
    Ok(true)
}

enum Got {
    Bytes(usize),
    Eof,
    Late,
}

fn receive(fd: &OwnedFd, buffer: &mut [u8], deadline: Instant) -> Result<Got> {
    loop {
        match recv(fd.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Ok(Got::Eof),
            Ok(count) => return Ok(Got::Bytes(count)),
            Err(Errno::EAGAIN) => {
                if !wait(fd, PollFlags::POLLIN, deadline)? {
                    return Ok(Got::Late);
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("receive"),
        }
    }
}

pub fn print(value: serde_json::Value) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    out.flush()?;
    Ok(())
}

/// MB/s, 10^6 bytes.
fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 / seconds / 1e6
    } else {
        0.0
    }
}

pub fn send(kind: &str, fd: OwnedFd, options: &Send) -> Result<bool> {
    let start = Instant::now();
    let deadline = start + options.timeout;
    let (sent, seconds, mut error, answer) = thread::scope(|scope| -> Result<_> {
        // Received while sending: a peer that answers at once would else stop reading.
        let answer = (options.expect > 0).then(|| {
            let (fd, to_eof) = (&fd, !options.no_shutdown);
            scope.spawn(move || check(fd, options.expect, options.seed, deadline, false, to_eof))
        });
        let (sent, error) = send_content(&fd, options, deadline);
        let seconds = start.elapsed().as_secs_f64();
        if answer.is_some() && !options.no_shutdown {
            shutdown(fd.as_raw_fd(), Shutdown::Write).ok();
        }
        let answer = answer.map(|thread| thread.join().expect("the receiving thread panicked"));
        Ok((sent, seconds, error, answer.transpose()?))
    })?;
    if answer.as_ref().is_some_and(|check| !check.ok) {
        error.get_or_insert("the answer is not what was expected".to_owned());
    }
    let ok = error.is_none();
    print(json!({
        "command": "send",
        "to": kind,
        "bytes": sent,
        "size": options.size,
        "seconds": seconds,
        "mb_s": rate(sent, seconds),
        "hash": Hash::expected(options.seed, sent),
        "answer": answer.map(|check| check.report),
        "error": error,
        "ok": ok,
    }))?;
    Ok(ok)
}

/// Returns how much was sent, and why no more.
fn send_content(fd: &OwnedFd, options: &Send, deadline: Instant) -> (u64, Option<String>) {
    let mut content = Content::new(options.seed);
    let mut buffer = vec![0; options.size as usize];
    let mut sent = 0;
    while sent < options.bytes {
        let size = (options.bytes - sent).min(options.size.into()) as usize;
        // Not copied once more, as long as it does not cross the end of a block.
        let bytes = if content.is_whole(size) {
            content.next(size)
        } else {
            content.fill(&mut buffer[..size]);
            &buffer[..size]
        };
        match send_all(fd, bytes, deadline) {
            Ok(true) => sent += size as u64,
            Ok(false) => return (sent, Some("time limit".to_owned())),
            Err(error) => return (sent, Some(format!("{error:#}"))),
        }
        if options.pause > 0 {
            thread::sleep(Duration::from_millis(options.pause));
        }
    }
    (sent, None)
}

struct Check {
    ok: bool,
    report: serde_json::Value,
}

/// Receives up to `bytes` (`to_eof`: and then expects the end), and compares.
fn check(
    fd: &OwnedFd,
    bytes: u64,
    seed: u64,
    deadline: Instant,
    echo: bool,
    to_eof: bool,
) -> Result<Check> {
    let mut buffer = vec![0; BUFFER];
    let mut hash = Hash::new();
    let mut received = 0;
    let mut times: Option<(Instant, Instant)> = None;
    let mut end = "complete";
    let mut error = None;
    while received < bytes || to_eof {
        let limit = match bytes - received.min(bytes) {
            0 => 1,
            left => left.min(BUFFER as u64) as usize,
        };
        match receive(fd, &mut buffer[..limit], deadline) {
            Ok(Got::Bytes(count)) => {
                let now = Instant::now();
                times = Some((times.map_or(now, |(first, _)| first), now));
                hash.update(&buffer[..count]);
                received += count as u64;
                if received > bytes {
                    end = "too much";
                    break;
                }
                if echo && !send_all(fd, &buffer[..count], deadline)? {
                    end = "timeout";
                    break;
                }
            }
            Ok(Got::Eof) => {
                end = if received == bytes { "complete" } else { "eof" };
                break;
            }
            Ok(Got::Late) => {
                end = "timeout";
                break;
            }
            Err(failure) => {
                end = "error";
                error = Some(format!("{failure:#}"));
                break;
            }
        }
    }
    let seconds = times.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
    let (got, expected) = (hash.text(), Hash::expected(seed, bytes));
    // What did arrive is right: only the tail is missing.
    let prefix = got == Hash::expected(seed, received);
    let ok = end == "complete" && got == expected;
    Ok(Check {
        ok,
        report: json!({
            "bytes": received,
            "wanted": bytes,
            "seconds": seconds,
            "mb_s": rate(received, seconds),
            "hash": got,
            "expected": expected,
            "prefix_ok": prefix,
            "end": end,
            "error": error,
            "ok": ok,
        }),
    })
}

pub fn serve(options: &Serve) -> Result<bool> {
    let (listener, _) = listener(SockType::Stream, VMADDR_CID_ANY, options.port)?;
    let deadline = Instant::now() + options.timeout;
    let mut all = true;
    for connection in 1..=options.count {
        if !wait(&listener, PollFlags::POLLIN, deadline)? {
            bail!(
                "no connection within the time limit ({} of {})",
                connection - 1,
                options.count
            );
        }
        let fd = accept4(&listener, SockFlag::SOCK_CLOEXEC)?;
        let mut greeting = vec![0; options.greeting];
        Content::new(options.seed).fill(&mut greeting);
        send_all(&fd, &greeting, deadline)?;
        let Check { ok, mut report } = check(
            &fd,
            options.bytes,
            options.seed,
            deadline,
            options.echo,
            options.echo,
        )?;
        report["command"] = "serve".into();
        report["connection"] = connection.into();
        print(report)?;
        all &= ok;
        if options.echo {
            shutdown(fd.as_raw_fd(), Shutdown::Write).ok();
            // The client closes when it has everything; until then nothing may be cut.
            let _ = receive(&fd, &mut [0], deadline);
        }
    }
    Ok(all)
}
