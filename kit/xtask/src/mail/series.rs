// SPDX-License-Identifier: GPL-2.0-only
//! The verb `series`: writes the mails, or builds and boots a kernel at each patch.

use std::fs;

use anyhow::{Context, Result};

use crate::host::env::Env;
use crate::kernel::flavour::Bed;
use crate::kernel::prepare;
use crate::mail::bisect::bisect;
use crate::mail::mails::Mails;
use crate::mail::manifest::Manifest;

/// The options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// Write version N of the series; from 2 on, the subjects show the version
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    version: u32,
    /// Instead of writing mails, build and boot a kernel at each patch, with warnings as errors
    #[arg(long, conflicts_with = "version")]
    bisect: bool,
    /// Choose the test bed of --bisect: a kind of machine that the kernel boots on
    #[arg(long, value_enum, default_value = "um", requires = "bisect")]
    bed: Bed,
}

/// Runs the verb.
pub fn run(env: &Env, args: Args) -> Result<()> {
    let manifest = Manifest::read(&env.repo)?;
    let (root, source) = prepare::prepare(env)?;
    if args.bisect {
        return bisect(env, &root, &source, &manifest, args.bed);
    }
    let parent = env.repo.join("build/series");
    fs::create_dir_all(&parent)?;
    let new = tempfile::tempdir_in(&parent)?;
    let mails = Mails {
        env,
        root: &root,
        source: &source,
        manifest: &manifest,
    };
    mails.write(args.version, new.path())?;
    let done = parent.join(format!("v{}", args.version));
    match fs::remove_dir_all(&done) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error)
                .with_context(|| format!("cannot replace the folder {}", done.display()));
        }
        _ => fs::rename(new.keep(), &done)?,
    }
    println!("{}", done.display());
    Ok(())
}
