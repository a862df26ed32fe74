// SPDX-License-Identifier: GPL-2.0-only
//! Builds and boots a kernel at each patch of the series.

use std::fs;
use std::io::Write;

use anyhow::{Context, Result};

use crate::guest::boot::Boot;
use crate::guest::initramfs::Initramfs;
use crate::guest::machine::System;
use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::build;
use crate::kernel::flavour::{Bed, Flavour, Sockmap};
use crate::kernel::source::Source;
use crate::kernel::tree::{self, Tree};
use crate::mail::manifest::Manifest;

/// The script of the guest: checks that vsock works.
const MAIN: &str = "#!/bin/sh\nmodprobe -q vsock\ntest -c /dev/vsock\n";

/// Builds and boots a kernel at each patch. Uses a cache of its own, so that the kernels in the
/// ordinary one stay.
pub fn bisect(
    env: &Env,
    root: &ToolRoot,
    source: &Source,
    manifest: &Manifest,
    bed: Bed,
) -> Result<()> {
    let _lock = env.lock("bisect")?;
    let inner = inner_env(env)?;
    let count = manifest.patches().count();
    for (index, patch) in manifest.patches().enumerate() {
        let number = index + 1;
        manifest.checkout(&env.repo, number, &inner.repo)?;
        let at = || format!("at patch {number}, {}", patch.name);
        let tree = tree::apply(&inner, root, source.clone()).with_context(at)?;
        let mut flavours = vec![Sockmap::C];
        if has_option(&tree) {
            flavours.push(Sockmap::Rust);
        }
        for sockmap in flavours {
            let flavour = Flavour {
                bed,
                sockmap,
                debug: false,
            };
            let image = build(&inner, root, &tree, flavour).with_context(at)?;
            let archive = Initramfs::new(&inner, root, MAIN)
                .modules(&image)?
                .build(&image)?;
            let outcome = Boot::new(&image, System::Initramfs(&archive)).run(
                &inner,
                root,
                &format!("{}-{}", patch.name.replace('/', "-"), sockmap.name()),
            )?;
            outcome.verdict().with_context(at)?;
            println!(
                "{number}/{count} {}: {} builds and boots",
                patch.name,
                flavour.name()
            );
        }
    }
    Ok(())
}

/// Makes an empty checkout with the configuration of the real one, where warnings are errors.
/// Returns the folders of a run on that checkout.
fn inner_env(env: &Env) -> Result<Env> {
    let inner = Env {
        repo: env.cache.join("bisect/checkout"),
        cache: env.cache.join("bisect"),
        logs: env.logs.clone(),
        source: env.source.clone(),
    };
    if inner.repo.exists() {
        env.remove_dir(&inner.repo)?;
    }
    let configs = inner.repo.join("kernel");
    fs::create_dir_all(&configs)?;
    for entry in fs::read_dir(env.repo.join("kernel"))? {
        let entry = entry?;
        fs::copy(entry.path(), configs.join(entry.file_name()))?;
    }
    let mut base = fs::File::options()
        .append(true)
        .open(configs.join("base.config"))?;
    writeln!(base, "CONFIG_WERROR=y")?;
    Ok(inner)
}

/// Returns whether the work tree has the option CONFIG_VSOCKETS_SOCKMAP_RUST.
fn has_option(tree: &Tree) -> bool {
    tree.files.iter().any(|file| {
        file.ends_with("/Kconfig")
            && fs::read_to_string(tree.path.join(file))
                .is_ok_and(|text| text.contains("config VSOCKETS_SOCKMAP_RUST\n"))
    })
}
