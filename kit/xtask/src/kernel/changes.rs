// SPDX-License-Identifier: GPL-2.0-only
//! Reads what the repository changes in Linux: new files (the overlay) and patches.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use serde::Deserialize;
use walkdir::WalkDir;

use crate::kernel::patch::{self, Content, File};

/// The top-level folders of Linux in which the repository has overlay files. `kernel` is missing,
/// since that folder of the checkout has base.toml and the configuration fragments.
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

/// Returns the overlay files: their paths in the kernel, and the files in the checkout.
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
                let path = path
                    .to_str()
                    .context("rename this file: its path is not UTF-8")?
                    .to_string();
                files.insert(path, entry.path().to_path_buf());
            }
        }
    }
    Ok(files)
}

/// Returns whether a file is one that editors and `patch` leave behind.
fn is_leftover(name: &str) -> bool {
    let hidden = name.starts_with('.') && name != ".gitignore" && name != ".kunitconfig";
    hidden || name.ends_with('~') || name.ends_with(".orig") || name.ends_with(".rej")
}

/// The file that lists the series in the order in which they apply.
pub const MANIFEST: &str = "series/series.toml";

/// The part of [`MANIFEST`] that this module needs.
#[derive(Deserialize)]
struct Order {
    series: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Returns the patches of all series, in the order in which they apply.
pub fn patches(repo: &Path) -> Result<Vec<PathBuf>> {
    let order = fs::read_to_string(repo.join(MANIFEST))
        .with_context(|| format!("cannot read {MANIFEST}"))?;
    let order: Order = toml::from_str(&order).with_context(|| format!("correct {MANIFEST}"))?;
    let mut patches = Vec::new();
    for Named { name } in order.series {
        let folder = repo.join("series").join(name);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // A checkout that `Manifest::checkout` made can lack the last series.
            Err(error) if error.kind() == ErrorKind::NotFound && !repo.join("kit").exists() => {
                continue
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", folder.display()))
            }
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

/// Returns the files that overlay and patches add to the pristine source or change in it.
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
        patch::apply(&name, &text, &mut content, |file| {
            File::read(&pristine.join(file))
        })?;
    }
    for (path, file) in overlay_files(repo)? {
        if pristine.join(&path).exists() || content.contains_key(&path) {
            bail!("{path}: Linux has this file already; put the change into a patch in series/");
        }
        content.insert(path, File::read(&file)?);
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

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
