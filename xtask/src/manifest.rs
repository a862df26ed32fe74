// SPDX-License-Identifier: GPL-2.0-only
//! series/series.toml: which overlay files and patches make which patch of which series.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{bail, ensure, Context, Result};
use serde::Deserialize;

use crate::tree;

/// Documentation/process/submitting-patches.rst.
const COLUMNS: usize = 75;

/// Documentation/process/maintainer-netdev.rst.
const MOST_PATCHES: usize = 15;

/// All series, each made on the one before; all paths are relative to the checkout.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Lines at the end of each message.
    #[serde(default)]
    pub trailers: Vec<String>,
    pub series: Vec<Series>,
}

/// What is sent as one thread.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Of its folder.
    pub name: String,
    /// Text of the cover letter: its subject, a blank line, the rest.
    pub cover: String,
    /// What stands in the brackets of a subject.
    pub prefix: String,
    #[serde(rename = "patch")]
    pub patches: Vec<Patch>,
}

/// One patch of the series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// The commit message: its subject, a blank line, the rest.
    pub message: String,
    /// New files.
    #[serde(default)]
    pub overlay: Vec<String>,
    /// Files of patches/ with the changes to files that Linux has.
    #[serde(default)]
    pub patches: Vec<String>,
}

impl Patch {
    /// For people: `02-rust-net-sock`.
    pub fn name(&self) -> &str {
        let file = self.message.rsplit('/').next().unwrap_or_default();
        file.strip_suffix(".msg").unwrap_or(file)
    }

    fn files(&self) -> impl Iterator<Item = &String> {
        self.overlay.iter().chain(&self.patches)
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
        const FILE: &str = "series/series.toml";
        let text =
            fs::read_to_string(repo.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
        let manifest: Manifest =
            toml::from_str(&text).with_context(|| format!("{FILE} is not right"))?;
        let wrong = manifest.wrong(repo)?;
        ensure!(wrong.is_empty(), "{FILE}: {}", wrong.join("\n"));
        Ok(manifest)
    }

    fn wrong(&self, repo: &Path) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for series in &self.series {
            if series.patches.len() > MOST_PATCHES {
                wrong.push(format!("{}: more than {MOST_PATCHES} patches", series.name));
            }
        }

        let mut owners: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for patch in self.patches() {
            if patch.files().next().is_none() {
                wrong.push(format!("{} has no files", patch.name()));
            }
            for file in patch.files().chain([&patch.message]) {
                owners.entry(file).or_default().push(patch.name());
            }
        }
        for (file, owners) in &owners {
            if owners.len() > 1 {
                wrong.push(format!("{file} is in {}", owners.join(" and in ")));
            }
        }

        let there = files(repo)?;
        for file in there
            .keys()
            .filter(|file| !owners.contains_key(file.as_str()))
        {
            wrong.push(format!("{file} is in no patch"));
        }
        for (file, owners) in &owners {
            if !there.contains_key(*file) {
                wrong.push(format!("{file} (in {}) is not there", owners[0]));
            }
        }
        for patch in self.patches() {
            let kinds = [
                (&patch.overlay, Kind::Overlay),
                (&patch.patches, Kind::Patch),
            ];
            for (named, kind) in kinds {
                for file in named {
                    if there.get(file).is_some_and(|is| *is != kind) {
                        wrong.push(format!("{file} is named as what it is not"));
                    }
                }
            }
        }
        // `apply` takes them by name.
        let order: Vec<_> = self.patches().flat_map(|p| &p.patches).collect();
        if let Some(pair) = order.windows(2).find(|pair| pair[0] >= pair[1]) {
            wrong.push(format!("{} comes before {}", pair[0], pair[1]));
        }

        for file in self.patches().map(|patch| &patch.message) {
            if there.contains_key(file) {
                wrong.extend(message_faults(file, &fs::read_to_string(repo.join(file))?));
            }
        }
        for cover in self.series.iter().map(|series| &series.cover) {
            match fs::read_to_string(repo.join(cover)) {
                Ok(text) => wrong.extend(message_faults(cover, &text)),
                Err(error) => wrong.push(format!("{cover}: {error}")),
            }
        }
        Ok(wrong)
    }

    /// The patches of all series.
    pub fn patches(&self) -> impl Iterator<Item = &Patch> {
        self.series.iter().flat_map(|series| &series.patches)
    }

    /// The message of a patch, with the trailers.
    pub fn message(&self, repo: &Path, patch: &Patch) -> Result<String> {
        let text = fs::read_to_string(repo.join(&patch.message))?;
        Ok(with_trailers(text.trim_end(), &self.trailers))
    }

    /// Makes `to` a checkout that has only the first patches, `count` of them.
    pub fn checkout(&self, repo: &Path, count: usize, to: &Path) -> Result<()> {
        let files = self.patches().take(count).flat_map(Patch::files);
        for file in files {
            let copy = to.join(file);
            fs::create_dir_all(copy.parent().context("a file has a folder")?)?;
            fs::copy(repo.join(file), copy).with_context(|| format!("cannot copy {file}"))?;
        }
        Ok(())
    }
}

