// SPDX-License-Identifier: GPL-2.0-only
//! `vsock-redirect`: moves data between a UNIX socket and a vsock inside the kernel, in place of
//! `socat`.
//!
//! A BPF program (bpf/redirect.bpf.c) on a sockmap sends each packet that one socket receives to
//! the other socket. This tool sets up the program and the sockets, watches for the end of a stream
//! and for errors, and takes everything down without losing data.
//!
//! The modules, from the lowest up:
//!
//! - [`sys`], [`vsock`] and [`stop`] wrap system calls;
//! - [`redirect`] is one direction inside the kernel, and [`end`] a socket that it serves;
//! - [`tool`] has what both forms need;
//! - [`datagrams`] is the form `unix-recv`, and [`streams`] the form `unix-listen`.
//!
//! The BPF side is loaded with the crate aya, which is all Rust. So the tool is one static binary
//! without libbpf and libelf, and it does not need the BTF of the running kernel.

mod address;
mod datagrams;
mod end;
mod redirect;
mod socket_file;
mod stats;
mod stop;
mod streams;
mod sys;
mod tool;
mod vsock;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use address::{Peer, Source};
use tool::Tool;

/// Moves data between a UNIX socket and a vsock inside the kernel, in place of socat
#[derive(Parser)]
#[command(version, after_help = SHORT_HELP, after_long_help = LONG_HELP)]
struct Arguments {
    /// unix-recv:PATH (datagrams) or unix-listen:PATH (streams): the UNIX socket to make
    #[arg(long_help = SOURCE_HELP)]
    source: Source,
    /// vsock-connect:CID:PORT: the vsock to connect to
    ///
    /// CID is a number, `host` (2) or `local` (1, the loopback).
    peer: Peer,
    /// Print bytes and rates to stderr once a second
    #[arg(long)]
    stats: bool,
    /// Redirect answers at once: each client gets all answers before it shuts down its sending side
    ///
    /// Only for unix-listen. Without this option, answers are copied in user space until the client
    /// has shut down its sending side, because that shutdown makes the kernel drop the answers that
    /// a redirect has queued for the client. With this option, answers are redirected from the
    /// start. If a client then shuts down its sending side, the queued answers are lost.
    #[arg(long)]
    no_half_close: bool,
    /// Time limit after SIGTERM or SIGINT to deliver the data that was accepted before
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain_limit: u64,
}

const SOURCE_HELP: &str = "The UNIX socket to make, in one of two forms:

unix-recv:PATH: receive datagrams at PATH, and send them all over one vsock connection. One way. \
The receiver sees a byte stream without the borders of the datagrams.

unix-listen:PATH: listen for stream connections at PATH, and make one vsock connection for each of \
them. Both ways.";

const SHORT_HELP: &str = "Example: vsock-redirect unix-recv:/run/log.sock vsock-connect:host:1234";

const LONG_HELP: &str = "Examples:
  Send all datagrams that arrive at /run/log.sock to port 1234 of the host:
      vsock-redirect unix-recv:/run/log.sock vsock-connect:host:1234
  Connect each client of /run/app.sock to port 5000 of the guest with CID 3:
      vsock-redirect unix-listen:/run/app.sock vsock-connect:3:5000

End:
  SIGTERM or SIGINT ends the tool: it sends on all data that it has accepted and removes the socket
  file. A second signal kills it at once.

Needs:
  Root, or the capabilities CAP_BPF and CAP_NET_ADMIN.
  Linux 6.4 or later with CONFIG_BPF_SYSCALL, CONFIG_INET, CONFIG_UNIX and CONFIG_VSOCKETS, and a
  vsock transport that supports sockmap: virtio (in a guest), vhost (on a host) or loopback.

Exit codes:
  0  a signal ended the tool, and no accepted data was lost
  1  the tool could not start or go on, or accepted data was lost; stderr has the reason
  2  the command line is wrong";

fn run(arguments: &Arguments) -> Result<()> {
    let mut tool = Tool::new(tool::Options {
        half_close: !arguments.no_half_close,
        drain_limit: Duration::from_secs(arguments.drain_limit),
        stats: arguments.stats,
        both_ways: matches!(arguments.source, Source::Stream(_)),
    })?;
    match &arguments.source {
        Source::Datagrams(path) => datagrams::run(&mut tool, path, arguments.peer),
        Source::Stream(path) => streams::run(&mut tool, path, arguments.peer),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vsock-redirect: {error:#}");
            ExitCode::FAILURE
        }
    }
}
