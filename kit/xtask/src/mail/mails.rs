// SPDX-License-Identifier: GPL-2.0-only
//! Writes the series as mails.
//!
//! git itself makes the mails. It works in a scratch repository: the first commit has the files
//! that the series change as they are in the pristine source, and each further commit is a patch.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context, Result};
use walkdir::WalkDir;

use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::host::{proc, progress};
use crate::kernel::changes;
use crate::kernel::patch::{Content, File};
use crate::kernel::source::Source;
use crate::kernel::tree::Tree;
use crate::mail::git::{host_git, Identity, Stream};
use crate::mail::manifest::Manifest;

/// Writes mails from these.
pub struct Mails<'a> {
    pub env: &'a Env,
    pub root: &'a ToolRoot,
    pub source: &'a Source,
    pub manifest: &'a Manifest,
}

/// The script that writes the mails of one series. $1 is their folder, $2 the text in the brackets
/// of the subjects, $3 the commits.
const FORMAT: &str = r#"
[ -d git ] || {
    git init -q --bare git
    git --git-dir=git fast-import --quiet < stream
}
git --git-dir=git -c core.abbrev=12 format-patch -q -o "$1" --subject-prefix="$2" \
    --cover-letter --cover-from-description=subject --description-file=cover "$3"
"#;

/// The script that applies mails, which are its arguments.
const AM: &str = r#"
git init -q am
cd am
git fast-import --quiet < ../stream
git reset -q --hard base
git am -q "$@"
"#;

