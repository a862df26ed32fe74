// SPDX-License-Identifier: GPL-2.0-only
//! The series as mails, and a build and boot at each of their patches.
//!
//! The mails come from git itself: a scratch repository gets the pristine content of the touched
//! files as its first commit, then one commit for each patch.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{ensure, Context, Result};
use walkdir::WalkDir;

use crate::guest::boot::{Boot, System};
use crate::guest::initramfs::Initramfs;
use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::host::{proc, progress};
use crate::kernel::build::{build, Bed, Flavour, Sockmap};
use crate::kernel::changes;
use crate::kernel::patch::{Content, File};
use crate::kernel::prepare;
use crate::kernel::source::Source;
use crate::kernel::tree::{self, Tree};
use crate::mail::manifest::Manifest;

#[derive(clap::Args)]
pub struct Args {
    /// Which version of the series this is; from 2 on the subjects tell it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    version: u32,
    /// Write no mails: build and boot a kernel at every patch, with warnings as errors
    #[arg(long, conflicts_with = "version")]
    bisect: bool,
    /// What --bisect builds for
    #[arg(long, value_enum, default_value = "um", requires = "bisect")]
    bed: Bed,
}

pub fn run(env: &Env, args: Args) -> Result<()> {
    let manifest = Manifest::read(&env.repo)?;
    let (root, source) = prepare::prepare(env)?;
    if args.bisect {
        return bisect(env, &root, &source, &manifest, args.bed);
    }
    let parent = env.repo.join("build/series");
    fs::create_dir_all(&parent)?;
    let new = tempfile::tempdir_in(&parent)?;
    let mails = Mails {
        env,
        root: &root,
        source: &source,
        manifest: &manifest,
    };
    mails.write(args.version, new.path())?;
    let done = parent.join(format!("v{}", args.version));
    match fs::remove_dir_all(&done) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", done.display()));
        }
        _ => fs::rename(new.keep(), &done)?,
    }
    println!("{}", done.display());
    Ok(())
}

/// What mails are made from.
pub struct Mails<'a> {
    pub env: &'a Env,
    pub root: &'a ToolRoot,
    pub source: &'a Source,
    pub manifest: &'a Manifest,
}

/// $1 the folder for the mails, $2 what stands in the brackets of a subject, $3 the commits.
const FORMAT: &str = r#"
[ -d git ] || {
    git init -q --bare git
    git --git-dir=git fast-import --quiet < stream
}
git --git-dir=git -c core.abbrev=12 format-patch -q -o "$1" --subject-prefix="$2" \
    --cover-letter --cover-from-description=subject --description-file=cover "$3"
"#;

/// $1 and on: mails.
const AM: &str = r#"
git init -q am
cd am
git fast-import --quiet < ../stream
git reset -q --hard base
git am -q "$@"
"#;

impl Mails<'_> {
    /// Writes the mails into an empty folder, with a folder for each series; returns them in order,
    /// of each series the cover letter first.
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

    /// Fails unless `git am` of these patches on the pristine source gives the work tree.
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
                "after git am of all mails {file} is not that of the work tree"
            );
        }
        Ok(())
    }

    /// The touched files as they are in the source, and for each patch its message and the files
    /// that it changes.
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
            ensure!(!changed.is_empty(), "{} changes nothing", patch.name);
            commits.push((self.manifest.message(repo, patch)?, changed));
            before.extend(after);
        }
        Ok((base, commits))
    }

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

    /// The line that tells what the series is made on.
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
                    progress::say("--source has changes of its own, so there is no base-commit");
                }
                (None, _) => {
                    progress::say("--source is no git checkout, so there is no base-commit")
                }
            }
        }
        format!("base: Linux {}", self.source.version)
    }
}

/// The mails of a folder, in order.
fn mails_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut mails = Vec::new();
    for entry in fs::read_dir(dir)? {
        mails.push(entry?.path());
    }
    mails.sort();
    Ok(mails)
}

/// Puts the base where `git format-patch --base` does, before the signature of the cover letter.
fn with_base(cover: &str, base: &str) -> String {
    match cover.rsplit_once("\n-- \n") {
        Some((text, signature)) => format!("{text}\n{base}\n-- \n{signature}"),
        None => format!("{cover}\n{base}\n"),
    }
}

/// Who the mails are from, and when: the same checkout gives the same mails.
struct Identity {
    name: String,
    email: String,
    /// Seconds since 1970.
    date: String,
}

impl Identity {
    /// The host's git knows, if there is one.
    fn of(repo: &Path) -> Self {
        let get = |args: &[&str], placeholder: &str| {
            host_git(repo, args).unwrap_or_else(|| placeholder.to_string())
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs().to_string();
        Identity {
            name: get(&["config", "user.name"], "Name of the Sender"),
            email: get(&["config", "user.email"], "sender@example.org"),
            date: get(&["log", "-1", "--format=%ct"], &now),
        }
    }
}

/// What git on the host says about a folder, if it says anything.
fn host_git(dir: &Path, args: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(args);
    let said = proc::output(git).ok()?.trim().to_string();
    (!said.is_empty()).then_some(said)
}

/// Commits for `git fast-import`.
struct Stream<'a> {
    identity: &'a Identity,
    bytes: Vec<u8>,
}

