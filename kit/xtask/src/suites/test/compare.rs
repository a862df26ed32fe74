// SPDX-License-Identifier: GPL-2.0-only
//! The C and the Rust version, side by side.

use std::collections::BTreeMap;

use super::tally::Tally;
use crate::suites::case::{Case, Verdict};
use crate::suites::selftests::names::OURS;

/// Upstream cases that fail or are skipped with both versions, and the reasons.
const KNOWN: &[(&str, &str)] = &[];

/// Prints the cases of the C and the Rust version, and how many passed in each area.
pub fn side_by_side(
    tally: &mut Tally,
    bed: &str,
    [c, rust]: [&[Case]; 2],
    area_of: impl Fn(&str) -> String,
) {
    let rust: BTreeMap<&str, &Case> = rust.iter().map(|case| (&*case.name, case)).collect();
    let c_names: BTreeMap<&str, &Case> = c.iter().map(|case| (&*case.name, case)).collect();
    println!("case by case, C / Rust:");
    let mut areas: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut row = |tally: &mut Tally, c: Option<&Case>, rust: Option<&Case>| {
        compare(tally, bed, c, rust);
        let passed = |case: Option<&Case>| case.is_some_and(|case| case.verdict == Verdict::Pass);
        if let Some(case) = c.or(rust) {
            let counts = areas.entry(area_of(&case.name)).or_default();
            counts[0] += 1;
            counts[1] += usize::from(passed(c));
            counts[2] += usize::from(passed(rust));
        }
    };
    for case in c {
        row(tally, Some(case), rust.get(&*case.name).copied());
    }
    for case in rust.values() {
        if !c_names.contains_key(&*case.name) {
            row(tally, None, Some(case));
        }
    }
    println!("{:<44}{:>6}{:>8}{:>8}", "area", "cases", "C", "Rust");
    for (area, [cases, c, rust]) in &areas {
        println!("{area:<44}{cases:>6}{c:>8}{rust:>8}");
    }
}

/// Returns the area of a case: its test, and for ours also the subject.
pub fn area_of(name: &str) -> String {
    match name.split_once('/') {
        Some((test, subtest)) if test.starts_with(OURS) => {
            let about = subtest.split(':').next().unwrap_or(subtest);
            format!("{test}: {about}")
        }
        Some((test, _)) => test.to_string(),
        None => name.to_string(),
    }
}

/// Prints and counts the results of the two kernels as one case, which passes if Rust's does.
fn compare(tally: &mut Tally, bed: &str, c: Option<&Case>, rust: Option<&Case>) {
    let Some(name) = c.or(rust).map(|case| &*case.name) else {
        return;
    };
    let verdict = |case: Option<&Case>| case.map(|case| case.verdict);
    let word = |case: Option<&Case>| match verdict(case) {
        Some(Verdict::Pass) => "pass",
        Some(Verdict::Fail) => "FAIL",
        Some(Verdict::Skip) => "skip",
        None => "absent",
    };
    let area = format!("{bed} {:>4} / {:<4}", word(c), word(rust));
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    let ours = name.starts_with(OURS);
    let (result, why) = match (verdict(c), verdict(rust)) {
        // Ours must not fail with C either: what C cannot do is skipped there.
        (Some(Verdict::Fail), _) if ours => {
            (Verdict::Fail, c.map_or(String::new(), |c| c.why.join("; ")))
        }
        (_, Some(Verdict::Pass)) => (Verdict::Pass, String::new()),
        (Some(Verdict::Fail | Verdict::Skip), Some(Verdict::Fail | Verdict::Skip))
            if known.is_some() && !ours =>
        {
            let reason = known.map_or("", |(_, reason)| reason);
            (Verdict::Skip, format!("both: {reason}"))
        }
        (_, rust_verdict) => {
            let why = match rust_verdict {
                None => "did not run".to_string(),
                _ => rust.map_or(String::new(), |case| case.why.join("; ")),
            };
            (Verdict::Fail, why)
        }
    };
    tally.say(result, &area, name, &why);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas() {
        assert_eq!(area_of("sockmap_basic/a: b"), "sockmap_basic");
        assert_eq!(area_of("sockmap_strp"), "sockmap_strp");
        assert_eq!(
            area_of("vsock_sockmap_outside/as outside: stream: pass: peek"),
            "vsock_sockmap_outside: as outside"
        );
    }

    fn case(name: &str, verdict: Verdict) -> Case {
        Case {
            name: name.to_string(),
            verdict,
            why: Vec::new(),
        }
    }

    /// Passed, failed and skipped for one row.
    fn row(name: &str, c: Option<Verdict>, rust: Option<Verdict>) -> (usize, usize, usize) {
        let mut tally = Tally::default();
        let c = c.map(|verdict| case(name, verdict));
        let rust = rust.map(|verdict| case(name, verdict));
        compare(&mut tally, "qemu", c.as_ref(), rust.as_ref());
        (tally.passed, tally.failed, tally.skipped)
    }

    #[test]
    fn rust_must_pass_what_c_passes() {
        use Verdict::*;
        assert_eq!(row("sockmap_redir/a", Some(Pass), Some(Pass)), (1, 0, 0));
        assert_eq!(row("sockmap_redir/a", Some(Pass), Some(Fail)), (0, 1, 0));
        assert_eq!(row("sockmap_redir/a", Some(Pass), Some(Skip)), (0, 1, 0));
        assert_eq!(row("sockmap_redir/a", Some(Pass), None), (0, 1, 0));
        assert_eq!(row("sockmap_redir/a", Some(Fail), Some(Pass)), (1, 0, 0));
        assert_eq!(row("sockmap_redir/a", Some(Fail), Some(Fail)), (0, 1, 0));
    }

    #[test]
    fn ours_is_skipped_only_with_c() {
        use Verdict::*;
        assert_eq!(row("vsock_sockmap/a", Some(Skip), Some(Pass)), (1, 0, 0));
        assert_eq!(row("vsock_sockmap/a", Some(Fail), Some(Pass)), (0, 1, 0));
        assert_eq!(row("vsock_sockmap/a", Some(Skip), Some(Skip)), (0, 1, 0));
    }
}
