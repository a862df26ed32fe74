// SPDX-License-Identifier: GPL-2.0-only
//! `cargo xtask check`: style, lints, and that the series is the work tree.
//!
//! All programs are those of the tool root, so that every host gives the same answer.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{anyhow, bail, ensure, Result};
use tempfile::TempDir;

use crate::build::{self, Bed, Flavour, Sockmap};
use crate::env::Env;
use crate::manifest::Manifest;
use crate::proc;
use crate::series::Mails;
use crate::toolroot::ToolRoot;
use crate::tree::{self, Tree};
use crate::verbs;

#[derive(clap::Args)]
pub struct Args {
    /// Only the checks with this in their name
    filter: Option<String>,
}

/// What the checks look at.
struct Subject<'a> {
    env: &'a Env,
    root: ToolRoot,
    tree: Tree,
    mails: OnceCell<(TempDir, Vec<Vec<PathBuf>>)>,
}

/// Returns a word on what was looked at; the error is what is wrong.
type Check = fn(&Subject) -> Result<String>;

/// The cheap ones first.
const CHECKS: &[(&str, Check)] = &[
    ("manifest", |subject| subject.manifest()),
    ("places", |subject| subject.places()),
    ("kernel-rustfmt", |subject| subject.kernel_rustfmt()),
    ("kit-rustfmt", |subject| subject.kit_rustfmt()),
    ("series", |subject| subject.series()),
    ("checkpatch", |subject| subject.checkpatch()),
    ("spelling", |subject| subject.spelling()),
    ("maintainers", |subject| subject.maintainers()),
    ("htmldocs", |subject| subject.htmldocs()),
    ("kit-clippy", |subject| subject.kit_clippy()),
    ("kernel-clippy", |subject| subject.kernel_lints()),
];

pub fn run(env: &Env, args: Args) -> Result<()> {
    let wanted = |name: &str| {
        args.filter
            .as_ref()
            .is_none_or(|filter| name.contains(filter.as_str()))
    };
    let checks: Vec<_> = CHECKS.iter().filter(|(name, _)| wanted(name)).collect();
    if checks.is_empty() {
        let names: Vec<_> = CHECKS.iter().map(|(name, _)| *name).collect();
        bail!("no such check; there are: {}", names.join(", "));
    }
    let (root, tree) = verbs::prepare_tree(env)?;
    let subject = Subject {
        env,
        root,
        tree,
        mails: OnceCell::new(),
    };
    let mut failed = 0;
    for (name, check) in &checks {
        let start = Instant::now();
        match check(&subject) {
            Ok(note) => {
                let seconds = start.elapsed().as_secs_f32();
                println!("PASS {name}: {note} ({seconds:.1} s)");
            }
            Err(error) => {
                failed += 1;
                println!(
                    "FAIL {name}: {}",
                    format!("{error:#}").replace('\n', "\n     ")
                );
            }
        }
    }
    println!("{} passed, {failed} failed", checks.len() - failed);
    ensure!(failed == 0, "check found something");
    Ok(())
}

