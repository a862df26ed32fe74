// SPDX-License-Identifier: GPL-2.0-only
//! The work tree: pristine source + overlay files + patches.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, Context, Result};
use diffy::patch_set::{FileOperation, ParseOptions, PatchSet};
use serde::Deserialize;
use walkdir::WalkDir;

use crate::host::env::{Env, Lock};
use crate::host::files::{write_atomic, Key};
use crate::host::toolroot::ToolRoot;
use crate::host::{progress, step};
use crate::kernel::source::Source;

/// The work tree. Nobody else changes it, or builds from it, while this lives.
pub struct Tree {
    pub path: PathBuf,
    /// What is in it.
    pub key: String,
    /// What is in it, as far as a kernel is built from it.
    pub kernel_key: String,
    /// What the repository brings or changes.
    pub files: Vec<String>,
    pub source: Source,
    _lock: Lock,
}

/// A file that the repository brings or changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub data: Vec<u8>,
    pub executable: bool,
}

/// By its path in the kernel; `None` is a file that a patch removes.
pub type Content = BTreeMap<String, Option<File>>;

/// Top-level folders of Linux: what the repository has in them are overlay files. `kernel` is not
/// among them, since the checkout's has the base and the configurations.
const KERNEL_FOLDERS: &[&str] = &[
    "Documentation",
    "LICENSES",
    "arch",
    "block",
    "certs",
    "crypto",
    "drivers",
    "fs",
    "include",
    "init",
    "io_uring",
    "ipc",
    "lib",
    "mm",
    "net",
    "rust",
    "samples",
    "scripts",
    "security",
    "sound",
    "tools",
    "usr",
    "virt",
];

/// No kernel is built from these.
const NOT_KERNEL: &[&str] = &["Documentation/", "MAINTAINERS", "tools/testing/"];

/// Names the paths that an earlier `apply` brought.
const STATE: &str = ".vsock-sockmap-applied";

/// Overlay files: path in the kernel and file in the checkout.
pub fn overlay_files(repo: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for folder in KERNEL_FOLDERS {
        let top = repo.join(folder);
        if !top.is_dir() {
            continue;
        }
        for entry in WalkDir::new(&top).sort_by_file_name() {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy();
            if entry.file_type().is_file() && !is_leftover(&name) {
                let path = entry.path().strip_prefix(repo)?;
                let path = path.to_str().context("a path is UTF-8")?.to_string();
                files.insert(path, entry.path().to_path_buf());
            }
        }
    }
    Ok(files)
}

/// What editors and patch leave behind.
fn is_leftover(name: &str) -> bool {
    let hidden = name.starts_with('.') && name != ".gitignore" && name != ".kunitconfig";
    hidden || name.ends_with('~') || name.ends_with(".orig") || name.ends_with(".rej")
}

/// Says which series there are, in the order in which they apply.
pub const MANIFEST: &str = "series/series.toml";

/// What is needed of it here.
#[derive(Deserialize)]
struct Order {
    series: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// The patches of all series, in the order in which they apply.
pub fn patches(repo: &Path) -> Result<Vec<PathBuf>> {
    let order = fs::read_to_string(repo.join(MANIFEST))
        .with_context(|| format!("cannot read {MANIFEST}"))?;
    let order: Order =
        toml::from_str(&order).with_context(|| format!("{MANIFEST} is not right"))?;
    let mut patches = Vec::new();
    for Named { name } in order.series {
        // The first patches of a series can be all that a checkout has.
        let Ok(entries) = fs::read_dir(repo.join("series").join(name)) else {
            continue;
        };
        let mut of_series = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|ext| ext == "patch") {
                of_series.push(path);
            }
        }
        of_series.sort();
        patches.extend(of_series);
    }
    Ok(patches)
}

/// All that overlay and patches make of the pristine source.
pub fn content(repo: &Path, pristine: &Path) -> Result<Content> {
    let mut content = Content::new();
    for path in patches(repo)? {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path
            .strip_prefix(repo)
            .unwrap_or(&path)
            .display()
            .to_string();
        apply_patch(&name, &text, &mut content, |file| {
            read(&pristine.join(file))
        })?;
    }
    for (path, file) in overlay_files(repo)? {
        if pristine.join(&path).exists() || content.contains_key(&path) {
            bail!("{path}: Linux has this file already, so a change to it belongs into a patch");
        }
        content.insert(path, read(&file)?);
    }
    Ok(content)
}

