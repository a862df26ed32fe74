// SPDX-License-Identifier: GPL-2.0-only
//! What runs at both ends of a test bed: senders with content that can be checked, and the server
//! that checks it. Each command prints one line of JSON.

mod bench;
mod checked;
mod stress;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// Senders and a server for the test beds
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
        path: PathBuf,
        /// Send buffer; a datagram has to fit in, with its overhead
        #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
        sndbuf: usize,
        #[command(flatten)]
        send: Send,
    },
    /// Send a stream to a UNIX socket
    SendUnixStream {
        path: PathBuf,
        #[command(flatten)]
        send: Send,
    },
    /// Send a stream to a vsock
    SendVsock {
        cid: u32,
        port: u32,
        #[command(flatten)]
        send: Send,
    },
    /// Measure how fast bytes go through two sockets
    Bench(bench::Args),
    /// Be the other machine of a benchmark
    BenchPeer { port: u32 },
    /// Do everything at once to vsock sockets in sockmaps, over loopback
    Stress(StressArgs),
    /// Accept vsock connections and check what they bring, up to N bytes or the end of each
    ServeVsock {
        port: u32,
        /// What each connection is to bring; it is closed when it has
        #[arg(long)]
        bytes: u64,
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// How many connections to serve, one after the other
        #[arg(long, default_value_t = 1)]
        count: u32,
        /// Time limit for all of it
        #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
        timeout: Duration,
        /// Send back what is received
        #[arg(long)]
        echo: bool,
        /// Send a greeting of so many bytes of the same content first
        #[arg(long, default_value_t = 0)]
        greeting: usize,
    },
}

#[derive(Args)]
struct StressArgs {
    /// Of all decisions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long new connections are made
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    time: Duration,
    /// How many connections at a time
    #[arg(long, default_value_t = 3)]
    connections: u32,
    /// Calls may fail for lack of memory
    #[arg(long)]
    faults: bool,
}

#[derive(Args)]
struct Send {
    /// Bytes of each write
    #[arg(long, default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..=(1 << 24)))]
    size: u32,
    /// Bytes in all
    #[arg(long)]
    bytes: u64,
    /// Of the content: sender and server must agree
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Time limit
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
    /// Wait so long after each write
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 0)]
    pause: u64,
    /// Expect so many bytes of the same content back, and then the end (streams)
    #[arg(long, default_value_t = 0)]
    expect: u64,
    /// Do not shut down the sending side when all is sent, and expect no end
    #[arg(long, requires = "expect")]
    no_shutdown: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Returns whether everything was as expected.
fn run(arguments: Arguments) -> Result<bool> {
    match arguments.command {
        Command::SendUnixDgram { path, sndbuf, send } => {
            checked::send("unix-dgram", checked::unix_datagram(&path, sndbuf)?, &send)
        }
        Command::SendUnixStream { path, send } => {
            checked::send("unix-stream", checked::unix_stream(&path)?, &send)
        }
        Command::SendVsock { cid, port, send } => {
            checked::send("vsock", checked::vsock_connect(cid, port)?, &send)
        }
        Command::Bench(args) => bench::run(&args),
        Command::BenchPeer { port } => bench::peer::serve(port),
        Command::Stress(args) => stress::run(&stress::Stress {
            seed: args.seed,
            time: args.time,
            connections: args.connections,
            faults: args.faults,
        }),
        Command::ServeVsock {
            port,
            bytes,
            seed,
            count,
            timeout,
            echo,
            greeting,
        } => checked::serve(&checked::Serve {
            port,
            bytes,
            seed,
            count,
            timeout,
            echo,
            greeting,
        }),
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
