// SPDX-License-Identifier: GPL-2.0-only
//! Builds the kernel's vsock tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use anyhow::{Context, Result};
use walkdir::WalkDir;

use crate::host::env::Env;
use crate::host::files::Key;
use crate::host::step;
use crate::host::toolroot::ToolRoot;
use crate::kernel::tree::Tree;

/// The folder of the tests in the kernel tree.
const TESTS: &str = "tools/testing/vsock";

/// The programs that make builds there.
pub const PROGRAMS: &[&str] = &["vsock_test", "vsock_perf"];

/// Returns the folder with vsock_test and vsock_perf, which are built first if the cache has none.
pub fn ensure(env: &Env, root: &ToolRoot, tree: &Tree) -> Result<PathBuf> {
    let source = tree.path.join(TESTS);
    let mut key = Key::new().add(&root.key);
    let mut files = Vec::new();
    for entry in WalkDir::new(&source).sort_by_file_name() {
        let entry = entry?;
        if entry.file_type().is_file() {
            key = key
                .add(entry.file_name().as_encoded_bytes())
                .add(fs::read(entry.path())?);
            files.push(entry.into_path());
        }
    }
    env.make_dir(&format!("vsock-tests-{}", key.finish()), |dir| {
        // make writes beside the source, so it works in a copy, which has the headers at the same
        // relative path.
        let work = tempfile::tempdir_in(&env.logs)?;
        let copy = work.path().join(TESTS);
        fs::create_dir_all(&copy)?;
        symlink(
            tree.path.join("tools/include"),
            work.path().join("tools/include"),
        )?;
        for file in &files {
            let name = file.file_name().context("a file has a name")?;
            fs::copy(file, copy.join(name))?;
        }
        let mut make = root.command(&copy, "make");
        make.args(PROGRAMS);
        step::run(env, "build vsock_test", make)?;
        for program in PROGRAMS {
            fs::copy(copy.join(program), dir.join(program))
                .with_context(|| format!("make did not make {program}"))?;
        }
        Ok(())
    })
}
