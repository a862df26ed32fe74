// SPDX-License-Identifier: GPL-2.0-only
//! The argument of every check: the checkout, the work tree, the mails, and means to run programs.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{bail, Result};
use tempfile::TempDir;

use crate::host::env::Env;
use crate::host::proc;
use crate::host::toolroot::ToolRoot;
use crate::kernel::tree::Tree;
use crate::mail::mails::Mails;
use crate::mail::manifest::Manifest;

/// Holds what the checks look at.
pub struct Subject<'a> {
    pub env: &'a Env,
    pub root: ToolRoot,
    pub tree: Tree,
    /// The mails and their folder, once a check has asked for them.
    mails: OnceCell<(TempDir, Vec<Vec<PathBuf>>)>,
}

impl<'a> Subject<'a> {
    /// Begins the checks of a checkout.
    pub fn new(env: &'a Env, root: ToolRoot, tree: Tree) -> Self {
        Subject {
            env,
            root,
            tree,
            mails: OnceCell::new(),
        }
    }

    /// Returns the mails of each series. Writes them at the first call.
    fn mails(&self) -> Result<&[Vec<PathBuf>]> {
        if self.mails.get().is_none() {
            let dir = tempfile::tempdir_in(&self.env.logs)?;
            let manifest = Manifest::read(&self.env.repo)?;
            let mails = self.exporter(&manifest).write(1, dir.path())?;
            // This cannot fail: the cell is empty.
            let _ = self.mails.set((dir, mails));
        }
        match self.mails.get() {
            Some((_, mails)) => Ok(mails),
            None => bail!("there are no mails"),
        }
    }

    /// Returns the mails that are patches.
    pub fn patches(&self) -> Result<Vec<&PathBuf>> {
        let mails = self.mails()?.iter();
        Ok(mails.flat_map(|series| series.iter().skip(1)).collect())
    }

    /// Returns the writer of the mails.
    pub fn exporter<'b>(&'b self, manifest: &'b Manifest) -> Mails<'b> {
        Mails {
            env: self.env,
            root: &self.root,
            source: &self.tree.source,
            manifest,
        }
    }

    /// Lets the git of a command read a checkout that belongs to another user.
    pub fn git(&self, command: &mut Command) {
        command.env("GIT_CONFIG_COUNT", "1");
        command.env("GIT_CONFIG_KEY_0", "safe.directory");
        command.env("GIT_CONFIG_VALUE_0", "*");
    }

    /// Returns a command that runs a shell script in the work tree. The caller adds arguments.
    pub fn shell(&self, script: &str) -> Command {
        let mut command = self.root.command(&self.tree.path, "sh");
        command.args(["-c", script, "sh"]);
        command
    }

    /// Returns the cargo of the tool root. vsock-redirect needs the clang there, and another cargo
    /// would have other lints.
    pub fn cargo(&self) -> Command {
        let mut command = self.root.command(&self.env.repo, "cargo");
        command.env("CARGO_TARGET_DIR", self.env.cache.join("target-lint"));
        command
    }
}

/// The number of lines that an error shows of the output of a program.
const MOST_LINES: usize = 60;

/// Runs a program that writes nothing if all is well. Otherwise the error is the output of the
/// program.
pub fn expect_silence(command: Command) -> Result<()> {
    let mut said = Vec::new();
    let status = proc::lines(command, |line| said.push(line.to_string()))?;
    if status.success() && said.is_empty() {
        return Ok(());
    }
    if said.is_empty() {
        bail!("the program of this check failed without a message ({status}); try again");
    }
    let more = said.len().saturating_sub(MOST_LINES);
    said.truncate(MOST_LINES);
    if more != 0 {
        said.push(format!(".. and {more} more lines"));
    }
    bail!("{}", said.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_well() {
        let sh = |script: &str| {
            let mut sh = Command::new("sh");
            sh.args(["-c", script]);
            expect_silence(sh).map_err(|error| error.to_string())
        };
        assert!(sh("true").is_ok());
        assert_eq!(sh("echo a; exit 1").unwrap_err(), "a");
        // Some programs warn and return 0.
        assert_eq!(sh("echo a").unwrap_err(), "a");
        assert!(sh("exit 3").is_err());
        let long = sh("seq 100; exit 1").unwrap_err();
        assert_eq!(long.lines().count(), MOST_LINES + 1);
        assert!(long.ends_with("\n.. and 40 more lines"));
    }
}
