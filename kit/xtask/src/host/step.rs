// SPDX-License-Identifier: GPL-2.0-only
//! Runs a program as a step of a verb: shows its progress on stderr, and writes its output to a log
//! in the cache.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::host::env::Env;
use crate::host::proc::lines;
use crate::host::progress::Step;

/// The number of lines of a log that an error shows.
const TAIL: usize = 25;

/// Runs a program as step `step`, whose name is also that of the log. If the program fails, the
/// error has the last lines of the log and its path.
pub fn run(env: &Env, step: &str, command: Command) -> Result<()> {
    let mut log = String::new();
    for c in step.chars() {
        log.push(if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        });
    }
    let path = env.logs.join(format!("{log}.log"));
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(file, "$ {}", describe(&command))?;
    let mut progress = Step::new(step);
    let mut tail = VecDeque::new();
    let status = lines(command, |line| {
        let _ = writeln!(file, "{line}");
        progress.at(line);
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(line.to_string());
    })?;
    if status.success() {
        progress.done();
        return Ok(());
    }
    drop(progress);
    let tail: Vec<_> = tail.into();
    if let Some(cause) = explain(&tail) {
        bail!("{step}: {cause} (log: {})", path.display());
    }
    bail!(
        "{step} failed ({status}):\n{}\nread the whole log: {}",
        tail.join("\n"),
        path.display()
    )
}

/// Returns a command as text for the head of a log. The text leaves out the environment and, for a
/// program in the tool root, the script that enters the tool root.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    // Such a command has the script, arguments of the script, `--`, and the program.
    let script = words.iter().position(|word| word.contains('\n'));
    let program = script.and_then(|script| {
        Some(script + words[script..].iter().position(|word| word == "--")? + 1)
    });
    words[program.unwrap_or(0)..].join(" ")
}

/// Returns the cause of a failure and what to do about it, for causes that the output of a program
/// reveals.
fn explain(output: &[String]) -> Option<&'static str> {
    const CAUSES: [(&str, &[&str]); 2] = [
        (
            "the disk is full; make room and try again",
            &["No space left on device", "not enough free space"],
        ),
        (
            "there is no network, or the server does not answer; try again later",
            &[
                "Temporary failure resolving",
                "Could not resolve",
                "Unable to connect to",
                "Could not connect to",
                "Network is unreachable",
                "spurious network error",
                "failed to download from",
            ],
        ),
    ];
    let said = |texts: &[&str]| {
        output
            .iter()
            .any(|line| texts.iter().any(|t| line.contains(t)))
    };
    CAUSES
        .iter()
        .find(|(_, texts)| said(texts))
        .map(|(cause, _)| *cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_explained() {
        let cause = |line: &str| explain(&["x".to_string(), line.to_string()]);
        assert_eq!(
            cause("cp: write error: No space left on device"),
            Some("the disk is full; make room and try again")
        );
        assert!(cause("Err:1 Temporary failure resolving 'host'")
            .unwrap()
            .contains("network"));
        assert_eq!(cause("make: *** [Makefile:1] Error 2"), None);
    }

    #[test]
    fn command_is_described_by_its_program() {
        let mut plain = Command::new("make");
        plain.args(["-j2", "--", "all"]);
        assert_eq!(describe(&plain), "make -j2 -- all");
        let mut inside = Command::new("unshare");
        inside.args([
            "--", "sh", "-c", "a\nb", "sh", "/root", "/dir", "--", "make", "--", "x",
        ]);
        assert_eq!(describe(&inside), "make -- x");
    }
}
