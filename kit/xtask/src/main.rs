// SPDX-License-Identifier: GPL-2.0-only
//! The kit: `cargo xtask VERB` sets up, builds, boots, tests and exports the patch series.
//!
//! Each module uses only those above it:
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`host`] | folders and locks, processes and their progress, the Debian folder with all tools |
//! | [`kernel`] | the pristine source, the work tree (source + overlay + patches), kernel images |
//! | [`guest`] | what is in a guest, its boot and its verdict |
//! | [`suites`] | `test`, `stress` and what they run |
//! | [`measure`] | `demo` and `bench` |
//! | [`mail`] | the patches as mails, and their checks |
//! | [`verbs`] | the verbs that are one step each |
//!
//! A step does nothing when its result is in the cache.

mod guest;
mod host;
mod kernel;
mod mail;
mod measure;
mod suites;
mod verbs;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::host::env::Env;
use crate::kernel::flavour::FlavourArgs;
use crate::mail::{check, series};
use crate::measure::{bench, demo};
use crate::suites::{stress, test};

/// Builds, boots, tests and exports the vsock sockmap patch series
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    /// Where everything that is built goes [default: $XDG_CACHE_HOME/vsock-sockmap]
    #[arg(long, global = true, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// A kernel tree of yours (a net-next checkout) in place of the base; it is only read
    #[arg(long, global = true, value_name = "DIR")]
    source: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Get the tools and the kernel source
    Setup,
    /// Make the work tree: kernel source + overlay files + patches
    Apply,
    /// Build a kernel; the last line of stdout is its path
    Build(FlavourArgs),
    /// Boot a kernel, its console on stdout
    Boot(verbs::BootArgs),
    /// Run the tests
    Test(test::Args),
    /// Put vsock sockets into sockmaps and take them out at random, on the debug kernel
    Stress(stress::Args),
    /// Send UNIX datagrams of a guest to its host: socat, C sockmap and Rust sockmap compared
    Demo(demo::Args),
    /// Measure throughput and latency of a redirect, a copy loop, socat and a direct sender
    Bench(bench::Args),
    /// Write the series as mails for `git send-email`
    Series(series::Args),
    /// Check style, lints and that the series is complete
    Check(check::Args),
}

fn run(cli: Cli) -> Result<()> {
    host::proc::handle_signals()?;
    let env = Env::new(cli.cache, cli.source)?;
    match cli.verb {
        Verb::Setup => verbs::run_setup(&env),
        Verb::Apply => verbs::run_apply(&env),
        Verb::Build(args) => verbs::run_build(&env, args),
        Verb::Boot(args) => verbs::run_boot(&env, args),
        Verb::Test(args) => test::run(&env, args),
        Verb::Stress(args) => stress::run(&env, args),
        Verb::Demo(args) => demo::run(&env, args),
        Verb::Bench(args) => bench::run(&env, args),
        Verb::Series(args) => series::run(&env, args),
        Verb::Check(args) => check::run(&env, args),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