impl Mails<'_> {
    /// Writes the mails to an empty folder, with a folder for each series. Returns the mails of
    /// each series in order, the cover letter first.
    pub fn write(&self, version: u32, to: &Path) -> Result<Vec<Vec<PathBuf>>> {
        let work = tempfile::tempdir_in(&self.env.logs)?;
        let identity = Identity::of(&self.env.repo);
        let (base, commits) = self.commits(work.path())?;
        let mut stream = Stream::new(&identity);
        let mut before = "base";
        stream.commit(before, "base\n", &base, None);
        let mut rest = commits.iter();
        for series in &self.manifest.series {
            for (number, (message, files)) in rest.by_ref().take(series.patches.len()).enumerate() {
                let from = (number == 0).then_some(before);
                stream.commit(&series.name, message, files, from);
            }
            before = &series.name;
        }
        fs::write(work.path().join("stream"), stream.bytes)?;

        let mut all = Vec::new();
        let mut before = "base";
        let mut made_on = self.base(&base);
        for (number, series) in (1..).zip(&self.manifest.series) {
            let cover = series.cover(&self.env.repo)?;
            let text = format!("{}\n\n{}\n", cover.subject, cover.body);
            fs::write(work.path().join("cover"), text)?;
            let prefix = match version {
                1 => series.prefix.clone(),
                _ => format!("{} v{version}", series.prefix),
            };
            let folder = to.join(format!("{number}-{}", series.name));
            fs::create_dir(&folder)?;
            let mut format = self.script(work.path(), FORMAT, &identity);
            format.arg(&folder).arg(prefix);
            format.arg(format!("{before}..{}", series.name));
            proc::output(format).context("git cannot make the mails")?;

            let mails = mails_in(&folder)?;
            ensure!(
                mails.len() == series.patches.len() + 1,
                "git made {} mails of {} patches and a cover letter",
                mails.len(),
                series.patches.len()
            );
            let text = fs::read_to_string(&mails[0])?;
            fs::write(&mails[0], with_base(&text, &made_on))?;
            made_on = format!("{made_on}\nwith the series: {}", cover.subject);
            before = &series.name;
            all.push(mails);
        }
        Ok(all)
    }

    /// Returns an error unless `git am` of these patches on the pristine source gives the work
    /// tree.
    pub fn give(&self, tree: &Tree, patches: &[&PathBuf]) -> Result<()> {
        let work = tempfile::tempdir_in(&self.env.logs)?;
        let identity = Identity::of(&self.env.repo);
        let (base, _) = self.commits(&work.path().join("stages"))?;
        let mut stream = Stream::new(&identity);
        stream.commit("base", "base\n", &base, None);
        fs::write(work.path().join("stream"), stream.bytes)?;
        let mut am = self.script(work.path(), AM, &identity);
        am.args(patches);
        proc::output(am).context("git am")?;

        let am = work.path().join("am");
        let mut files: BTreeSet<String> = tree.files.iter().cloned().collect();
        let walk = WalkDir::new(&am).into_iter();
        for entry in walk.filter_entry(|entry| entry.file_name() != ".git") {
            let entry = entry?;
            if !entry.file_type().is_dir() {
                let file = entry.path().strip_prefix(&am)?;
                files.insert(file.display().to_string());
            }
        }
        for file in &files {
            ensure!(
                File::read(&am.join(file))? == File::read(&tree.path.join(file))?,
                "after git am of all mails {file} differs from the work tree; correct series/"
            );
        }
        Ok(())
    }

    /// Returns the content of the first commit, and for each patch its message and the files that
    /// it changes. The first commit has all files that any patch changes, as they are in the
    /// source.
    fn commits(&self, work: &Path) -> Result<(Content, Vec<(String, Content)>)> {
        let repo = &self.env.repo;
        let mut base = Content::new();
        let mut before = Content::new();
        let mut commits = Vec::new();
        let stage = work.join("stage");
        for (index, patch) in self.manifest.patches().enumerate() {
            self.manifest.checkout(repo, index + 1, &stage)?;
            let after = changes::content(&stage, &self.source.path)?;
            let mut changed = Content::new();
            for (file, now) in &after {
                if !before.contains_key(file) {
                    let pristine = File::read(&self.source.path.join(file))?;
                    before.insert(file.clone(), pristine.clone());
                    base.insert(file.clone(), pristine);
                }
                if before.get(file) != Some(now) {
                    changed.insert(file.clone(), now.clone());
                }
            }
            ensure!(
                !changed.is_empty(),
                "{} changes no file; remove the patch",
                patch.name
            );
            commits.push((self.manifest.message(repo, patch)?, changed));
            before.extend(after);
        }
        Ok((base, commits))
    }

    /// Returns a command that runs a script in folder `dir`, with `identity` as the author of
    /// commits.
    fn script(&self, dir: &Path, script: &str, identity: &Identity) -> Command {
        let mut command = self.root.command(dir, "sh");
        command.args(["-e", "-c", script, "sh"]);
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), &identity.name);
            command.env(format!("GIT_{who}_EMAIL"), &identity.email);
            command.env(
                format!("GIT_{who}_DATE"),
                format!("{} +0000", identity.date),
            );
        }
        command
    }

    /// Returns the line of a cover letter that names the base of the series.
    fn base(&self, touched: &Content) -> String {
        if self.source.of_user {
            let dir = &self.source.path;
            let mut diff = Command::new("git");
            diff.arg("-C").arg(dir);
            diff.args(["diff", "--quiet", "HEAD", "--"]);
            diff.args(touched.keys());
            match (host_git(dir, &["rev-parse", "HEAD"]), proc::output(diff)) {
                (Some(head), Ok(_)) => return format!("base-commit: {head}"),
                (Some(_), Err(_)) => {
                    progress::say(
                        "--source has uncommitted changes, so the mails have no base-commit",
                    );
                }
                (None, _) => progress::say(
                    "--source is not a git checkout, so the mails have no base-commit",
                ),
            }
        }
        format!("base: Linux {}", self.source.version)
    }
}

/// Returns the mails in a folder, in order.
fn mails_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut mails = Vec::new();
    for entry in fs::read_dir(dir)? {
        mails.push(entry?.path());
    }
    mails.sort();
    Ok(mails)
}

/// Adds the base to a cover letter, before the signature, where `git format-patch --base` adds it.
fn with_base(cover: &str, base: &str) -> String {
    match cover.rsplit_once("\n-- \n") {
        Some((text, signature)) => format!("{text}\n{base}\n-- \n{signature}"),
        None => format!("{cover}\n{base}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_is_before_the_signature() {
        let cover = "Subject: x\n\nWhy\n-- \nnot this\n\n a | 1 +\n\n-- \n2.47.3\n\n";
        assert_eq!(
            with_base(cover, "base-commit: 12"),
            "Subject: x\n\nWhy\n-- \nnot this\n\n a | 1 +\n\nbase-commit: 12\n-- \n2.47.3\n\n"
        );
        assert_eq!(with_base("x", "base: y"), "x\nbase: y\n");
    }
}