impl Subject<'_> {
    fn manifest(&self) -> Result<String> {
        let manifest = Manifest::read(&self.env.repo)?;
        let count = manifest.patches().count();
        let files = tree::overlay_files(&self.env.repo)?.len();
        Ok(format!("{count} patches, {files} new files"))
    }

    /// The exported mails, made once.
    fn mails(&self) -> Result<&[Vec<PathBuf>]> {
        if self.mails.get().is_none() {
            let dir = tempfile::tempdir_in(&self.env.logs)?;
            let manifest = Manifest::read(&self.env.repo)?;
            let mails = self.exporter(&manifest).write(1, dir.path())?;
            // It was empty.
            let _ = self.mails.set((dir, mails));
        }
        match self.mails.get() {
            Some((_, mails)) => Ok(mails),
            None => bail!("there are no mails"),
        }
    }

    /// Those that are patches.
    fn patches(&self) -> Result<Vec<&PathBuf>> {
        let mails = self.mails()?.iter();
        Ok(mails.flat_map(|series| series.iter().skip(1)).collect())
    }

    fn exporter<'a>(&'a self, manifest: &'a Manifest) -> Mails<'a> {
        Mails {
            env: self.env,
            root: &self.root,
            source: &self.tree.source,
            manifest,
        }
    }

    fn series(&self) -> Result<String> {
        let patches = self.patches()?;
        let manifest = Manifest::read(&self.env.repo)?;
        self.exporter(&manifest).give(&self.tree, &patches)?;
        Ok(format!(
            "git am of {} patches gives the work tree",
            patches.len()
        ))
    }

    fn checkpatch(&self) -> Result<String> {
        // MAINTAINERS is the last patch: the check of that name sees to it. The person who sends
        // signs off. Its --codespell takes minutes where codespell itself takes a second. A commit
        // that a patch fixes is not here to be found, as the history of Linux is not.
        const EACH: &str = r#"
            printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" perl scripts/checkpatch.pl --strict \
                --no-signoff --no-summary --ignore FILE_PATH_CHANGES,UNKNOWN_COMMIT_ID \
                --show-types --terse
        "#;
        let patches = self.patches()?;
        let mut check = self.shell(EACH);
        check.args(&patches);
        if let Err(said) = complaints(check)? {
            // Lines begin with the path of the mail.
            let mut said = said.join("\n");
            for folder in patches.iter().filter_map(|mail| mail.parent()) {
                said = said.replace(&format!("{}/", folder.display()), "");
            }
            bail!("{said}");
        }
        Ok(format!("{} patches", patches.len()))
    }

    fn spelling(&self) -> Result<String> {
        // Also in a checkout that is no git repository; not what .gitignore names. Linux has a folder
        // with the name benchs.
        const ALL: &str = r#"
            git grep --no-index --exclude-standard -lIz "" -- ":!Cargo.lock" | xargs -0 codespell -L benchs
        "#;
        let mut spell = self.root.command(&self.env.repo, "sh");
        spell.args(["-c", ALL]);
        self.git(&mut spell);
        match complaints(spell)? {
            Ok(()) => Ok("all files".to_string()),
            Err(said) => bail!("{}", said.join("\n")),
        }
    }

    /// MAINTAINERS has each new file, and its new lines have no file that is not there.
    fn maintainers(&self) -> Result<String> {
        const FILE: &str = "MAINTAINERS";
        let files: Vec<_> = tree::overlay_files(&self.env.repo)?.into_keys().collect();
        let wrong = maintainers_faults(
            &fs::read_to_string(self.tree.source.path.join(FILE))?,
            &fs::read_to_string(self.tree.path.join(FILE))?,
            &files,
        );
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(format!("{} new files", files.len()))
    }

    /// Runs `make htmldocs` for each page that the repository brings, with warnings as errors. The
    /// page stands alone, since all pages of its folder would take minutes.
    fn htmldocs(&self) -> Result<String> {
        // Each run starts in an empty /tmp: Sphinx is silent about a page that it has built before.
        // Without Sphinx make says so and returns 0, so the page must be there at the end.
        const EACH: &str = r#"
            make -s O=/tmp/htmldocs SPHINXDIRS="$1" htmldocs SPHINXOPTS="-q -W --keep-going \
                -D master_doc=$2 -D include_patterns=$2.rst" &&
            test -s "/tmp/htmldocs/Documentation/output/$1/$2.html"
        "#;
        let docs = ToolRoot::ensure_docs(self.env)?;
        let mut pages = Vec::new();
        for file in tree::overlay_files(&self.env.repo)?.into_keys() {
            let Some(page) = file.strip_prefix("Documentation/") else {
                continue;
            };
            let Some(page) = page.strip_suffix(".rst") else {
                continue;
            };
            let (folder, name) = page.rsplit_once('/').unwrap_or((".", page));
            let mut make = docs.command(&self.tree.path, "sh");
            make.args(["-c", EACH, "sh", folder, name]);
            proc::run(self.env, &format!("make htmldocs of {file}"), make)?;
            pages.push(file);
        }
        Ok(pages.join(", "))
    }

    fn kernel_rustfmt(&self) -> Result<String> {
        // From stdin, since rustfmt would go on to all files that a named one has as modules. It
        // then ends with 0 whatever it says.
        const EACH: &str = r#"
            for file; do
                rustfmt --check --color=never --config-path .rustfmt.toml < "$file" 2>&1 |
                    sed "s|<stdin>|$file|"
            done
        "#;
        let files = self.tree.files.iter();
        let files: Vec<_> = files.filter(|file| file.ends_with(".rs")).collect();
        let mut check = self.shell(EACH);
        check.args(&files);
        match complaints(check)? {
            Ok(()) => Ok(format!("{} files", files.len())),
            Err(said) => bail!("{}", said.join("\n")),
        }
    }

    /// Clippy, and with W=1 clang, rustc and clippy, find nothing in what the repository brings
    /// or changes. The kernel is the one of the debug bed since it has KUnit tests in it.
    fn kernel_lints(&self) -> Result<String> {
        let flavour = Flavour {
            bed: Bed::Um,
            sockmap: Sockmap::Rust,
            debug: true,
        };
        // Not the bed's own folder: there, all would have to be built again with other flags.
        let out = self
            .env
            .cache
            .join(format!("build-lint-{}", self.tree.source.key));
        fs::create_dir_all(&out)?;
        let wanted = build::wanted_config(&self.env.repo, flavour)?;
        build::configure(self.env, &self.root, &self.tree, &out, flavour, &wanted)?;
        let mut make = build::make(&self.root, &self.tree.path, &out, flavour.bed);
        // Making ready for a folder builds all of rust/. `e` is an error for each warning, so
        // that a later run does not take what has one for built.
        make.args(["CLIPPY=1", "W=1e", "net/vmw_vsock/"]);
        // C files elsewhere, one by one.
        let mut elsewhere: Vec<String> = Vec::new();
        for file in &self.tree.files {
            if let Some(stem) = file.strip_suffix(".c") {
                if stem.starts_with("net/") && !stem.starts_with("net/vmw_vsock/") {
                    elsewhere.push(format!("{stem}.o"));
                }
            }
        }
        make.args(&elsewhere);
        build::run_make(self.env, "lint the kernel's objects", &out, make)?;
        Ok(format!(
            "rust/, net/vmw_vsock/, {} with W=1",
            elsewhere.join(", ")
        ))
    }

    fn kit_rustfmt(&self) -> Result<String> {
        let mut fmt = self.cargo();
        fmt.args(["fmt", "--all", "--check", "--", "--color=never"]);
        match complaints(fmt)? {
            Ok(()) => Ok("all crates".to_string()),
            Err(said) => bail!("{}", said.join("\n")),
        }
    }

    fn kit_clippy(&self) -> Result<String> {
        let mut clippy = self.cargo();
        clippy.args(["clippy", "--workspace", "--all-targets", "--locked"]);
        clippy.args(["--", "-D", "warnings"]);
        proc::run(self.env, "lint the kit", clippy)?;
        Ok("all crates".to_string())
    }

    /// No path of this machine and no registry host stands in a file of the repository.
    fn places(&self) -> Result<String> {
        let mut places = vec![
            self.env.repo.display().to_string(),
            self.env.cache.display().to_string(),
        ];
        if let Some(home) = std::env::var_os("HOME").map(PathBuf::from) {
            // Guests have a /root of their own.
            if home != Path::new("/root") && home != Path::new("/") {
                places.push(home.display().to_string());
            }
        }
        let mut hosts = fs::read_to_string(self.root.path.join("etc/apt/sources.list"))?;
        hosts += " https://deb.debian.";
        hosts += "org/ https://crates.";
        hosts += "io/ https://static.rust-lang.";
        hosts += "org/";
        places.extend(host_names(&hosts));
        let mut grep = self.root.command(&self.env.repo, "git");
        self.git(&mut grep);
        // Files that are not tracked yet, too; not what .gitignore names.
        grep.args(["grep", "--no-index", "--exclude-standard", "-nIF"]);
        for place in &places {
            grep.arg("-e").arg(place);
        }
        // Cargo names its registry in it.
        grep.args(["--", ":!Cargo.lock"]);
        let mut said = Vec::new();
        let status = proc::lines(grep, |line| said.push(line.to_string()))?;
        match status.code() {
            Some(1) => Ok("no path of this machine, no registry host".to_string()),
            _ => bail!("{}", said.join("\n")),
        }
    }

    /// Lets git look at a checkout of another user.
    fn git(&self, command: &mut Command) {
        command.env("GIT_CONFIG_COUNT", "1");
        command.env("GIT_CONFIG_KEY_0", "safe.directory");
        command.env("GIT_CONFIG_VALUE_0", "*");
    }

    /// A shell script to be run in the work tree.
    fn shell(&self, script: &str) -> Command {
        let mut command = self.root.command(&self.tree.path, "sh");
        command.args(["-c", script, "sh"]);
        command
    }

    /// The tool root's cargo: vsock-redirect needs its clang, and hosts differ in their lints.
    fn cargo(&self) -> Command {
        let mut command = self.root.command(&self.env.repo, "cargo");
        command.env("CARGO_TARGET_DIR", self.env.cache.join("target-lint"));
        command
    }
}