/// A file with its mode; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<File>> {
    match fs::read(path) {
        Ok(data) => {
            let executable = fs::metadata(path)?.mode() & 0o111 != 0;
            Ok(Some(File { data, executable }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(anyhow!(error).context(format!("cannot read {}", path.display()))),
    }
}

/// Applies a unified diff, with offsets but without fuzz. `pristine` gives the files that no
/// earlier patch has touched.
fn apply_patch(
    name: &str,
    text: &str,
    content: &mut Content,
    pristine: impl Fn(&str) -> Result<Option<File>>,
) -> Result<()> {
    let mut files = 0;
    for file_patch in PatchSet::parse(text, ParseOptions::unidiff()) {
        let file_patch = file_patch.map_err(|error| anyhow!("{name}: {error}"))?;
        let (from, to) = match file_patch.operation().strip_prefix(1) {
            FileOperation::Modify { original, modified } if original == modified => {
                (Some(original.into_owned()), Some(modified.into_owned()))
            }
            FileOperation::Create(path) => (None, Some(path.into_owned())),
            FileOperation::Delete(path) => (Some(path.into_owned()), None),
            other => bail!("{name}: a patch cannot do this: {other:?}"),
        };
        let Some(path) = from.as_ref().or(to.as_ref()).cloned() else {
            continue;
        };
        if path.starts_with('/') || path.split('/').any(|part| part == "..") {
            bail!("{name}: {path} is outside of the kernel tree");
        }
        let before = match content.get(&path) {
            Some(file) => file.clone(),
            None => pristine(&path)?,
        };
        let before = match (from, before) {
            (Some(_), Some(file)) => file,
            (None, None) => File {
                data: Vec::new(),
                executable: false,
            },
            (Some(_), None) => bail!("{name}: there is no file {path}"),
            (None, Some(_)) => bail!("{name}: it creates {path}, which is there already"),
        };
        let diff = file_patch
            .patch()
            .as_text()
            .with_context(|| format!("{name}: the change to {path} is binary"))?;
        let old = String::from_utf8(before.data)
            .map_err(|_| anyhow!("{name}: {path} is not a text file"))?;
        let new =
            diffy::apply(&old, diff).map_err(|error| failed_hunk(name, &path, diff, &error))?;
        if to.is_none() && !new.is_empty() {
            bail!("{name}: it deletes {path}, but lines are left");
        }
        let file = File {
            data: new.into_bytes(),
            executable: before.executable,
        };
        content.insert(path, to.map(|_| file));
        files += 1;
    }
    if files == 0 {
        bail!("{name}: there is no change in it");
    }
    Ok(())
}

fn failed_hunk(
    name: &str,
    path: &str,
    diff: &diffy::Patch<'_, str>,
    error: &diffy::ApplyError,
) -> anyhow::Error {
    // The error only tells its number in words.
    let text = error.to_string();
    let number: usize = text
        .rsplit('#')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let line = number
        .checked_sub(1)
        .and_then(|index| diff.hunks().get(index));
    let line = line.map_or(0, |hunk| hunk.old_range().start());
    anyhow!("{name}: hunk {number} (line {line}) does not apply to {path}")
}

/// Makes the work tree what the checkout says. Only files that differ are written, so that make
/// rebuilds little.
pub fn apply(env: &Env, root: &ToolRoot, source: Source) -> Result<Tree> {
    let name = format!("tree-{}", source.key);
    let lock = env.lock(&name)?;
    let new = content(&env.repo, &source.path)?;
    let path = env.cache.join(&name);
    if !path.exists() {
        env.need_space(6, "the work tree and what is built from it")?;
        env.make_dir(&name, |dir| {
            if source.of_user {
                // `follow` fills it.
                return Ok(());
            }
            let mut copy = root.command(&source.path, "cp");
            copy.args(["-a", "--reflink=auto", "."]).arg(dir);
            step::run(env, "copy the kernel source", copy)
        })?;
    }
    let state = path.join(STATE);
    let old: BTreeSet<String> = fs::read_to_string(&state)
        .unwrap_or_default()
        .lines()
        .map(String::from)
        .collect();
    let all: BTreeSet<String> = new.keys().cloned().chain(old.iter().cloned()).collect();
    // Before anything changes, so that an interrupted run is made good by the next.
    if all != old {
        write_state(&state, all.iter())?;
    }
    if source.of_user {
        follow(env, root, &source, &path, &all)?;
    }
    let mut written = 0;
    for file in &all {
        let wanted = match new.get(file) {
            Some(wanted) => wanted.clone(),
            None => read(&source.path.join(file))?,
        };
        written += usize::from(put(&path, file, wanted.as_ref())?);
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
    let base = base_key(&source)?;
    let mut whole = Key::new().add(&base);
    let mut kernel = Key::new().add(&base);
    for (file, wanted) in &new {
        let data = wanted
            .as_ref()
            .map_or(&b"removed"[..], |wanted| &wanted.data);
        whole = whole.add(file).add(data);
        if !NOT_KERNEL.iter().any(|prefix| file.starts_with(prefix)) {
            kernel = kernel.add(file).add(data);
        }
    }
    Ok(Tree {
        path,
        key: whole.finish(),
        kernel_key: kernel.finish(),
        files: new.into_keys().collect(),
        source,
        _lock: lock,
    })
}

/// The pristine source as a tree of its own: nothing is written to it, the lock is for what is built
/// from it.
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

/// Changes when a file of the pristine source does.
fn base_key(source: &Source) -> Result<String> {
    if source.of_user {
        fingerprint(&source.path)
    } else {
        Ok(source.key.clone())
    }
}

fn write_state<'a>(state: &Path, files: impl Iterator<Item = &'a String>) -> Result<()> {
    let text: String = files.map(|file| format!("{file}\n")).collect();
    write_atomic(state, text.as_bytes())
}

/// Makes one file of the tree what is wanted; says whether that was a change.
fn put(tree: &Path, file: &str, wanted: Option<&File>) -> Result<bool> {
    let path = tree.join(file);
    let is = read(&path)?;
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
            // Folders that only the overlay had; the first with other files ends it.
            let mut folder = path.parent();
            while let Some(dir) = folder.filter(|dir| *dir != tree && fs::remove_dir(dir).is_ok()) {
                folder = dir.parent();
            }
        }
    }
    Ok(true)
}

