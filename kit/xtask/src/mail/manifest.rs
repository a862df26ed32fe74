// SPDX-License-Identifier: GPL-2.0-only
//! The folder series/: which overlay files and patches make which mail of which series.
//!
//! `series/NAME/` has a file `cover`, and for each patch a message `NN-xyz.msg` and, where the patch
//! changes files that Linux has, `NN-xyz.patch` beside it. series/series.toml names the series in
//! the order in which they apply, and the new files of each patch.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use crate::kernel::changes::{self, MANIFEST};

/// Documentation/process/submitting-patches.rst.
const COLUMNS: usize = 75;

/// Documentation/process/maintainer-netdev.rst.
const MOST_PATCHES: usize = 15;

/// What series/series.toml has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Toml {
    /// Lines at the end of each message.
    #[serde(default)]
    trailers: Vec<String>,
    series: Vec<TomlSeries>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlSeries {
    /// Of its folder.
    name: String,
    /// What stands in the brackets of a subject.
    prefix: String,
    /// New files, by the name of the patch that brings them.
    #[serde(default)]
    overlay: BTreeMap<String, Vec<String>>,
}

/// All series, each made on the one before. All paths are relative to the checkout.
#[derive(Debug)]
pub struct Manifest {
    trailers: Vec<String>,
    pub series: Vec<Series>,
}

/// What is sent as one thread.
#[derive(Debug)]
pub struct Series {
    pub name: String,
    /// What stands in the brackets of a subject.
    pub prefix: String,
    pub patches: Vec<Patch>,
}

/// One patch of a series.
#[derive(Debug)]
pub struct Patch {
    /// For people: `vsock/02-rust-net-sock`.
    pub name: String,
    /// New files.
    overlay: Vec<String>,
    /// The change to files that Linux has.
    patch: Option<String>,
}

impl Patch {
    fn files(&self) -> impl Iterator<Item = &String> {
        self.overlay.iter().chain(&self.patch)
    }

    /// The file with the commit message: its subject, a blank line, the rest.
    fn message(&self) -> String {
        format!("series/{}.msg", self.name)
    }
}

/// Subject and body of a commit message or cover letter.
pub struct Message {
    pub subject: String,
    pub body: String,
}

