// SPDX-License-Identifier: GPL-2.0-only
//! Reads the folder series/, which assigns overlay files and patches to mails.
//!
//! `series/NAME/` has a file `cover`, and for each patch a message `NN-xyz.msg`. If the patch
//! changes files that Linux has, `NN-xyz.patch` is beside the message. series/series.toml lists the
//! series in the order in which they apply, and the new files of each patch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{ensure, Context, Result};
use serde::Deserialize;

use crate::kernel::changes::{self, MANIFEST};
use crate::mail::message::{self, Message};

/// The most patches of a series, by Documentation/process/maintainer-netdev.rst.
const MOST_PATCHES: usize = 15;

/// The content of series/series.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Toml {
    /// Lines to add at the end of each message.
    #[serde(default)]
    trailers: Vec<String>,
    series: Vec<TomlSeries>,
}

/// A series in series/series.toml.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlSeries {
    /// The name of its folder.
    name: String,
    /// The text in the brackets of each subject.
    prefix: String,
    /// The new files, by the name of the patch that adds them. A folder stands for all files below
    /// it, and ends with a slash.
    #[serde(default)]
    overlay: BTreeMap<String, Vec<String>>,
}

/// All series. Each applies on top of the one before. All paths are relative to the checkout.
#[derive(Debug)]
pub struct Manifest {
    trailers: Vec<String>,
    pub series: Vec<Series>,
}

/// A series: the patches that are sent as one thread.
#[derive(Debug)]
pub struct Series {
    pub name: String,
    /// The text in the brackets of each subject.
    pub prefix: String,
    pub patches: Vec<Patch>,
}

/// One patch of a series.
#[derive(Debug)]
pub struct Patch {
    /// The series and the file name without ending, such as `vsock/02-rust-net-sock`.
    pub name: String,
    /// The new files.
    overlay: Vec<String>,
    /// The file with the changes to files that Linux has.
    patch: Option<String>,
}

impl Patch {
    /// Returns the files of the repository that make up the patch.
    fn files(&self) -> impl Iterator<Item = &String> {
        self.overlay.iter().chain(&self.patch)
    }

    /// Returns the file with the commit message: a subject, a blank line, and a text.
    fn message(&self) -> String {
        format!("series/{}.msg", self.name)
    }
}

impl Manifest {
    /// Reads and checks the folder. Each new file must belong to one patch, and the messages must
    /// be as maintainers want them. The error lists all faults.
    pub fn read(repo: &Path) -> Result<Self> {
        let text = fs::read_to_string(repo.join(MANIFEST))
            .with_context(|| format!("cannot read {MANIFEST}"))?;
        let toml: Toml = toml::from_str(&text).with_context(|| format!("correct {MANIFEST}"))?;
        let mut wrong = Vec::new();
        let mut series = Vec::new();
        let overlay = changes::overlay_files(repo)?;
        for mut named in toml.series {
            for files in named.overlay.values_mut() {
                *files = expand(files, overlay.keys());
            }
            series.push(Series::read(repo, named, &mut wrong)?);
        }
        let manifest = Manifest {
            trailers: toml.trailers,
            series,
        };
        manifest.check_overlay(repo, &mut wrong)?;
        manifest.check_messages(repo, &mut wrong);
        check_folders(repo, &manifest, &mut wrong)?;
        ensure!(wrong.is_empty(), "{MANIFEST}: {}", wrong.join("\n"));
        Ok(manifest)
    }

    /// Checks that each overlay file belongs to one patch, and that each listed file exists.
    fn check_overlay(&self, repo: &Path, wrong: &mut Vec<String>) -> Result<()> {
        let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for patch in self.patches() {
            if patch.files().next().is_none() {
                wrong.push(format!(
                    "{} has no files; remove its message, or add its files",
                    patch.name
                ));
            }
            for file in &patch.overlay {
                owners.entry(file).or_default().push(&patch.name);
            }
        }
        let there = changes::overlay_files(repo)?;
        for file in there.keys() {
            if !owners.contains_key(file.as_str()) {
                wrong.push(format!("{file} is in no patch; add it to one"));
            }
        }
        for (file, owners) in &owners {
            if owners.len() > 1 {
                wrong.push(format!(
                    "{file} is in more than one patch; keep one of {}",
                    owners.join(", ")
                ));
            }
            if !there.contains_key(*file) {
                wrong.push(format!(
                    "{file} (in {}) does not exist; remove it or write it",
                    owners[0]
                ));
            }
        }
        Ok(())
    }

