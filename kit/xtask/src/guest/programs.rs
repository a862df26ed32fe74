// SPDX-License-Identifier: GPL-2.0-only
//! Builds the repository's programs for guests: the static programs `vsock-redirect` and `guest`,
//! and the library `preload`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use walkdir::WalkDir;

use crate::host::env::Env;
use crate::host::files::Key;
use crate::host::toolroot::ToolRoot;
use crate::host::{proc, step};

/// The built programs. Their files never change, so their users need no lock.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The tool that users run instead of socat.
    pub redirect: PathBuf,
    /// The senders, servers and other programs that only tests need.
    pub guest: PathBuf,
    /// The LD_PRELOAD library that puts the vsock sockets of a program into a sockmap.
    pub preload: PathBuf,
}

/// The target that cargo builds for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The file of the library.
const PRELOAD: &str = "libpreload.so";

/// The compiler flags of the programs. A static program runs in a guest without libraries.
const RUSTFLAGS: &str = "-C target-feature=+crt-static";

/// The files and folders that the programs are built from.
const SOURCES: &[&str] = &[
    "vsock-redirect",
    "kit/guest",
    "kit/preload",
    "kit/sockmap",
    "Cargo.toml",
    "Cargo.lock",
];

/// Returns the programs of this checkout. Builds them if the cache does not have them.
pub fn build(env: &Env, root: &ToolRoot) -> Result<Programs> {
    let name = format!("programs-{}", key(env, root)?);
    if !env.cache.join(&name).exists() {
        let _lock = env.lock("programs")?;
        env.make_dir(&name, |dir| compile(env, root, dir))?;
    }
    let dir = env.cache.join(name);
    Ok(Programs {
        redirect: dir.join("vsock-redirect"),
        guest: dir.join("guest"),
        preload: dir.join(PRELOAD),
    })
}

/// Returns a key that changes with the sources.
fn key(env: &Env, root: &ToolRoot) -> Result<String> {
    let mut key = Key::new().add(&root.key).add(TARGET).add(RUSTFLAGS);
    for source in SOURCES {
        for entry in WalkDir::new(env.repo.join(source)).sort_by_file_name() {
            let entry = entry?;
            if entry.file_type().is_file() {
                let path = entry.path();
                let data =
                    fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                key = key
                    .add(path.strip_prefix(&env.repo)?.as_os_str().as_encoded_bytes())
                    .add(data);
            }
        }
    }
    Ok(key.finish())
}

/// Builds the programs and copies them to folder `dir`.
fn compile(env: &Env, root: &ToolRoot, dir: &Path) -> Result<()> {
    // This folder keeps the crates of others that the programs use. The crates of this repository
    // are cleaned first, so that cargo builds them in any case: cargo compares the times of files,
    // while the key covers their content.
    let target = env.cache.join("programs-target");
    let programs = ["vsock-redirect", "guest"];
    // A library cannot be static. It has a folder of its own, since its flags differ.
    let library_target = target.join("library");
    let cargo = |verb: &str, target: &Path, packages: &[&str]| {
        let mut cargo = root.command(&env.repo, "cargo");
        cargo.args([verb, "--release", "--locked", "--target", TARGET]);
        for package in packages {
            cargo.args(["-p", package]);
        }
        cargo.env("CARGO_TARGET_DIR", target);
        cargo
    };
    proc::output(cargo(
        "clean",
        &target,
        &[&programs[..], &["sockmap"]].concat(),
    ))?;
    let mut build = cargo("build", &target, &programs);
    build.env("RUSTFLAGS", RUSTFLAGS);
    step::run(env, "build vsock-redirect and guest", build)?;
    proc::output(cargo("clean", &library_target, &["preload", "sockmap"]))?;
    let build = cargo("build", &library_target, &["preload"]);
    step::run(env, "build preload", build)?;
    for (target, file) in [
        (&target, "vsock-redirect"),
        (&target, "guest"),
        (&library_target, PRELOAD),
    ] {
        let built = target.join(TARGET).join("release").join(file);
        fs::copy(&built, dir.join(file))
            .with_context(|| format!("cannot copy {}", built.display()))?;
    }
    Ok(())
}
