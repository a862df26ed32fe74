// SPDX-License-Identifier: GPL-2.0-only
//! The work tree: pristine source, overlay files and patches in one folder.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Result;
use walkdir::WalkDir;

use crate::host::env::{Env, Lock};
use crate::host::files::{write_atomic, Key};
use crate::host::toolroot::ToolRoot;
use crate::host::{progress, step};
use crate::kernel::changes;
use crate::kernel::patch::{Content, File};
use crate::kernel::source::Source;

/// The work tree. While this value lives, no other run changes the tree or builds from it.
pub struct Tree {
    pub path: PathBuf,
    /// Changes with any file of the tree.
    pub key: String,
    /// Changes with any file from which a kernel is built.
    pub kernel_key: String,
    /// The files that the repository adds to the source or changes in it.
    pub files: Vec<String>,
    pub source: Source,
    _lock: Lock,
}

/// The files from which no kernel is built, by the start of their paths.
const NOT_KERNEL: &[&str] = &["Documentation/", "MAINTAINERS", "tools/testing/"];

/// The file of the work tree that lists the files which the last [`apply`] wrote.
const STATE: &str = ".vsock-sockmap-applied";

/// Makes the work tree of a source. Writes only the files that differ, so that make rebuilds
/// little.
pub fn apply(env: &Env, root: &ToolRoot, source: Source) -> Result<Tree> {
    let name = format!("tree-{}", source.key);
    let lock = env.lock(&name)?;
    let new = changes::content(&env.repo, &source.path)?;
    let path = env.cache.join(&name);
    if !path.exists() {
        env.need_space(6, "the work tree and what is built from it")?;
        env.make_dir(&name, |dir| {
            if source.of_user {
                // `follow` fills the folder.
                return Ok(());
            }
            let mut copy = root.command(&source.path, "cp");
            copy.args(["-a", "--reflink=auto", "."]).arg(dir);
            step::run(env, "copy the kernel source", copy)
        })?;
    }
    write(env, root, &source, &path, &new)?;
    let (key, kernel_key) = keys(&base_key(&source)?, &new);
    Ok(Tree {
        path,
        key,
        kernel_key,
        files: new.into_keys().collect(),
        source,
        _lock: lock,
    })
}

/// Writes the files of `new` into the work tree `path`. Restores those that an earlier run changed
/// and that `new` does not have.
fn write(env: &Env, root: &ToolRoot, source: &Source, path: &Path, new: &Content) -> Result<()> {
    let state = path.join(STATE);
    let old: BTreeSet<String> = fs::read_to_string(&state)
        .unwrap_or_default()
        .lines()
        .map(String::from)
        .collect();
    let all: BTreeSet<String> = new.keys().cloned().chain(old.iter().cloned()).collect();
    // The list is written first, so that the next run can make good for an interrupted one.
    if all != old {
        write_state(&state, all.iter())?;
    }
    if source.of_user {
        follow(env, root, source, path, &all)?;
    }
    let mut written = 0;
    for file in &all {
        let wanted = match new.get(file) {
            Some(wanted) => wanted.clone(),
            None => File::read(&source.path.join(file))?,
        };
        written += usize::from(put(path, file, wanted.as_ref())?);
    }
    if all.len() != new.len() {
        write_state(&state, new.keys())?;
    }
    if written != 0 {
        progress::say(&format!(
            "work tree: {written} of {} files changed",
            all.len()
        ));
    }
    Ok(())
}

/// Returns the keys of a work tree: of all files, and of those from which a kernel is built.
fn keys(base: &str, new: &Content) -> (String, String) {
    let mut whole = Key::new().add(base);
    let mut kernel = Key::new().add(base);
    for (file, wanted) in new {
        let data = wanted
            .as_ref()
            .map_or(&b"removed"[..], |wanted| &wanted.data);
        whole = whole.add(file).add(data);
        if !NOT_KERNEL.iter().any(|prefix| file.starts_with(prefix)) {
            kernel = kernel.add(file).add(data);
        }
    }
    (whole.finish(), kernel.finish())
}

