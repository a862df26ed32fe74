// SPDX-License-Identifier: GPL-2.0-only
//! The results that test_progs prints.

use anyhow::{bail, Result};

use crate::suites::case::{Case, Verdict};

/// Returns the cases in the output of test_progs, in their order. It is an error if cases are
/// missing: the last line of the output counts them.
pub fn parse(log: &str) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    let mut why = Vec::new();
    let mut counted = None;
    for line in log.lines().map(str::trim_end) {
        if let Some(counts) = parse_summary(line) {
            counted = Some(counts);
        } else if let Some((name, verdict)) = parse_result(line) {
            let mut why = std::mem::take(&mut why);
            if verdict != Verdict::Fail {
                why.clear();
            }
            // A test is a case of its own if it has no subtests, or failed outside of them.
            let prefix = format!("{name}/");
            let known = cases.iter().any(|case| {
                case.name.starts_with(&prefix)
                    && (verdict != Verdict::Fail || case.verdict == Verdict::Fail)
            });
            if !known {
                cases.push(Case {
                    name: name.to_string(),
                    verdict,
                    why,
                });
            }
        } else if line.contains(":FAIL:") {
            why.push(line.to_string());
        }
    }
    let Some(counted) = counted else {
        bail!("test_progs did not come to its end");
    };
    let count = |verdict, subtests: bool| {
        let of = cases.iter().filter(|case| case.verdict == verdict);
        of.filter(|case| !subtests || case.name.contains('/'))
            .count()
    };
    let found = Counts {
        passed: count(Verdict::Pass, true),
        skipped: count(Verdict::Skip, false),
        failed: count(Verdict::Fail, true),
    };
    if found != counted {
        bail!("test_progs counted {counted:?}, but its log has {found:?}");
    }
    Ok(cases)
}

/// How many cases there are of each verdict. Only the skipped cases include tests without subtests.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    passed: usize,
    skipped: usize,
    failed: usize,
}

/// Parses `Summary: 1/19 PASSED, 28 SKIPPED, 0/0 FAILED`, where the second number counts subtests.
fn parse_summary(line: &str) -> Option<Counts> {
    let mut counts = line.strip_prefix("Summary: ")?.split(", ");
    let mut next = |what: &str| counts.next()?.strip_suffix(what);
    let (passed, skipped, failed) = (next(" PASSED")?, next(" SKIPPED")?, next(" FAILED")?);
    Some(Counts {
        passed: passed.split_once('/')?.1.parse().ok()?,
        skipped: skipped.parse().ok()?,
        failed: failed.split_once('/')?.1.parse().ok()?,
    })
}

/// Parses `#6/31    test/subtest:OK` or `#6       test:OK (SKIP: 28/47)`.
pub fn parse_result(line: &str) -> Option<(&str, Verdict)> {
    let (number, rest) = line.strip_prefix('#')?.split_once(' ')?;
    if !number.split('/').all(|part| part.parse::<u32>().is_ok()) {
        return None;
    }
    let rest = rest.split(" (SKIP: ").next().unwrap_or(rest);
    // A name can have colons.
    let (name, result) = rest.trim_start().rsplit_once(':')?;
    let verdict = match result {
        "OK" => Verdict::Pass,
        "FAIL" => Verdict::Fail,
        "SKIP" => Verdict::Skip,
        _ => return None,
    };
    Some((name, verdict))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
#1/1     sockmap_basic/sockmap create_update_free:OK
#1/2     sockmap_basic/sockmap copy:SKIP
#1       sockmap_basic:OK (SKIP: 1/2)
test_pass:PASS:open_and_load 0 nsec
expect_bytes:FAIL:recv unexpected recv: actual -1 <= expected 0
#2/1     vsock_sockmap_redir/redirect: unix dgram to vsock stream, egress:FAIL
#2/2     vsock_sockmap_redir/redirect small writes of tcp:OK
#2       vsock_sockmap_redir:FAIL
#3       lonely:OK
#4       skipped:SKIP
Summary: 2/2 PASSED, 2 SKIPPED, 1/1 FAILED
";

    fn names(cases: &[Case], verdict: Verdict) -> Vec<&str> {
        let of = cases.iter().filter(|case| case.verdict == verdict);
        of.map(|case| case.name.as_str()).collect()
    }

    #[test]
    fn each_case_with_its_verdict() {
        let cases = parse(LOG).unwrap();
        assert_eq!(
            names(&cases, Verdict::Pass),
            [
                "sockmap_basic/sockmap create_update_free",
                "vsock_sockmap_redir/redirect small writes of tcp",
                "lonely"
            ]
        );
        assert_eq!(
            names(&cases, Verdict::Skip),
            ["sockmap_basic/sockmap copy", "skipped"]
        );
        assert_eq!(
            names(&cases, Verdict::Fail),
            ["vsock_sockmap_redir/redirect: unix dgram to vsock stream, egress"]
        );
        for case in &cases {
            assert_eq!(case.why.len(), usize::from(case.verdict == Verdict::Fail));
        }
    }

    #[test]
    fn failure_outside_of_the_subtests() {
        let log = "#1/1  a/b:OK\nserial_test_a:FAIL:attach\n#1  a:FAIL\n\
                   Summary: 0/1 PASSED, 0 SKIPPED, 1/0 FAILED\n";
        let cases = parse(log).unwrap();
        assert_eq!(names(&cases, Verdict::Fail), ["a"]);
        assert_eq!(names(&cases, Verdict::Pass), ["a/b"]);
    }

    #[test]
    fn lost_lines_are_an_error() {
        let lost = LOG.replace(
            "#2/2     vsock_sockmap_redir/redirect small writes of tcp:OK\n",
            "",
        );
        assert!(parse(&lost).unwrap_err().to_string().contains("counted"));
        let cut = &LOG[..LOG.find("#3").unwrap()];
        assert!(parse(cut).unwrap_err().to_string().contains("its end"));
    }

    #[test]
    fn other_lines_are_no_results() {
        for line in [
            "# a:OK",
            "#1 a",
            "#x a:OK",
            "a:OK",
            "#1/x a/b:OK",
            "#1 a:PASS",
        ] {
            assert_eq!(parse_result(line), None, "{line}");
        }
    }
}