impl Manifest {
    /// Reads and checks it: each file of the repository belongs to one patch, and the messages are
    /// as a maintainer wants them. The error has all that is wrong.
    pub fn read(repo: &Path) -> Result<Self> {
        let text = fs::read_to_string(repo.join(MANIFEST))
            .with_context(|| format!("cannot read {MANIFEST}"))?;
        let toml: Toml =
            toml::from_str(&text).with_context(|| format!("{MANIFEST} is not right"))?;
        let mut wrong = Vec::new();
        let mut series = Vec::new();
        for named in toml.series {
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

    /// Each overlay file belongs to one patch, and each named one is there.
    fn check_overlay(&self, repo: &Path, wrong: &mut Vec<String>) -> Result<()> {
        let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for patch in self.patches() {
            if patch.files().next().is_none() {
                wrong.push(format!("{} has no files", patch.name));
            }
            for file in &patch.overlay {
                owners.entry(file).or_default().push(&patch.name);
            }
        }
        let there = changes::overlay_files(repo)?;
        for file in there.keys() {
            if !owners.contains_key(file.as_str()) {
                wrong.push(format!("{file} is in no patch"));
            }
        }
        for (file, owners) in &owners {
            if owners.len() > 1 {
                wrong.push(format!("{file} is in {}", owners.join(" and in ")));
            }
            if !there.contains_key(*file) {
                wrong.push(format!("{file} (in {}) is not there", owners[0]));
            }
        }
        Ok(())
    }

    fn check_messages(&self, repo: &Path, wrong: &mut Vec<String>) {
        let covers = self.series.iter().map(Series::cover_file);
        for file in self.patches().map(Patch::message).chain(covers) {
            match fs::read_to_string(repo.join(&file)) {
                Ok(text) => wrong.extend(message_faults(&file, &text)),
                Err(error) => wrong.push(format!("{file}: {error}")),
            }
        }
    }

    /// The patches of all series.
    pub fn patches(&self) -> impl Iterator<Item = &Patch> {
        self.series.iter().flat_map(|series| &series.patches)
    }

    /// The message of a patch, with the trailers.
    pub fn message(&self, repo: &Path, patch: &Patch) -> Result<String> {
        let text = fs::read_to_string(repo.join(patch.message()))?;
        Ok(with_trailers(text.trim_end(), &self.trailers))
    }

    /// Makes `to` a checkout that has only the first patches, `count` of them.
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
    /// Reads the folder of a series.
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
                    "{folder}/{file} is no .msg, no .patch and no cover"
                ));
            }
        }
        for patch in &mut patches {
            if changes.remove(&patch.name) {
                patch.patch = Some(format!("series/{}.patch", patch.name));
            }
        }
        for patch in changes {
            wrong.push(format!("series/{patch}.patch has no message beside it"));
        }
        for patch in overlay.keys() {
            wrong.push(format!("{folder}/{patch}.msg is not there"));
        }
        if patches.len() > MOST_PATCHES {
            wrong.push(format!("{series}: more than {MOST_PATCHES} patches"));
        }
        Ok(Series {
            name: series,
            prefix,
            patches,
        })
    }

    fn cover_file(&self) -> String {
        format!("series/{}/cover", self.name)
    }

    /// The text of the cover letter.
    pub fn cover(&self, repo: &Path) -> Result<Message> {
        split(&fs::read_to_string(repo.join(self.cover_file()))?)
    }
}

/// The names of the files and folders in a folder of the checkout, in order.
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

/// Nothing stands where it would be overlooked.
fn check_folders(repo: &Path, manifest: &Manifest, wrong: &mut Vec<String>) -> Result<()> {
    for name in file_names(repo, "series")? {
        let known = manifest.series.iter().any(|series| series.name == name);
        if !known && format!("series/{name}") != MANIFEST {
            wrong.push(format!("series/{name} is in no series"));
        }
    }
    if repo.join("kernel").is_dir() {
        for name in file_names(repo, "kernel")? {
            if name != "base.toml" && !name.ends_with(".config") {
                wrong.push(format!(
                    "kernel/{name}: the folder is the kit's, and is not laid over Linux's kernel/"
                ));
            }
        }
    }
    Ok(())
}

fn split(text: &str) -> Result<Message> {
    let Some((subject, body)) = text.trim_end().split_once("\n\n") else {
        bail!("a subject, a blank line and a text are wanted");
    };
    Ok(Message {
        subject: subject.to_string(),
        body: body.trim_start_matches('\n').to_string(),
    })
}

fn message_faults(file: &str, text: &str) -> Vec<String> {
    let Ok(message) = split(text) else {
        return vec![format!(
            "{file}: a subject, a blank line and a text are wanted"
        )];
    };
    let mut faults = Vec::new();
    if message.subject.contains('\n') {
        faults.push(format!("{file}: the subject is more than one line"));
    }
    if message.subject.ends_with('.') {
        faults.push(format!("{file}: the subject ends with a dot"));
    }
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let columns = line.chars().count();
        // A URL or a tag with one cannot be broken.
        let breakable = !line.contains("://") && !line.starts_with("Fixes: ");
        if columns > COLUMNS && breakable {
            faults.push(format!(
                "{file}:{number}: {columns} columns, {COLUMNS} are allowed"
            ));
        }
        if line.ends_with([' ', '\t']) {
            faults.push(format!("{file}:{number}: a blank at the end of the line"));
        }
        // git am ends the message there.
        if line == "---" || line.starts_with("diff -") || line.starts_with("Index: ") {
            faults.push(format!("{file}:{number}: git am ends the message here"));
        }
        if line.starts_with("Signed-off-by:") {
            faults.push(format!(
                "{file}:{number}: Signed-off-by is for the person who sends"
            ));
        }
    }
    faults
}