impl<'a> Stream<'a> {
    fn new(identity: &'a Identity) -> Self {
        Stream {
            identity,
            bytes: Vec::new(),
        }
    }

    fn commit(&mut self, branch: &str, message: &str, files: &Content, from: Option<&str>) {
        let Identity { name, email, date } = self.identity;
        let mut head = format!("commit refs/heads/{branch}\n");
        let _ = writeln!(head, "committer {name} <{email}> {date} +0000");
        let _ = writeln!(head, "data {}\n{message}", message.len());
        if let Some(from) = from {
            let _ = writeln!(head, "from refs/heads/{from}");
        }
        self.bytes.extend(head.bytes());
        for (path, file) in files {
            match file {
                Some(file) => {
                    let mode = if file.executable { "100755" } else { "100644" };
                    let head = format!("M {mode} inline {path}\ndata {}\n", file.data.len());
                    self.bytes.extend(head.bytes());
                    self.bytes.extend(&file.data);
                    self.bytes.push(b'\n');
                }
                None => self.bytes.extend(format!("D {path}\n").bytes()),
            }
        }
        self.bytes.push(b'\n');
    }
}

/// That vsock is there, too.
const MAIN: &str = "#!/bin/sh\nmodprobe -q vsock\ntest -c /dev/vsock\n";

/// Builds and boots at every patch, in a cache of its own so that the ordinary one stays warm.
fn bisect(
    env: &Env,
    root: &ToolRoot,
    source: &Source,
    manifest: &Manifest,
    bed: Bed,
) -> Result<()> {
    let _lock = env.lock("bisect")?;
    let inner = Env {
        repo: env.cache.join("bisect/checkout"),
        cache: env.cache.join("bisect"),
        logs: env.logs.clone(),
        source: env.source.clone(),
    };
    if inner.repo.exists() {
        env.remove_dir(&inner.repo)?;
    }
    let configs = inner.repo.join("kernel");
    fs::create_dir_all(&configs)?;
    for entry in fs::read_dir(env.repo.join("kernel"))? {
        let entry = entry?;
        fs::copy(entry.path(), configs.join(entry.file_name()))?;
    }
    let mut base = fs::File::options()
        .append(true)
        .open(configs.join("base.config"))?;
    writeln!(base, "CONFIG_WERROR=y")?;
    drop(base);

    let count = manifest.patches().count();
    for (index, patch) in manifest.patches().enumerate() {
        let number = index + 1;
        manifest.checkout(&env.repo, number, &inner.repo)?;
        let at = || format!("at patch {number}, {}", patch.name);
        let tree = tree::apply(&inner, root, source.clone()).with_context(at)?;
        let mut flavours = vec![Sockmap::C];
        if has_option(&tree) {
            flavours.push(Sockmap::Rust);
        }
        for sockmap in flavours {
            let flavour = Flavour {
                bed,
                sockmap,
                debug: false,
            };
            let image = build(&inner, root, &tree, flavour).with_context(at)?;
            let archive = Initramfs::new(&inner, root, MAIN)
                .modules(&image)?
                .build(&image)?;
            let outcome = Boot::new(&image, System::Initramfs(&archive)).run(
                &inner,
                root,
                &format!("{}-{}", patch.name.replace('/', "-"), sockmap.name()),
            )?;
            outcome.verdict().with_context(at)?;
            println!(
                "{number}/{count} {}: {} builds and boots",
                patch.name,
                flavour.name()
            );
        }
    }
    Ok(())
}

/// Does the work tree have CONFIG_VSOCKETS_SOCKMAP_RUST?
fn has_option(tree: &Tree) -> bool {
    tree.files.iter().any(|file| {
        file.ends_with("/Kconfig")
            && fs::read_to_string(tree.path.join(file))
                .is_ok_and(|text| text.contains("config VSOCKETS_SOCKMAP_RUST\n"))
    })
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

    #[test]
    fn commits_as_git_reads_them() {
        let identity = Identity {
            name: "A".to_string(),
            email: "a@b".to_string(),
            date: "7".to_string(),
        };
        let mut stream = Stream::new(&identity);
        let file = File {
            data: b"x\n".to_vec(),
            executable: true,
        };
        let files = Content::from([("a".to_string(), Some(file)), ("b".to_string(), None)]);
        stream.commit("series", "s\n\nß\n", &files, Some("base"));
        assert_eq!(
            String::from_utf8(stream.bytes).unwrap(),
            "commit refs/heads/series\ncommitter A <a@b> 7 +0000\ndata 6\ns\n\nß\n\n\
             from refs/heads/base\nM 100755 inline a\ndata 2\nx\n\nD b\n\n"
        );
    }
}
