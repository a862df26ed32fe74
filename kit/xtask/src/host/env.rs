// SPDX-License-Identifier: GPL-2.0-only
//! Where things are: the checkout, the cache folder, its locks, and half-made folders.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use rustix::fs::{flock, FlockOperation};

use crate::host::{proc, progress};

/// The folders that every verb works with.
pub struct Env {
    /// The checkout.
    pub repo: PathBuf,
    /// `$XDG_CACHE_HOME/vsock-sockmap` or `--cache DIR`: everything that is built.
    pub cache: PathBuf,
    /// Logs of this run, inside the cache.
    pub logs: PathBuf,
    /// `--source DIR`: a kernel tree of the user's in place of the base.
    pub source: Option<PathBuf>,
}

/// How many runs keep their logs.
const KEPT_LOGS: usize = 20;

impl Env {
    pub fn new(cache: Option<PathBuf>, source: Option<PathBuf>) -> Result<Self> {
        // cargo sets the variable for `cargo xtask`; the second is for a binary run by hand.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map(PathBuf::from)
            .filter(|dir| dir.ends_with("kit/xtask"))
            .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        let repo = fs::canonicalize(manifest.join("../.."))
            .with_context(|| format!("cannot find the checkout at {}", manifest.display()))?;
        let cache = match cache {
            Some(dir) => dir,
            None => default_cache()?,
        };
        fs::create_dir_all(&cache)
            .with_context(|| format!("cannot make the cache folder {}", cache.display()))?;
        let cache = fs::canonicalize(cache)?;
        if cache.starts_with(&repo) {
            bail!(
                "the cache {} is inside the checkout; give another one with --cache",
                cache.display()
            );
        }
        let source = match source {
            None => None,
            Some(dir) => Some(
                fs::canonicalize(&dir)
                    .with_context(|| format!("--source {}: no such folder", dir.display()))?,
            ),
        };
        let logs = new_log_dir(&cache)?;
        Ok(Env {
            repo,
            cache,
            logs,
            source,
        })
    }

    /// Takes the named lock of the cache, and says so when another run has it. It is free again
    /// when the guard is dropped. A run must not take a lock that it already has.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let dir = self.cache.join("lock");
        fs::create_dir_all(&dir)?;
        let path = dir.join(name);
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let holder = fs::read_to_string(&path).unwrap_or_default();
            let holder = if holder.is_empty() {
                "?"
            } else {
                holder.trim()
            };
            progress::say(&format!(
                "waiting for process {holder} to finish with `{name}`"
            ));
            flock(&file, FlockOperation::LockExclusive)
                .with_context(|| format!("cannot lock {}", path.display()))?;
        }
        file.set_len(0)?;
        (&file).write_all(std::process::id().to_string().as_bytes())?;
        Ok(Lock { _file: file })
    }

    /// Makes folder `name` in the cache by `make`, which is given a temporary folder that becomes
    /// `name` when it returns well. What an interrupted run left of `name` is removed first; the
    /// caller holds a lock that covers `name`.
    pub fn make_dir(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let done = self.cache.join(name);
        if done.exists() {
            return Ok(done);
        }
        self.sweep(name)?;
        let tmp = self
            .cache
            .join(format!("{name}.tmp-{}", std::process::id()));
        fs::create_dir_all(&tmp).with_context(|| format!("cannot make {}", tmp.display()))?;
        match make(&tmp) {
            Ok(()) => {
                fs::rename(&tmp, &done)
                    .with_context(|| format!("cannot rename {}", tmp.display()))?;
                Ok(done)
            }
            Err(error) => {
                // The first error is the one to tell.
                let _ = self.remove_dir(&tmp);
                Err(error)
            }
        }
    }

    /// Removes half-made folders of `name`.
    fn sweep(&self, name: &str) -> Result<()> {
        let prefix = format!("{name}.tmp-");
        for entry in fs::read_dir(&self.cache)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                self.remove_dir(&entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes a folder of the cache, also one with files of other users of a user namespace.
    pub fn remove_dir(&self, dir: &Path) -> Result<()> {
        assert!(dir.starts_with(&self.cache) && dir != self.cache);
        if is_root() {
            return fs::remove_dir_all(dir)
                .with_context(|| format!("cannot remove {}", dir.display()));
        }
        let mut rm = Command::new("unshare");
        rm.args(["--user", "--map-auto", "--map-root-user", "rm", "-rf"])
            .arg(dir);
        proc::output(rm).with_context(|| format!("cannot remove {}", dir.display()))?;
        Ok(())
    }

    /// Fails when the cache's file system has less than `gib` free.
    pub fn need_space(&self, gib: u64, what: &str) -> Result<()> {
        let stat = rustix::fs::statvfs(&self.cache)?;
        let free = stat.f_bavail * stat.f_frsize;
        if free < gib << 30 {
            bail!(
                "{what} needs {gib} GiB in {}, which has {:.1} GiB free; make room or use --cache DIR",
                self.cache.display(),
                free as f64 / (1u64 << 30) as f64
            );
        }
        Ok(())
    }
}

/// A lock of the cache, held until dropped.
pub struct Lock {
    _file: File,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn default_cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => match std::env::var_os("HOME").filter(|dir| !dir.is_empty()) {
            Some(home) => Path::new(&home).join(".cache"),
            None => bail!("HOME is not set: say where the cache is with --cache DIR"),
        },
    };
    Ok(base.join("vsock-sockmap"))
}

fn new_log_dir(cache: &Path) -> Result<PathBuf> {
    let parent = cache.join("log");
    fs::create_dir_all(&parent)
        .with_context(|| format!("cannot write to the cache {}", cache.display()))?;
    let mut old: Vec<_> = fs::read_dir(&parent)?
        .filter_map(|e| Some(e.ok()?.path()))
        .collect();
    old.sort();
    for dir in old.iter().rev().skip(KEPT_LOGS - 1) {
        if is_log_of_live_run(dir) {
            continue;
        }
        // Another run may be removing the same one.
        let _ = fs::remove_dir_all(dir);
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_secs();
    let dir = parent.join(format!("{now}-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Its name ends with a process id. If another process has that now, the folder stays for longer.
fn is_log_of_live_run(dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-')
        .is_some_and(|(_, pid)| Path::new("/proc").join(pid).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_live_runs_are_told() {
        let own = format!("cache/log/1700000000-{}", std::process::id());
        assert!(is_log_of_live_run(Path::new(&own)));
        // No process has such a number.
        assert!(!is_log_of_live_run(Path::new(
            "cache/log/1700000000-4294967295"
        )));
        assert!(!is_log_of_live_run(Path::new("cache/log/other")));
    }

    fn test_env(dir: &Path) -> Env {
        Env {
            repo: dir.join("repo"),
            cache: dir.to_path_buf(),
            logs: dir.to_path_buf(),
            source: None,
        }
    }

    #[test]
    fn failed_make_dir_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let env = test_env(dir.path());
        fs::create_dir(dir.path().join("x.tmp-1")).unwrap();
        assert!(env.make_dir("x", |_| bail!("no")).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        env.make_dir("x", |tmp| Ok(fs::write(tmp.join("f"), "1")?))
            .unwrap();
        env.make_dir("x", |_| panic!("made twice")).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("x/f")).unwrap(), "1");
    }

    #[test]
    fn space_that_no_disk_has() {
        let dir = tempfile::tempdir().unwrap();
        let error = test_env(dir.path())
            .need_space(1 << 33, "all of it")
            .unwrap_err();
        assert!(error.to_string().contains("make room"));
    }
}
