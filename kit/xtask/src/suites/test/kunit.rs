// SPDX-License-Identifier: GPL-2.0-only
//! KUnit, whose results are in the kernel's log.

use crate::suites::case::Verdict;

/// Returns `suite/case` and the verdict of all KUnit cases in a kernel log.
pub fn cases(log: &str) -> Vec<(String, Verdict)> {
    let mut cases = Vec::new();
    let mut suite = String::new();
    for line in log.lines() {
        // With printk times: "[    0.1]     ok 1 name".
        let line = match line
            .strip_prefix('[')
            .and_then(|line| line.split_once("] "))
        {
            Some((_, line)) => line,
            None => line,
        };
        if let Some(name) = line.strip_prefix("    # Subtest: ") {
            suite = name.trim().to_string();
        } else if let Some(result) = line.strip_prefix("    ") {
            let (verdict, rest) = if let Some(rest) = result.strip_prefix("ok ") {
                (Verdict::Pass, rest)
            } else if let Some(rest) = result.strip_prefix("not ok ") {
                (Verdict::Fail, rest)
            } else {
                continue;
            };
            let Some((number, name)) = rest.trim().split_once(' ') else {
                continue;
            };
            if number.parse::<u32>().is_err() || suite.is_empty() {
                continue;
            }
            let (name, verdict) = match name.split_once(" # SKIP") {
                Some((name, _)) => (name, Verdict::Skip),
                None => (name, verdict),
            };
            cases.push((format!("{suite}/{name}"), verdict));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kunit_log() {
        let log = "\
KTAP version 1
    KTAP version 1
    # Subtest: vsock_sockmap_recv
    1..2
    ok 1 data_goes_first
[    0.100000]     not ok 2 waits
    ok 3 later # SKIP no reason
ok 1 vsock_sockmap_recv
";
        let cases = cases(log);
        let got: Vec<_> = cases
            .iter()
            .map(|(name, verdict)| (&name[..], *verdict))
            .collect();
        assert_eq!(
            got,
            [
                ("vsock_sockmap_recv/data_goes_first", Verdict::Pass),
                ("vsock_sockmap_recv/waits", Verdict::Fail),
                ("vsock_sockmap_recv/later", Verdict::Skip),
            ]
        );
    }
}
