// SPDX-License-Identifier: GPL-2.0-only
//! `guest send-*`: sends the content of a seed.

use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::value_parser;
use nix::sys::socket::{shutdown, Shutdown};
use serde_json::json;

use super::content::{Content, Hash};
use super::receive::{Check, Expected};
use super::timed::send_all;
use crate::options::seconds;
use crate::report::{print, rate};

#[derive(clap::Args)]
pub struct Args {
    /// Bytes of each write
    #[arg(long, default_value_t = 65536, value_parser = value_parser!(u32).range(1..=(1 << 24)))]
    size: u32,
    /// Bytes to send in total
    #[arg(long)]
    bytes: u64,
    /// Seed of the content; sender and server must have the same
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Time limit for everything
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
    /// Pause after each write
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    pause: u64,
    /// Expect this many bytes of the same content back, and then the end of the stream
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    expect: u64,
    /// Do not shut down the sending side after the last byte, and expect no end of the stream
    #[arg(long, requires = "expect")]
    no_shutdown: bool,
}

impl Args {
    /// Returns the answer that the peer must give, if it must give one.
    fn answer(&self) -> Option<Expected> {
        (self.expect > 0).then_some(Expected {
            bytes: self.expect,
            seed: self.seed,
            echo: false,
            to_eof: !self.no_shutdown,
        })
    }
}

/// Sends the content, checks the answer and prints a report. Returns whether all went well.
pub fn run(kind: &str, fd: OwnedFd, args: &Args) -> Result<bool> {
    let start = Instant::now();
    let deadline = start + args.timeout;
    let (sent, seconds, mut error, answer) = thread::scope(|scope| -> Result<_> {
        // A peer that answers at once stops reading unless we receive while we send.
        let answer = args.answer().map(|expected| {
            let fd = &fd;
            scope.spawn(move || expected.check(fd, deadline))
        });
        let (sent, error) = send_content(&fd, args, deadline);
        let seconds = start.elapsed().as_secs_f64();
        if answer.is_some() && !args.no_shutdown {
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
        "size": args.size,
        "seconds": seconds,
        "mb_s": rate(sent, seconds),
        "hash": Hash::expected(args.seed, sent),
        "answer": answer.map(Check::into_report),
        "error": error,
        "ok": ok,
    }))?;
    Ok(ok)
}

/// Sends the content. Returns how many bytes were sent, and the error that stopped it.
fn send_content(fd: &OwnedFd, args: &Args, deadline: Instant) -> (u64, Option<String>) {
    let mut content = Content::new(args.seed);
    let mut buffer = vec![0; args.size as usize];
    let mut sent = 0;
    while sent < args.bytes {
        let size = (args.bytes - sent).min(args.size.into()) as usize;
        // Only bytes that cross the end of a block need a copy.
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
        if args.pause > 0 {
            thread::sleep(Duration::from_millis(args.pause));
        }
    }
    (sent, None)
}
