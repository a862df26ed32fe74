// SPDX-License-Identifier: GPL-2.0-only
//! The kit. `cargo xtask VERB` builds, boots and tests the patch series, and writes it as mails.
//!
//! A verb is a chain of steps. `test`, for example, makes the tool root, fetches the kernel source,
//! makes the work tree, builds kernels, boots them, and reads their consoles. Each step keeps its
//! result in the cache, under a key that covers all inputs of the step, and does nothing if the
//! result is there.
//!
//! Each module may import only those above it in this table; suites and measure do not import each
//! other. `cargo xtask check imports` checks this.
//!
//! | module | what it does | verbs |
//! | --- | --- | --- |
//! | [`host`] | has folders and locks, runs programs, makes the tool root (Debian with all tools) | |
//! | [`kernel`] | fetches the source, makes the work tree (source, new files, patches), builds kernels | |
//! | [`guest`] | makes an initramfs, boots a guest, reads its console | |
//! | [`suites`] | runs tests | `test`, `stress` |
//! | [`measure`] | measures speed | `demo`, `bench` |
//! | [`mail`] | writes the series as mails, checks the repository | `series`, `check` |
//! | [`verbs`] | runs the verbs of one step each | `setup`, `apply`, `build`, `boot` |
//!
//! The tables in kernel/mod.rs, guest/mod.rs and mail/mod.rs go on from here.

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

/// The heading of the options that all verbs have.
const GLOBAL: &str = "Options of all verbs";

/// Build, boot and test the vsock sockmap patch series, and write it as mails
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    /// Keep tools, kernel source, kernels and logs in DIR [default: $XDG_CACHE_HOME/vsock-sockmap]
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL)]
    cache: Option<PathBuf>,
    /// Use your kernel tree DIR instead of the kit's kernel source; the kit only reads DIR
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL)]
    source: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Get the tools and the kernel source
    Setup,
    /// Make the work tree: the kernel source with the new files and the patches of the series
    Apply,
    /// Build a kernel and print the path of its image
    Build(FlavourArgs),
    /// Boot a kernel and show its console
    Boot(verbs::BootArgs),
    /// Run the tests
    Test(test::Args),
    /// Run random operations on vsock sockets and sockmaps, on a kernel with debugging options
    Stress(stress::Args),
    /// Send UNIX datagrams of a guest to its host, and compare socat, C sockmap and Rust sockmap
    Demo(demo::Args),
    /// Measure throughput and latency of redirects, a copy loop, socat and a direct sender
    Bench(bench::Args),
    /// Write the series as mails for `git send-email`
    Series(series::Args),
    /// Check style, lints, spelling and documentation, and that the series is complete
    Check(check::Args),
}

/// Runs the verb of a command line.
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