/// How many lines of a program's complaints are shown.
const MOST_LINES: usize = 60;

/// Runs a program that is silent when all is well; otherwise the inner error is what it said.
fn complaints(command: Command) -> Result<Result<(), Vec<String>>> {
    let mut said = Vec::new();
    let status = proc::lines(command, |line| said.push(line.to_string()))?;
    if status.success() && said.is_empty() {
        return Ok(Ok(()));
    }
    if said.is_empty() {
        return Err(anyhow!("it failed without a word ({status})"));
    }
    let more = said.len().saturating_sub(MOST_LINES);
    said.truncate(MOST_LINES);
    if more != 0 {
        said.push(format!(".. and {more} lines more"));
    }
    Ok(Err(said))
}

/// A new file is to be named by itself or by its folder: some section, such as `net/`, always has
/// it.
fn maintainers_faults(old: &str, new: &str, files: &[String]) -> Vec<String> {
    fn patterns(text: &str) -> BTreeSet<&str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("F:"));
        lines.map(str::trim).collect()
    }
    let (old, new) = (patterns(old), patterns(new));
    let mut wrong = Vec::new();
    for file in files {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        // A folder that the series adds stands for all below it.
        let below = new
            .difference(&old)
            .any(|pattern| pattern.ends_with('/') && file.starts_with(pattern));
        if !below && !new.contains(file.as_str()) && !new.contains(format!("{folder}/").as_str()) {
            wrong.push(format!(
                "{file}: it is not there, and neither is its folder"
            ));
        }
    }
    for pattern in new.difference(&old) {
        let has =
            |file: &String| file == pattern || pattern.ends_with('/') && file.starts_with(pattern);
        if !files.iter().any(has) {
            wrong.push(format!("F: {pattern}: there is no such new file"));
        }
    }
    wrong
}

