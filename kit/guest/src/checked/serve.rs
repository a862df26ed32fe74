// SPDX-License-Identifier: GPL-2.0-only
//! `guest serve-vsock`: accepts vsock connections and checks the content that they bring.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{bail, Result};
use nix::libc::VMADDR_CID_ANY;
use nix::poll::PollFlags;
use nix::sys::socket::{shutdown, Shutdown, SockType};

use super::content::Content;
use super::receive::Expected;
use super::timed::{receive, send_all, wait};
use crate::options::seconds;
use crate::report::print;
use crate::sockets::{accept, listener};

#[derive(clap::Args)]
pub struct Args {
    /// Port to listen on
    port: u32,
    /// Bytes that each connection must bring; after these the server closes it
    #[arg(long)]
    bytes: u64,
    /// Seed of the content; sender and server must have the same
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of connections to serve, one after the other
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Time limit for all connections together
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
    /// Send back all bytes that arrive
    #[arg(long)]
    echo: bool,
    /// First send this many bytes of the same content
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    greeting: usize,
}

/// Serves the connections and prints a report for each. Returns whether all brought the content.
pub fn run(args: &Args) -> Result<bool> {
    let (listener, _) = listener(SockType::Stream, VMADDR_CID_ANY, args.port)?;
    let deadline = Instant::now() + args.timeout;
    let mut all = true;
    for connection in 1..=args.count {
        if !wait(&listener, PollFlags::POLLIN, deadline)? {
            bail!(
                "no connection within the time limit ({} of {} served)",
                connection - 1,
                args.count
            );
        }
        all &= serve(&accept(&listener)?, args, connection, deadline)?;
    }
    Ok(all)
}

fn serve(fd: &OwnedFd, args: &Args, connection: u32, deadline: Instant) -> Result<bool> {
    let mut greeting = vec![0; args.greeting];
    Content::new(args.seed).fill(&mut greeting);
    send_all(fd, &greeting, deadline)?;
    let expected = Expected {
        bytes: args.bytes,
        seed: args.seed,
        echo: args.echo,
        to_eof: args.echo,
    };
    let check = expected.check(fd, deadline)?;
    let ok = check.ok;
    let mut report = check.into_report();
    report["command"] = "serve".into();
    report["connection"] = connection.into();
    print(report)?;
    if args.echo {
        shutdown(fd.as_raw_fd(), Shutdown::Write).ok();
        // The client closes when it has everything. If we closed first, the rest could be cut off.
        let _ = receive(fd, &mut [0], deadline);
    }
    Ok(ok)
}
