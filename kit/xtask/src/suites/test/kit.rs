// SPDX-License-Identifier: GPL-2.0-only
//! The kit's own unit tests.

use std::process::Command;

use anyhow::{Context, Result};

use super::tally::Tally;
use crate::host::env::Env;
use crate::host::proc;
use crate::suites::case::Verdict;

/// Runs the unit tests of the kit with cargo.
pub fn run(env: &Env, filter: Option<&str>, tally: &mut Tally) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(&env.repo);
    command.args(["test", "--locked", "--quiet", "-p", "xtask"]);
    command.args(["--color", "never"]);
    command.args(["--", "--format", "pretty"]);
    command.args(filter);
    let mut cases = Vec::new();
    let mut output = String::new();
    let status = proc::lines(command, |line| {
        cases.extend(cargo_case(line));
        output.push_str(line);
        output.push('\n');
    })
    .context("cargo test did not run")?;
    for (name, verdict) in &cases {
        tally.say(*verdict, "kit", name, "");
    }
    let failed = cases.iter().any(|(_, verdict)| *verdict == Verdict::Fail);
    if !status.success() && !failed {
        tally.say(Verdict::Fail, "kit", "cargo test", output.trim());
    }
    Ok(())
}

/// Parses a line of `cargo test`; None if it is not the result of a case.
fn cargo_case(line: &str) -> Option<(String, Verdict)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let verdict = match result.trim() {
        "ok" => Verdict::Pass,
        "FAILED" => Verdict::Fail,
        "ignored" => Verdict::Skip,
        _ => return None,
    };
    Some((name.to_string(), verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_log() {
        assert_eq!(
            cargo_case("test boot::tests::a ... ok"),
            Some(("boot::tests::a".to_string(), Verdict::Pass))
        );
        assert_eq!(
            cargo_case("test b ... FAILED"),
            Some(("b".to_string(), Verdict::Fail))
        );
        assert_eq!(cargo_case("running 3 tests"), None);
        assert_eq!(cargo_case("test result: ok. 3 passed; 0 failed"), None);
    }
}
