// SPDX-License-Identifier: GPL-2.0-only
//! The folders that a run works with, and the locks on what is in the cache.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use rustix::fs::{flock, FlockOperation};

use crate::host::{proc, progress};

/// Holds the folders of a run; every verb gets it. (It is not the environment of a process.)
pub struct Env {
    /// The checkout of this repository.
    pub repo: PathBuf,
    /// Everything that is built: `--cache DIR`, or `$XDG_CACHE_HOME/vsock-sockmap`.
    pub cache: PathBuf,
    /// The logs of this run, a folder inside the cache.
    pub logs: PathBuf,
    /// `--source DIR`: a kernel tree of the user that replaces the base.
    pub source: Option<PathBuf>,
}

/// The number of runs whose logs are kept.
const KEPT_LOGS: usize = 20;

impl Env {
    /// Finds the folders and creates those that are missing. The arguments are the options
    /// `--cache` and `--source`.
    pub fn new(cache: Option<PathBuf>, source: Option<PathBuf>) -> Result<Self> {
        // cargo sets the variable for `cargo xtask`. Without it a person started the binary, which
        // then takes the checkout that it was built from.
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map(PathBuf::from)
            .filter(|dir| dir.ends_with("kit/xtask"))
            .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
        let repo = fs::canonicalize(manifest.join("../..")).with_context(|| {
            format!(
                "there is no checkout around {}; run `cargo xtask` inside one",
                manifest.display()
            )
        })?;
        let cache = match cache {
            Some(dir) => dir,
            None => default_cache()?,
        };
        fs::create_dir_all(&cache).with_context(|| {
            format!(
                "cannot create the cache folder {}; choose another one with --cache DIR",
                cache.display()
            )
        })?;
        let cache = fs::canonicalize(cache)?;
        if cache.starts_with(&repo) {
            bail!(
                "the cache {} is inside the checkout; choose a folder outside with --cache DIR",
                cache.display()
            );
        }
        let source = match source {
            None => None,
            Some(dir) => Some(fs::canonicalize(&dir).with_context(|| {
                format!(
                    "--source {}: there is no such folder; give the path of a kernel tree",
                    dir.display()
                )
            })?),
        };
        let logs = new_log_dir(&cache)?;
        Ok(Env {
            repo,
            cache,
            logs,
            source,
        })
    }

    /// Takes lock `name` of the cache. If another run holds it, says so and waits. Dropping the
    /// guard releases the lock. A run that takes a lock twice waits for itself forever.
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
                "waiting for process {holder} to release the lock `{name}`"
            ));
            flock(&file, FlockOperation::LockExclusive)
                .with_context(|| format!("cannot lock {}", path.display()))?;
        }
        file.set_len(0)?;
        (&file).write_all(std::process::id().to_string().as_bytes())?;
        Ok(Lock { _file: file })
    }

    /// Makes folder `name` of the cache, unless it exists, and returns its path.
    ///
    /// `make` fills a temporary folder, which is renamed to `name` if `make` succeeds. So a folder
    /// that exists is always complete. Leftovers of interrupted runs are removed first. The caller
    /// holds a lock that covers `name`.
    pub fn make_dir(&self, name: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let done = self.cache.join(name);
        if done.exists() {
            return Ok(done);
        }
        self.sweep(name)?;
        let tmp = self
            .cache
            .join(format!("{name}.tmp-{}", std::process::id()));
        fs::create_dir_all(&tmp).with_context(|| format!("cannot create {}", tmp.display()))?;
        match make(&tmp) {
            Ok(()) => {
                fs::rename(&tmp, &done)
                    .with_context(|| format!("cannot rename {}", tmp.display()))?;
                Ok(done)
            }
            Err(error) => {
                // An error of the clean-up must not hide the first error.
                let _ = self.remove_dir(&tmp);
                Err(error)
            }
        }
    }

    /// Removes the temporary folders that interrupted runs left of `name`.
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

    /// Removes a folder of the cache. If this user is not root, it enters a user namespace to do
    /// so, since the folder can have files that belong to other users of such a namespace.
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

    /// Returns an error if the file system of the cache has less than `gib` GiB free. `what` names
    /// the work that needs them.
    pub fn need_space(&self, gib: u64, what: &str) -> Result<()> {
        let stat = rustix::fs::statvfs(&self.cache)?;
        let free = stat.f_bavail * stat.f_frsize;
        if free < gib << 30 {
            bail!(
                "{what} needs {gib} GiB in {}, which has {:.1} GiB free; make room, or choose \
                 another folder with --cache DIR",
                self.cache.display(),
                free as f64 / (1u64 << 30) as f64
            );
        }
        Ok(())
    }
}

/// Holds a lock of the cache until it is dropped.
pub struct Lock {
    _file: File,
}

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the cache folder for a run without `--cache`.
fn default_cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => match std::env::var_os("HOME").filter(|dir| !dir.is_empty()) {
            Some(home) => Path::new(&home).join(".cache"),
            None => bail!("HOME is not set; choose the cache folder with --cache DIR"),
        },
    };
    Ok(base.join("vsock-sockmap"))
}

/// Makes the log folder of this run, and removes those of the oldest runs.
fn new_log_dir(cache: &Path) -> Result<PathBuf> {
    let parent = cache.join("log");
    fs::create_dir_all(&parent).with_context(|| {
        format!(
            "cannot write to the cache {}; choose another folder with --cache DIR",
            cache.display()
        )
    })?;
    let mut old: Vec<_> = fs::read_dir(&parent)?
        .filter_map(|e| Some(e.ok()?.path()))
        .collect();
    old.sort();
    for dir in old.iter().rev().skip(KEPT_LOGS - 1) {
        if is_log_of_live_run(dir) {
            continue;
        }
        // This can fail because another run removes the same folder.
        let _ = fs::remove_dir_all(dir);
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_secs();
    let dir = parent.join(format!("{now}-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Returns whether the run that a log folder belongs to is still going. The name of the folder ends
/// with its process id. If another process has that id by now, the folder is kept for longer.
fn is_log_of_live_run(dir: &Path) -> bool {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-')
        .is_some_and(|(_, pid)| Path::new("/proc").join(pid).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_live_runs_are_recognised() {
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