    /// Checks the messages of all patches, and the cover letters.
    fn check_messages(&self, repo: &Path, wrong: &mut Vec<String>) {
        let covers = self.series.iter().map(Series::cover_file);
        for file in self.patches().map(Patch::message).chain(covers) {
            match fs::read_to_string(repo.join(&file)) {
                Ok(text) => wrong.extend(message::faults(&file, &text)),
                Err(error) => wrong.push(format!("{file}: {error}")),
            }
        }
    }

    /// Returns the patches of all series in order.
    pub fn patches(&self) -> impl Iterator<Item = &Patch> {
        self.series.iter().flat_map(|series| &series.patches)
    }

    /// Returns the message of a patch with all trailers.
    pub fn message(&self, repo: &Path, patch: &Patch) -> Result<String> {
        let text = fs::read_to_string(repo.join(patch.message()))?;
        Ok(message::with_trailers(text.trim_end(), &self.trailers))
    }

    /// Makes folder `to` a checkout that has only the first `count` patches.
    pub fn checkout(&self, repo: &Path, count: usize, to: &Path) -> Result<()> {
        let files = self.patches().take(count).flat_map(Patch::files);
        for file in files.map(String::as_str).chain([MANIFEST]) {
            let copy = to.join(file);
            fs::create_dir_all(copy.parent().context("a file has a folder")?)?;
            fs::copy(repo.join(file), copy).with_context(|| format!("cannot copy {file}"))?;
        }
        Ok(())
    }
}

impl Series {
    /// Reads the folder of a series. Adds the faults to `wrong`.
    fn read(repo: &Path, named: TomlSeries, wrong: &mut Vec<String>) -> Result<Self> {
        let TomlSeries {
            name: series,
            prefix,
            mut overlay,
        } = named;
        let folder = format!("series/{series}");
        let mut patches = Vec::new();
        let mut changes = BTreeSet::new();
        for file in file_names(repo, &folder)? {
            if let Some(patch) = file.strip_suffix(".msg") {
                patches.push(Patch {
                    name: format!("{series}/{patch}"),
                    overlay: overlay.remove(patch).unwrap_or_default(),
                    patch: None,
                });
            } else if let Some(patch) = file.strip_suffix(".patch") {
                changes.insert(format!("{series}/{patch}"));
            } else if file != "cover" {
                wrong.push(format!(
                    "{folder}/{file} is neither cover nor a .msg nor a .patch; move it elsewhere"
                ));
            }
        }
        for patch in &mut patches {
            if changes.remove(&patch.name) {
                patch.patch = Some(format!("series/{}.patch", patch.name));
            }
        }
        for patch in changes {
            wrong.push(format!(
                "series/{patch}.patch has no message; write series/{patch}.msg"
            ));
        }
        for patch in overlay.keys() {
            wrong.push(format!("{folder}/{patch}.msg does not exist; write it"));
        }
        if patches.len() > MOST_PATCHES {
            wrong.push(format!(
                "{series} has more than {MOST_PATCHES} patches; split the series"
            ));
        }
        Ok(Series {
            name: series,
            prefix,
            patches,
        })
    }

    /// Returns the file with the cover letter.
    fn cover_file(&self) -> String {
        format!("series/{}/cover", self.name)
    }

    /// Reads the cover letter.
    pub fn cover(&self, repo: &Path) -> Result<Message> {
        message::split(&fs::read_to_string(repo.join(self.cover_file()))?)
    }
}

/// Returns the files that a list of files and folders stands for. A folder without files stays.
fn expand<'a>(list: &[String], overlay: impl Iterator<Item = &'a String> + Clone) -> Vec<String> {
    let mut files = Vec::new();
    for name in list {
        let below = |file: &&String| name.ends_with('/') && file.starts_with(name.as_str());
        let before = files.len();
        files.extend(overlay.clone().filter(below).cloned());
        if files.len() == before {
            files.push(name.clone());
        }
    }
    files
}