impl Series {
    pub fn cover(&self, repo: &Path) -> Result<Message> {
        split(&fs::read_to_string(repo.join(&self.cover))?)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Overlay,
    Patch,
    Message,
}

/// What the manifest has to name.
fn files(repo: &Path) -> Result<BTreeMap<String, Kind>> {
    let mut files = BTreeMap::new();
    for file in tree::overlay_files(repo)?.into_keys() {
        files.insert(file, Kind::Overlay);
    }
    for path in tree::patches(repo)? {
        let path = path.strip_prefix(repo)?;
        files.insert(path.display().to_string(), Kind::Patch);
    }
    for entry in fs::read_dir(repo.join("series"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".msg") {
            files.insert(format!("series/{name}"), Kind::Message);
        }
    }
    Ok(files)
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
        [[series]]\nname = \"a\"\ncover = \"series/cover.txt\"\nprefix = \"PATCH\"\n\
        [[series.patch]]\nmessage = \"series/1.msg\"\noverlay = [\"net/a.rs\"]\n\
        patches = [\"patches/1.patch\"]\n\
        [[series.patch]]\nmessage = \"series/2.msg\"\npatches = [\"patches/2.patch\"]\n";

    fn checkout(toml: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("series/series.toml", toml),
            ("series/cover.txt", "x: all\n\nWhy.\n"),
            ("series/1.msg", "x: one\n\nWhy one.\n"),
            ("series/2.msg", "x: two\n\nWhy two.\n"),
            ("net/a.rs", ""),
            ("patches/1.patch", ""),
            ("patches/2.patch", ""),
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
        assert_eq!(patches[1].name(), "2");
        let message = manifest.message(dir.path(), patches[0]).unwrap();
        assert_eq!(message, "x: one\n\nWhy one.\n\nAssisted-by: LLM\n");
        assert_eq!(manifest.series[0].cover(dir.path()).unwrap().body, "Why.");
    }

    #[test]
    fn checkout_has_the_first_patches() {
        let dir = checkout(TOML);
        let manifest = Manifest::read(dir.path()).unwrap();
        let to = tempfile::tempdir().unwrap();
        manifest.checkout(dir.path(), 1, to.path()).unwrap();
        assert!(to.path().join("net/a.rs").exists());
        assert!(to.path().join("patches/1.patch").exists());
        assert!(!to.path().join("patches/2.patch").exists());
        manifest.checkout(dir.path(), 2, to.path()).unwrap();
        assert!(to.path().join("patches/2.patch").exists());
    }

    #[test]
    fn file_in_no_patch() {
        let dir = checkout(TOML);
        write(&dir, "rust/kernel/b.rs", "");
        write(&dir, "patches/3.patch", "");
        write(&dir, "series/3.msg", "x: three\n\nWhy.\n");
        let error = error(&dir);
        for file in ["rust/kernel/b.rs", "patches/3.patch", "series/3.msg"] {
            assert!(error.contains(&format!("{file} is in no patch")), "{error}");
        }
    }

    #[test]
    fn file_in_two_patches() {
        let dir = checkout(&format!("{TOML}overlay = [\"net/a.rs\"]\n"));
        assert!(error(&dir).contains("net/a.rs is in 1 and in 2"));
        let dir = checkout(&TOML.replace("\"net/a.rs\"", "\"net/a.rs\", \"net/a.rs\""));
        assert!(error(&dir).contains("net/a.rs is in 1 and in 1"));
    }

    #[test]
    fn file_that_is_not_there() {
        for file in ["net/a.rs", "patches/2.patch", "series/2.msg"] {
            let dir = checkout(TOML);
            fs::remove_file(dir.path().join(file)).unwrap();
            let error = error(&dir);
            assert!(error.contains(file), "{error}");
            assert!(error.contains("is not there"), "{error}");
        }
        let dir = checkout(TOML);
        fs::remove_file(dir.path().join("series/cover.txt")).unwrap();
        assert!(error(&dir).contains("series/cover.txt"));
    }

    #[test]
    fn file_of_the_other_kind() {
        let dir = checkout(&TOML.replace(
            "overlay = [\"net/a.rs\"]\npatches = [\"patches/1.patch\"]",
            "overlay = [\"net/a.rs\", \"patches/1.patch\"]",
        ));
        assert!(error(&dir).contains("patches/1.patch is named as what it is not"));
    }

    #[test]
    fn order_is_that_of_apply() {
        let swapped = TOML
            .replace("patches/1", "patches/x")
            .replace("patches/2", "patches/1")
            .replace("patches/x", "patches/2");
        assert!(error(&checkout(&swapped)).contains("patches/2.patch comes before patches/1.patch"));
    }

    #[test]
    fn unknown_key_and_empty_patch() {
        assert!(error(&checkout(&format!("{TOML}overlays = []\n"))).contains("overlays"));
        let dir = checkout(&format!(
            "{TOML}[[series.patch]]\nmessage = \"series/3.msg\"\n"
        ));
        write(&dir, "series/3.msg", "x: three\n\nWhy.\n");
        assert!(error(&dir).contains("3 has no files"));
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
