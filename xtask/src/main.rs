// SPDX-License-Identifier: GPL-2.0-only
//! The kit: `cargo xtask VERB` sets up, builds, boots, tests and exports the patch series.
//!
//! A verb is built from these steps, each of which does nothing when its result is in the cache:
//!
//! | module | step |
//! | --- | --- |
//! | [`toolroot`] | a Debian folder with all tools; programs run in it |
//! | [`source`] | the pristine kernel source |
//! | [`tree`] | the work tree: source + overlay + patches |
//! | [`build`] | a kernel image for a bed |
//! | [`programs`] | the static programs that guests run |
//! | [`initramfs`], [`boot`] | a guest: what is in it, its run and its verdict |
//! | [`manifest`], [`series`] | the patches as mails |
//!
//! [`env`] knows the folders and locks, [`proc`] runs programs, [`verbs`] puts the steps together.

mod base;
mod bench;
mod boot;
mod build;
mod check;
mod demo;
mod env;
mod initramfs;
mod manifest;
mod oracle;
mod pair;
mod proc;
mod programs;
mod selftests;
mod series;
mod source;
mod stress;
mod test;
mod toolroot;
mod tree;
mod verbs;
mod vmtest;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::env::Env;

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
    Build(verbs::FlavourArgs),
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
    proc::handle_signals()?;
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
