// SPDX-License-Identifier: GPL-2.0-only
//! `guest`: the programs that run at both ends of a test bed.
//!
//! - `send-*` and `serve-vsock` send and check a known content ([`checked`]).
//! - `bench` and `bench-peer` measure throughput, round trips, packets and memory ([`bench`]).
//! - `stress` looks for faults at random ([`stress`]).
//!
//! Each command prints lines of JSON, which `cargo xtask` reads.

mod bench;
mod checked;
mod options;
mod report;
mod sockets;
mod stress;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Sends, checks and measures data over vsock and UNIX sockets, for the tests of `cargo xtask`
///
/// Each command prints its results as lines of JSON. The exit code is 0 if everything was as
/// expected, 1 if not, and 2 for a wrong command line.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send datagrams to a UNIX socket, from one thread
    SendUnixDgram {
        /// Path of the socket
        path: PathBuf,
        /// Size of the send buffer; a datagram must fit in it together with its overhead
        #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
        sndbuf: usize,
        #[command(flatten)]
        send: checked::send::Args,
    },
    /// Send a stream to a UNIX socket
    SendUnixStream {
        /// Path of the socket
        path: PathBuf,
        #[command(flatten)]
        send: checked::send::Args,
    },
    /// Send a stream to a vsock
    SendVsock {
        /// CID of the machine to connect to
        cid: u32,
        /// Port to connect to
        port: u32,
        #[command(flatten)]
        send: checked::send::Args,
    },
    /// Measure how fast bytes move from one socket to another
    Bench(bench::options::Args),
    /// Hold the remote ends of the vsock connections of a `guest bench` on another machine
    ///
    /// Serves until it is killed.
    BenchPeer {
        /// Port to listen on
        port: u32,
    },
    /// Read, write and move vsock sockets in and out of sockmaps at random, over loopback
    ///
    /// Fails if a word is lost, repeated or out of order, or if a call hangs.
    Stress(stress::options::Args),
    /// Accept vsock connections and check the bytes that arrive
    ServeVsock(checked::serve::Args),
}

/// Runs a command. Returns whether everything was as expected.
fn run(arguments: Arguments) -> Result<bool> {
    match arguments.command {
        Command::SendUnixDgram { path, sndbuf, send } => {
            let socket = sockets::unix_datagram(&path, sndbuf)?;
            checked::send::run("unix-dgram", socket, &send)
        }
        Command::SendUnixStream { path, send } => {
            checked::send::run("unix-stream", sockets::unix_stream(&path)?, &send)
        }
        Command::SendVsock { cid, port, send } => {
            checked::send::run("vsock", sockets::vsock_connect(cid, port)?, &send)
        }
        Command::Bench(args) => bench::run(&args),
        Command::BenchPeer { port } => bench::peer::serve(port),
        Command::Stress(args) => stress::run(&args),
        Command::ServeVsock(args) => checked::serve::run(&args),
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}
