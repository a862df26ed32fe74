// SPDX-License-Identifier: GPL-2.0-only
//! What the checkout has for guests: two static programs, `vsock-redirect` and `guest`, and the library
//! `preload`, which is preloaded into others.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use walkdir::WalkDir;

use crate::host::env::Env;
use crate::host::files::Key;
use crate::host::toolroot::ToolRoot;
use crate::host::{proc, step};

/// Finished programs; like an image they stay as they are, so no lock is needed to use them.
#[derive(Clone, Debug)]
pub struct Programs {
    /// What users run in place of socat.
    pub redirect: PathBuf,
    /// Senders and servers for the beds.
    pub guest: PathBuf,
    /// Puts the vsock sockets of a program into a sockmap.
    pub preload: PathBuf,
}

const TARGET: &str = "x86_64-unknown-linux-gnu";

const PRELOAD: &str = "libpreload.so";

/// What a guest without libraries can run.
const RUSTFLAGS: &str = "-C target-feature=+crt-static";

/// What the programs are built from, besides the tool root.
const SOURCES: &[&str] = &[
    "vsock-redirect",
    "kit/guest",
    "kit/preload",
    "kit/sockmap",
    "Cargo.toml",
    "Cargo.lock",
];

/// The programs, built if the cache has none of these sources.
pub fn build(env: &Env, root: &ToolRoot) -> Result<Programs> {
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
    let name = format!("programs-{}", key.finish());
    if !env.cache.join(&name).exists() {
        let _lock = env.lock("programs")?;
        env.make_dir(&name, |dir| {
            // Kept for the crates that they depend on. What is ours is always built, since cargo
            // goes by the time of a file and the key by what is in it.
            let target = env.cache.join("programs-target");
            let programs = ["vsock-redirect", "guest"];
            // A library cannot be static. Its folder is its own, as the flags differ.
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
        })?;
    }
    let dir = env.cache.join(name);
    Ok(Programs {
        redirect: dir.join("vsock-redirect"),
        guest: dir.join("guest"),
        preload: dir.join(PRELOAD),
    })
}
