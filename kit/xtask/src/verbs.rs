// SPDX-License-Identifier: GPL-2.0-only
//! The verbs of one step each: setup, apply, build, boot.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::guest::boot::Boot;
use crate::guest::initramfs::Initramfs;
use crate::guest::machine::System;
use crate::host::env::Env;
use crate::host::progress;
use crate::kernel::flavour::FlavourArgs;
use crate::kernel::prepare::{prepare, prepare_image, prepare_tree};

/// The options of `boot`.
#[derive(clap::Args)]
pub struct BootArgs {
    #[command(flatten)]
    flavour: FlavourArgs,
    /// Boot from the initramfs FILE [default: one with a busybox shell]
    #[arg(long, value_name = "FILE")]
    initramfs: Option<PathBuf>,
    /// Kill the guest after S seconds; 0 means never [default: 300, or never for a shell on a
    /// terminal]
    #[arg(long, value_name = "S")]
    timeout: Option<u64>,
    /// Pass ARGS to the guest's init
    #[arg(last = true)]
    args: Vec<String>,
}

/// Gets the tool root and the kernel source.
pub fn run_setup(env: &Env) -> Result<()> {
    let (root, source) = prepare(env)?;
    println!("tools  {}", root.path.display());
    println!("source {} ({})", source.path.display(), source.version);
    Ok(())
}

/// Makes the work tree.
pub fn run_apply(env: &Env) -> Result<()> {
    let (_root, tree) = prepare_tree(env)?;
    println!("{}", tree.path.display());
    Ok(())
}

/// Builds a kernel.
pub fn run_build(env: &Env, args: FlavourArgs) -> Result<()> {
    let (_root, image) = prepare_image(env, args.flavour())?;
    println!("{}", image.kernel.display());
    Ok(())
}

/// The script of the guest: loads vsock, then runs a shell with job control on the console.
const SHELL: &str = "#!/bin/sh\nfor i in vsock vsock_loopback; do modprobe -q $i; done\n\
                     exec setsid cttyhack sh\n";

/// Boots a kernel.
pub fn run_boot(env: &Env, args: BootArgs) -> Result<()> {
    // Report a missing file now, not after the build.
    if let Some(file) = &args.initramfs {
        std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    let (root, image) = prepare_image(env, args.flavour.flavour())?;
    let archive = match &args.initramfs {
        Some(file) => {
            // Programs in the tool root do not see the user's folders.
            let copy = tempfile::NamedTempFile::new_in(&env.logs)?.into_temp_path();
            std::fs::copy(file, &copy)?;
            copy
        }
        None => Initramfs::new(env, &root, SHELL)
            .modules(&image)?
            .build(&image)?,
    };
    let interactive = args.initramfs.is_none() && std::io::stdin().is_terminal();
    let mut boot = Boot::new(&image, System::Initramfs(&archive));
    boot.args = &args.args;
    boot.echo = true;
    boot.input = true;
    boot.timeout = match args.timeout {
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(seconds)),
        None if interactive => None,
        None => boot.timeout,
    };
    let outcome = boot.run(env, &root, "boot")?;
    progress::say(&format!(
        "the guest ran for {:.1} s; read its log in {}",
        outcome.seconds,
        outcome.log_path.display()
    ));
    outcome.clean()?;
    match outcome.exit {
        // An initramfs of the user reports no status, and that of a person's shell does not matter.
        Some(0) | None => Ok(()),
        Some(_) if interactive => Ok(()),
        Some(_) => outcome.verdict(),
    }
}
