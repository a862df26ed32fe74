// SPDX-License-Identifier: GPL-2.0-only
//! The results that the guest prints.

use anyhow::{bail, Result};

use super::cases::OneCase;
use crate::guest::boot::Outcome;
use crate::suites::case::{Case, Verdict};

/// The mark before each result in the guest's console.
pub const RESULT: &str = "oracle:";

/// The mark before the name of a case that failed once.
pub const AGAIN: &str = "oracle-again:";

/// Returns the result of a guest that ran one case. If the guest did not come to its end, the case
/// has failed.
pub fn parse_one(case: &OneCase, outcome: &Outcome) -> Case {
    let failed = |why: String| Case {
        name: case.name.clone(),
        verdict: Verdict::Fail,
        why: vec![why],
    };
    if let Err(error) = outcome.clean() {
        return failed(format!("{error:#}"));
    }
    match parse(&outcome.log) {
        Ok(cases) => match &cases[..] {
            [result] if result.name == case.name => result.clone(),
            _ => failed(format!("{} results", cases.len())),
        },
        Err(error) => failed(format!("{error:#}")),
    }
}

/// Returns the results in a console log, with names like `MODE: CASE`. It is an error if the guest
/// did not come to its end.
pub fn parse(log: &str) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    let mut ended = false;
    let mut again = Vec::new();
    for line in log.lines().map(str::trim_end) {
        if let Some(name) = line.strip_prefix(AGAIN) {
            again.push(name.trim().to_string());
            continue;
        }
        if let Some(said) = line.strip_prefix("oracle| ") {
            if let Some(case) = cases.last_mut() {
                case.why.push(said.to_string());
            }
            continue;
        }
        let Some(result) = line.strip_prefix(RESULT) else {
            continue;
        };
        let mut words = result.trim().splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("end"), None, None) => ended = true,
            (Some(mode), Some(verdict), Some(name)) => cases.push(Case {
                name: format!("{mode}: {name}"),
                verdict: if verdict == "pass" {
                    Verdict::Pass
                } else {
                    Verdict::Fail
                },
                why: match again.pop() {
                    Some(_) if verdict == "pass" => vec!["at the second try".to_string()],
                    _ => Vec::new(),
                },
            }),
            _ => bail!("cannot understand {line:?}"),
        }
    }
    if !ended || cases.is_empty() {
        bail!(
            "vsock_test did not come to its end, after {} cases",
            cases.len()
        );
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_output_of_failures() {
        let log = "oracle: outside pass vsock_test A b\nnoise\noracle: pass fail vsock_test C\n\
                   oracle| server died\noracle: end\n";
        let cases = parse(log).unwrap();
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].name, "outside: vsock_test A b");
        assert_eq!(cases[0].verdict, Verdict::Pass);
        assert_eq!(cases[1].verdict, Verdict::Fail);
        assert_eq!(cases[1].why, ["server died"]);
    }

    #[test]
    fn a_second_try_is_told() {
        let log = "oracle-again: pass socat\noracle: pass pass socat\noracle: end\n";
        let cases = parse(log).unwrap();
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].verdict, Verdict::Pass);
        assert_eq!(cases[0].why, ["at the second try"]);
    }

    #[test]
    fn a_guest_that_stopped_is_an_error() {
        assert!(parse("oracle: outside pass vsock_test A\n").is_err());
        assert!(parse("oracle: end\n").is_err());
    }
}