/// Returns the pristine source as a tree. Nothing is written to it. The lock covers the kernels
/// that are built from it.
pub fn pristine(env: &Env, source: Source) -> Result<Tree> {
    let lock = env.lock(&format!("pristine-{}", source.key))?;
    let key = Key::new().add(base_key(&source)?).finish();
    Ok(Tree {
        path: source.path.clone(),
        kernel_key: key.clone(),
        key,
        files: Vec::new(),
        source,
        _lock: lock,
    })
}

/// Returns a key that changes with any file of the pristine source.
fn base_key(source: &Source) -> Result<String> {
    if source.of_user {
        fingerprint(&source.path)
    } else {
        Ok(source.key.clone())
    }
}

/// Writes the list of the files that the repository changes in the tree.
fn write_state<'a>(state: &Path, files: impl Iterator<Item = &'a String>) -> Result<()> {
    let text: String = files.map(|file| format!("{file}\n")).collect();
    write_atomic(state, text.as_bytes())
}

/// Writes or removes one file of the tree. Returns whether the file changed.
fn put(tree: &Path, file: &str, wanted: Option<&File>) -> Result<bool> {
    let path = tree.join(file);
    let is = File::read(&path)?;
    if is.as_ref() == wanted {
        return Ok(false);
    }
    match wanted {
        Some(wanted) => {
            write_atomic(&path, &wanted.data)?;
            let mode = if wanted.executable { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
        None => {
            fs::remove_file(&path)?;
            // Also remove the folders that are empty now.
            let mut folder = path.parent();
            while let Some(dir) = folder.filter(|dir| *dir != tree && fs::remove_dir(dir).is_ok()) {
                folder = dir.parent();
            }
        }
    }
    Ok(true)
}

/// Copies changes of the user's tree into the work tree, except in files that the repository
/// changes.
fn follow(
    env: &Env,
    root: &ToolRoot,
    source: &Source,
    tree: &Path,
    applied: &BTreeSet<String>,
) -> Result<()> {
    let mut sync = root.command(Path::new("/"), "rsync");
    sync.args([
        "-a",
        "--no-owner",
        "--no-group",
        "--delete",
        "--exclude=/.git",
    ]);
    sync.arg(format!("--exclude=/{STATE}"));
    for file in applied {
        sync.arg(format!("--exclude=/{file}"));
    }
    sync.arg(format!("{}/", source.path.display())).arg(tree);
    step::run(env, "follow the user's tree", sync)
}

/// Returns a key that changes with the size or the time of any file of a tree.
fn fingerprint(tree: &Path) -> Result<String> {
    let mut key = Key::new();
    let walk = WalkDir::new(tree).sort_by_file_name().into_iter();
    for entry in walk.filter_entry(|entry| entry.file_name() != ".git") {
        let entry = entry?;
        if !entry.file_type().is_dir() {
            let meta = entry.metadata()?;
            key = key.add(entry.path().as_os_str().as_encoded_bytes());
            key = key.add(format!(
                "{} {} {}",
                meta.len(),
                meta.mtime(),
                meta.mtime_nsec()
            ));
        }
    }
    Ok(key.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Option<File> {
        Some(File {
            data: text.as_bytes().to_vec(),
            executable: false,
        })
    }

    #[test]
    fn put_writes_only_what_differs_and_cleans_up() {
        let dir = tempfile::tempdir().unwrap();
        let new = file("x\n");
        assert!(put(dir.path(), "net/rust/x.rs", new.as_ref()).unwrap());
        assert!(!put(dir.path(), "net/rust/x.rs", new.as_ref()).unwrap());
        assert!(put(dir.path(), "net/rust/x.rs", None).unwrap());
        assert!(!put(dir.path(), "net/rust/x.rs", None).unwrap());
        assert!(!dir.path().join("net").exists());
        assert!(dir.path().exists());
    }
}
