// SPDX-License-Identifier: GPL-2.0-only
//! Runs the kernel's make, and repairs build folders whose last make was interrupted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use walkdir::WalkDir;

use crate::host::env::Env;
use crate::host::step;
use crate::host::toolroot::ToolRoot;
use crate::kernel::flavour::Bed;

/// The variables that every make of the kernel gets.
pub const VARIABLES: &[&str] = &[
    "LLVM=-22",
    // With a fixed time, linking the same objects gives the same file.
    "KBUILD_BUILD_TIMESTAMP=Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER=vsock",
    "KBUILD_BUILD_HOST=sockmap",
];

/// A file that the build folder (O=) has while make runs.
const BUSY: &str = ".make-is-running";

/// A file of the build folder that names the bindgen which made the bindings.
const BINDGEN: &str = ".bindgen";

/// Returns the command `make O=out` in a work tree, for a test bed. The caller adds targets and
/// variables.
pub fn command(root: &ToolRoot, tree: &Path, out: &Path, bed: Bed) -> Command {
    let mut make = root.command(tree, "make");
    make.arg(format!("O={}", out.display())).args(VARIABLES);
    if bed.is_um() {
        make.arg("ARCH=um");
    }
    let jobs = std::thread::available_parallelism().map_or(2, |count| count.get());
    make.arg(format!("-j{jobs}"));
    make
}

/// Runs a make that builds in the build folder `out`, so that the next make can tell if this one
/// was interrupted.
pub fn run(env: &Env, step: &str, out: &Path, make: Command) -> Result<()> {
    clean_interrupted(out)?;
    fs::write(out.join(BUSY), "")?;
    let built = step::run(env, step, make);
    // When a build fails, make itself removes the unfinished files.
    fs::remove_file(out.join(BUSY))?;
    built
}

/// Removes the files that an interrupted make wrote in its last minute. It may have left one of
/// them unfinished, and make would take that one for up to date.
fn clean_interrupted(out: &Path) -> Result<()> {
    let Ok(busy) = fs::metadata(out.join(BUSY)) else {
        return Ok(());
    };
    let since = busy.modified()?;
    const BUILT: &[&str] = &[
        "o", "a", "so", "rmeta", "rs", "ko", "s", "bc", "order", "elf",
    ];
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in WalkDir::new(out) {
        let entry = entry?;
        let path = entry.path();
        let built = path
            .extension()
            .is_some_and(|ext| BUILT.iter().any(|built| ext == *built));
        let kernel = entry.file_name() == "linux"
            || entry.file_name().to_string_lossy().starts_with("vmlinux");
        if entry.file_type().is_file() && (built || kernel) {
            let time = entry.metadata()?.modified()?;
            if time >= since {
                files.push((time, path.to_path_buf()));
            }
        }
    }
    let Some(last) = files.iter().map(|(time, _)| *time).max() else {
        return Ok(());
    };
    for (time, path) in files {
        if last.duration_since(time).unwrap_or_default() < Duration::from_secs(60) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Removes the bindings that another version of bindgen made, since make does not notice the
/// change.
pub fn forget_other_bindgen(root: &ToolRoot, out: &Path) -> Result<()> {
    let stamp = out.join(BINDGEN);
    let was = fs::read_to_string(&stamp).unwrap_or_default();
    if was == root.bindgen {
        return Ok(());
    }
    if let Ok(entries) = fs::read_dir(out.join("rust/bindings")) {
        for entry in entries {
            let path = entry?.path();
            if !was.is_empty() && path.to_string_lossy().ends_with("_generated.rs") {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(fs::write(stamp, &root.bindgen)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_build_loses_its_last_files() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("old.o");
        for name in ["old.o", "new.o", "new.rs", "keep.h", ".config"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        fs::File::open(&old)
            .unwrap()
            .set_modified(hour_ago)
            .unwrap();
        clean_interrupted(dir.path()).unwrap();
        assert!(dir.path().join("new.o").exists());
        let busy = fs::File::create(dir.path().join(BUSY)).unwrap();
        busy.set_modified(SystemTime::now() - Duration::from_secs(60))
            .unwrap();
        clean_interrupted(dir.path()).unwrap();
        for (name, left) in [
            ("old.o", true),
            ("new.o", false),
            ("new.rs", false),
            ("keep.h", true),
            (".config", true),
        ] {
            assert_eq!(dir.path().join(name).exists(), left, "{name}");
        }
    }
}
