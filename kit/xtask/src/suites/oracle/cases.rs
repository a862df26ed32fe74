// SPDX-License-Identifier: GPL-2.0-only
//! The cases: each test in each mode.

use std::path::Path;

use anyhow::Result;

use crate::host::proc;
use crate::host::toolroot::ToolRoot;

/// The modes in which a test runs: with its sockets in no map, in a map without a program, and in a
/// map whose program passes everything.
pub const MODES: &[&str] = &["outside", "map", "pass"];

/// A case in one mode.
#[derive(Clone, Debug)]
pub struct OneCase {
    pub mode: &'static str,
    /// How the guest's main program selects the test: by its number or its name.
    pub id: String,
    /// The name in the results.
    pub name: String,
}

/// Returns all cases.
pub fn cases(root: &ToolRoot, tests: &Path) -> Result<Vec<OneCase>> {
    // With --list, vsock_test ends with a bad status.
    let mut list = root.command(tests, "sh");
    list.args(["-c", "./vsock_test --list || :"]);
    let mut programs = listed(&proc::output(list)?);
    for (id, name) in [
        ("vsock_perf", "vsock_perf"),
        ("socat_copies", "socat"),
        ("socat_answers", "socat, both directions"),
    ] {
        programs.push((id.to_string(), name.to_string()));
    }
    let mut cases = Vec::new();
    for mode in MODES {
        cases.extend(programs.iter().map(|(id, name)| OneCase {
            mode,
            id: id.clone(),
            name: format!("{mode}: {name}"),
        }));
    }
    Ok(cases)
}

/// Parses the output of `vsock_test --list`: numbers and names, after a headline.
fn listed(output: &str) -> Vec<(String, String)> {
    let lines = output.lines().skip(1).filter_map(|line| {
        let (id, name) = line.trim().split_once(char::is_whitespace)?;
        Some((id.to_string(), format!("vsock_test {}", name.trim())))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_cases() {
        let list = "ID\tTest name\n0\tSOCK_STREAM connection reset\n1\tSOCK_STREAM bind only\n";
        let cases = listed(list);
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].0, "0");
        assert_eq!(cases[1].1, "vsock_test SOCK_STREAM bind only");
    }
}