/// The hosts of the URLs in a text.
fn host_names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .split("://")
        .skip(1)
        .filter_map(|rest| rest.split(['/', ':', ' ', '\n']).next())
        .map(String::from)
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_urls() {
        let text = "deb http://a.example/debian trixie main\ndeb https://b.example:81/x y\n\
                    deb http://a.example/z y\n";
        assert_eq!(host_names(text), ["a.example", "b.example"]);
    }

    #[test]
    fn maintainers_has_new_files_and_no_others() {
        let old = "NET\nF:\tnet/\nF:\trust/lock/\n\nTHE REST\nF:\t*\n";
        let new = format!("NEW\nF:\tnet/new/\nF:\trust/x.rs\n\n{old}");
        let files = |names: &[&str]| {
            names
                .iter()
                .map(|name| name.to_string())
                .collect::<Vec<_>>()
        };
        let all = files(&[
            "net/new/a.rs",
            "net/new/x/a.rs",
            "rust/x.rs",
            "rust/lock/b.rs",
        ]);
        assert!(maintainers_faults(old, &new, &all).is_empty());
        assert_eq!(maintainers_faults(old, old, &all).len(), 3);
        let wrong = maintainers_faults(old, &new, &files(&["net/new/a.rs"]));
        assert_eq!(wrong, ["F: rust/x.rs: there is no such new file"]);
    }

    #[test]
    fn silence_is_well() {
        let sh = |script: &str| {
            let mut sh = Command::new("sh");
            sh.args(["-c", script]);
            complaints(sh)
        };
        assert!(sh("true").unwrap().is_ok());
        assert_eq!(sh("echo a; exit 1").unwrap().unwrap_err(), ["a"]);
        // A tool that warns and returns 0.
        assert_eq!(sh("echo a").unwrap().unwrap_err(), ["a"]);
        assert!(sh("exit 3").is_err());
        let long = sh("seq 100; exit 1").unwrap().unwrap_err();
        assert_eq!(long.len(), MOST_LINES + 1);
        assert_eq!(long[MOST_LINES], ".. and 40 lines more");
    }
}