/// Returns the sorted names of the files and folders in a folder of the checkout.
fn file_names(repo: &Path, folder: &str) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(repo.join(folder)).with_context(|| format!("cannot read {folder}/"))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Checks that series/ and kernel/ have no files that the kit ignores.
fn check_folders(repo: &Path, manifest: &Manifest, wrong: &mut Vec<String>) -> Result<()> {
    for name in file_names(repo, "series")? {
        let known = manifest.series.iter().any(|series| series.name == name);
        if !known && format!("series/{name}") != MANIFEST {
            wrong.push(format!(
                "series/{name} is in no series; add it to {MANIFEST} or remove it"
            ));
        }
    }
    if repo.join("kernel").is_dir() {
        for name in file_names(repo, "kernel")? {
            if name != "base.toml" && !name.ends_with(".config") {
                wrong.push(format!(
                    "kernel/{name}: move the file; this folder is not laid over Linux's kernel/"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = "trailers = [\"Assisted-by: LLM\"]\n\
        [[series]]\nname = \"a\"\nprefix = \"PATCH\"\n\
        [series.overlay]\n1-x = [\"net/a.rs\"]\n";

    fn checkout(toml: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            (MANIFEST, toml),
            ("series/a/cover", "x: all\n\nWhy.\n"),
            ("series/a/1-x.msg", "x: one\n\nWhy one.\n"),
            ("series/a/1-x.patch", ""),
            ("series/a/2-y.msg", "x: two\n\nWhy two.\n"),
            ("series/a/2-y.patch", ""),
            ("net/a.rs", ""),
        ] {
            write(&dir, file, text);
        }
        dir
    }

    fn write(dir: &tempfile::TempDir, file: &str, text: &str) {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn error(dir: &tempfile::TempDir) -> String {
        format!("{:#}", Manifest::read(dir.path()).unwrap_err())
    }

    #[test]
    fn complete_manifest() {
        let dir = checkout(TOML);
        let manifest = Manifest::read(dir.path()).unwrap();
        let patches: Vec<_> = manifest.patches().collect();
        assert_eq!(patches.len(), 2);
        assert_eq!(patches[1].name, "a/2-y");
        let message = manifest.message(dir.path(), patches[0]).unwrap();
        assert_eq!(message, "x: one\n\nWhy one.\n\nAssisted-by: LLM\n");
        assert_eq!(manifest.series[0].cover(dir.path()).unwrap().body, "Why.");
    }

    #[test]
    fn checkout_has_the_first_patches() {
        let dir = checkout(TOML);
        let manifest = Manifest::read(dir.path()).unwrap();
        let to = tempfile::tempdir().unwrap();
        let patches = || changes::patches(to.path()).unwrap().len();
        manifest.checkout(dir.path(), 1, to.path()).unwrap();
        assert!(to.path().join("net/a.rs").exists());
        assert_eq!(patches(), 1);
        manifest.checkout(dir.path(), 2, to.path()).unwrap();
        assert_eq!(patches(), 2);
    }

    #[test]
    fn file_that_belongs_nowhere() {
        for (file, fault) in [
            ("rust/kernel/b.rs", "rust/kernel/b.rs is in no patch"),
            ("series/a/3-z.patch", "series/a/3-z.patch has no message"),
            ("series/a/notes", "series/a/notes is neither cover"),
            ("series/b/1-x.msg", "series/b is in no series"),
            ("kernel/fork.c", "kernel/fork.c: move the file"),
        ] {
            let dir = checkout(TOML);
            write(&dir, file, "x: three\n\nWhy.\n");
            assert!(error(&dir).contains(fault), "{}", error(&dir));
        }
    }

    #[test]
    fn folder_stands_for_its_files() {
        let dir = checkout(&TOML.replace("net/a.rs", "net/"));
        write(&dir, "net/b/c.rs", "");
        let manifest = Manifest::read(dir.path()).unwrap();
        assert_eq!(
            manifest.series[0].patches[0].overlay,
            ["net/a.rs", "net/b/c.rs"]
        );
        let dir = checkout(&TOML.replace("net/a.rs", "net/a.rs\", \"net/b/"));
        assert!(error(&dir).contains("net/b/ (in a/1-x)"));
    }

    #[test]
    fn file_in_two_patches() {
        let dir = checkout(&format!("{TOML}2-y = [\"net/a.rs\"]\n"));
        assert!(
            error(&dir).contains("net/a.rs is in more than one patch; keep one of a/1-x, a/2-y")
        );
    }

    #[test]
    fn file_that_is_not_there() {
        for (file, fault) in [
            ("net/a.rs", "net/a.rs (in a/1-x) does not exist"),
            ("series/a/1-x.msg", "series/a/1-x.msg does not exist"),
            ("series/a/cover", "series/a/cover"),
            ("series/a/2-y.patch", "a/2-y has no files"),
        ] {
            let dir = checkout(TOML);
            fs::remove_file(dir.path().join(file)).unwrap();
            assert!(error(&dir).contains(fault), "{}", error(&dir));
        }
    }

    #[test]
    fn unknown_key() {
        assert!(error(&checkout(&TOML.replace("prefix", "prefixes"))).contains("prefixes"));
    }
}
