// SPDX-License-Identifier: GPL-2.0-only
//! Applies patches to the content of files.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{anyhow, bail, Context, Result};
use diffy::patch_set::{FileOperation, ParseOptions, PatchSet};

/// The content of a file, and its mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub data: Vec<u8>,
    pub executable: bool,
}

/// Files by their path in the kernel. `None` is a file that a patch removes.
pub type Content = BTreeMap<String, Option<File>>;

impl File {
    /// Reads a file. Returns `None` if there is no such file.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        match fs::read(path) {
            Ok(data) => {
                let executable = fs::metadata(path)?.mode() & 0o111 != 0;
                Ok(Some(File { data, executable }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(anyhow!(error).context(format!("cannot read {}", path.display()))),
        }
    }
}

/// Applies the unified diff `text` to `content`. `name` is the name of the patch for errors.
///
/// `pristine` returns a file of the pristine source, for files that `content` does not have. A hunk
/// may apply at other line numbers than it says, but its context must match exactly (no fuzz).
pub fn apply(
    name: &str,
    text: &str,
    content: &mut Content,
    pristine: impl Fn(&str) -> Result<Option<File>>,
) -> Result<()> {
    let mut files = 0;
    for file_patch in PatchSet::parse(text, ParseOptions::unidiff()) {
        let file_patch = file_patch.map_err(|error| anyhow!("{name}: {error}"))?;
        let (path, kind) = path_and_kind(name, &file_patch.operation().strip_prefix(1))?;
        let before = match content.get(&path) {
            Some(file) => file.clone(),
            None => pristine(&path)?,
        };
        let before = match (kind, before) {
            (Kind::Modify | Kind::Delete, Some(file)) => file,
            (Kind::Create, None) => File {
                data: Vec::new(),
                executable: false,
            },
            (Kind::Modify | Kind::Delete, None) => bail!("{name}: there is no file {path}"),
            (Kind::Create, Some(_)) => bail!("{name}: it creates {path}, which exists"),
        };
        let diff = file_patch
            .patch()
            .as_text()
            .with_context(|| format!("{name}: the change to {path} is binary"))?;
        let old = String::from_utf8(before.data)
            .map_err(|_| anyhow!("{name}: {path} is not a text file"))?;
        let new =
            diffy::apply(&old, diff).map_err(|error| failed_hunk(name, &path, diff, &error))?;
        let deleted = matches!(kind, Kind::Delete);
        if deleted && !new.is_empty() {
            bail!("{name}: it deletes {path}, but does not remove all lines of the file");
        }
        let file = File {
            data: new.into_bytes(),
            executable: before.executable,
        };
        content.insert(path, (!deleted).then_some(file));
        files += 1;
    }
    if files == 0 {
        bail!("{name}: the patch changes no file");
    }
    Ok(())
}

/// What a patch does with a file.
#[derive(Clone, Copy)]
enum Kind {
    Create,
    Modify,
    Delete,
}

/// Returns the file that a part of a patch is for, and what the patch does with it.
fn path_and_kind(name: &str, operation: &FileOperation<'_, str>) -> Result<(String, Kind)> {
    let (path, kind) = match operation {
        FileOperation::Modify { original, modified } if original == modified => {
            (original, Kind::Modify)
        }
        FileOperation::Create(path) => (path, Kind::Create),
        FileOperation::Delete(path) => (path, Kind::Delete),
        other => {
            bail!("{name}: a patch here can only create, modify or delete a file, not {other:?}")
        }
    };
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        bail!("{name}: {path} is outside the kernel tree");
    }
    Ok((path.clone().into_owned(), kind))
}

/// Returns the error for a hunk that does not apply.
fn failed_hunk(
    name: &str,
    path: &str,
    diff: &diffy::Patch<'_, str>,
    error: &diffy::ApplyError,
) -> anyhow::Error {
    // diffy's error has the number of the hunk only in its text.
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
        apply("series/a/1-x.patch", patch, content, |path| {
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
}