/// Takes over what changed in the user's tree, except in files that the repository changes.
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

/// Changes when a file of the tree does.
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

    const OLD: &str = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";

    fn file(text: &str) -> Option<File> {
        Some(File {
            data: text.as_bytes().to_vec(),
            executable: false,
        })
    }

    fn apply_to(old: &'static str, patch: &str, content: &mut Content) -> Result<()> {
        apply_patch("series/a/1-x.patch", patch, content, |path| {
            Ok(if path == "net/a.c" { file(old) } else { None })
        })
    }

    #[test]
    fn patch_applies_with_an_offset() {
        let patch = "--- a/net/a.c\n+++ b/net/a.c\n@@ -5,3 +5,3 @@\n two\n-three\n+3\n four\n";
        let mut content = Content::new();
        apply_to(OLD, patch, &mut content).unwrap();
        assert_eq!(content["net/a.c"], file(&OLD.replace("three", "3")));
    }

    #[test]
    fn failed_hunk_names_file_and_hunk() {
        let patch = "--- a/net/a.c\n+++ b/net/a.c\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n\
                     @@ -8,3 +8,3 @@\n eight\n-NINE\n+9\n ten\n";
        let error = apply_to(OLD, patch, &mut Content::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "series/a/1-x.patch: hunk 2 (line 8) does not apply to net/a.c"
        );
    }

    #[test]
    fn context_that_differs_is_no_fuzz() {
        // GNU patch would take this with a fuzz of 1.
        let patch =
            "--- a/net/a.c\n+++ b/net/a.c\n@@ -1,5 +1,5 @@\n ONE\n two\n-three\n+3\n four\n five\n";
        let error = apply_to(OLD, patch, &mut Content::new()).unwrap_err();
        assert!(error.to_string().contains("hunk 1"), "{error}");
        assert!(error.to_string().contains("net/a.c"), "{error}");
    }

    #[test]
    fn second_patch_sees_what_the_first_did() {
        let mut content = Content::new();
        let create = "--- /dev/null\n+++ b/net/new.c\n@@ -0,0 +1,2 @@\n+a\n+b\n";
        apply_to(OLD, create, &mut content).unwrap();
        let change = "--- a/net/new.c\n+++ b/net/new.c\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n";
        apply_to(OLD, change, &mut content).unwrap();
        assert_eq!(content["net/new.c"], file("a\nc\n"));
        let delete = "--- a/net/new.c\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-a\n-c\n";
        apply_to(OLD, delete, &mut content).unwrap();
        assert_eq!(content["net/new.c"], None);
        assert!(apply_to(OLD, change, &mut content)
            .unwrap_err()
            .to_string()
            .contains("no file"));
    }

    #[test]
    fn patch_with_an_explanation_and_many_files() {
        let patch = "Why this is done.\n\n--- a/net/a.c\n+++ b/net/a.c\n@@ -1 +1 @@\n-one\n+1\n\
                     --- /dev/null\n+++ b/net/b.c\n@@ -0,0 +1 @@\n+b\n";
        let mut content = Content::new();
        apply_to("one\n", patch, &mut content).unwrap();
        assert_eq!(content["net/a.c"], file("1\n"));
        assert_eq!(content["net/b.c"], file("b\n"));
    }

    #[test]
    fn patch_stays_inside_and_says_something() {
        let patch = "--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n";
        assert!(apply_to(OLD, patch, &mut Content::new()).is_err());
        assert!(apply_to(OLD, "only words\n", &mut Content::new()).is_err());
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

    #[test]
    fn overlay_is_kernel_paths_only() {
        let dir = tempfile::tempdir().unwrap();
        for path in [
            "net/a.rs",
            "net/a.rs~",
            "net/.a.rs.swp",
            "kit/b.rs",
            "kernel/base.toml",
            "README.md",
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let files: Vec<_> = overlay_files(dir.path()).unwrap().into_keys().collect();
        assert_eq!(files, ["net/a.rs"]);
    }
}