/// Adds trailers to a message, in one block with those that it has.
fn with_trailers(message: &str, trailers: &[String]) -> String {
    let block = message.rsplit("\n\n").next().unwrap_or_default();
    let has = message.contains("\n\n") && block.lines().all(is_trailer);
    let old: BTreeSet<&str> = block.lines().collect();
    let new: Vec<&str> = trailers
        .iter()
        .map(String::as_str)
        .filter(|line| !(has && old.contains(line)))
        .collect();
    if new.is_empty() {
        return format!("{message}\n");
    }
    let between = if has { "\n" } else { "\n\n" };
    format!("{message}{between}{}\n", new.join("\n"))
}

/// `Some-tag: value`
fn is_trailer(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(tag, _)| {
        tag.starts_with(|c: char| c.is_ascii_uppercase())
            && tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    })
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
            ("series/a/notes", "series/a/notes is no .msg"),
            ("series/b/1-x.msg", "series/b is in no series"),
            ("kernel/fork.c", "kernel/fork.c: the folder is the kit's"),
        ] {
            let dir = checkout(TOML);
            write(&dir, file, "x: three\n\nWhy.\n");
            assert!(error(&dir).contains(fault), "{}", error(&dir));
        }
    }

    #[test]
    fn file_in_two_patches() {
        let dir = checkout(&format!("{TOML}2-y = [\"net/a.rs\"]\n"));
        assert!(error(&dir).contains("net/a.rs is in a/1-x and in a/2-y"));
    }

    #[test]
    fn file_that_is_not_there() {
        for (file, fault) in [
            ("net/a.rs", "net/a.rs (in a/1-x) is not there"),
            ("series/a/1-x.msg", "series/a/1-x.msg is not there"),
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

    #[test]
    fn messages_are_as_a_maintainer_wants_them() {
        let long = "x".repeat(COLUMNS + 1);
        for (text, fault) in [
            (format!("{long}\n\nWhy.\n"), ":1: 76 columns"),
            (format!("x: y\n\n{long}\n"), ":3: 76 columns"),
            ("x: y\nWhy.\n".to_string(), "a blank line"),
            ("x: y\n".to_string(), "a blank line"),
            ("x: y\nz\n\nWhy.\n".to_string(), "more than one line"),
            ("x: y.\n\nWhy.\n".to_string(), "with a dot"),
            ("x: y\n\nWhy. \n".to_string(), ":3: a blank at the end"),
            ("x: y\n\nWhy.\n---\nz\n".to_string(), ":4: git am"),
            (
                "x: y\n\nWhy.\n\nSigned-off-by: A <a@b>\n".to_string(),
                ":5: Signed-off-by",
            ),
        ] {
            let faults = message_faults("m", &text).join("\n");
            assert!(faults.contains(fault), "{text:?}: {faults:?}");
        }
        let fine = format!("{}\n\nLink: https://{long}\n", &long[1..]);
        assert!(message_faults("m", &fine).is_empty());
    }

    #[test]
    fn trailers_are_one_block() {
        let new = ["Assisted-by: LLM".to_string()];
        assert_eq!(
            with_trailers("a: b\n\nWhy.\n\nFixes: 1234 (\"x\")", &new),
            "a: b\n\nWhy.\n\nFixes: 1234 (\"x\")\nAssisted-by: LLM\n"
        );
        assert_eq!(
            with_trailers("a: b\n\nWhy.\n\nAssisted-by: LLM", &new),
            "a: b\n\nWhy.\n\nAssisted-by: LLM\n"
        );
        assert_eq!(with_trailers("a: b\n\nWhy.", &[]), "a: b\n\nWhy.\n");
    }
}
