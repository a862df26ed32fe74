// SPDX-License-Identifier: GPL-2.0-only
//! The test bed um: the Rust version, on User-Mode Linux.

use anyhow::Result;

use super::guest::{boot, select, Guest};
use super::kunit;
use super::tally::Tally;
use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::suites::case::Verdict;
use crate::suites::selftests::names::{OURS, OUR_TESTS};

/// The KUnit suite of the series.
const KUNIT_SUITE: &str = "vsock_sockmap_credit";

/// Runs KUnit and our selftest.
pub fn run(
    env: &Env,
    root: &ToolRoot,
    guest: &Guest,
    filter: Option<&str>,
    tally: &mut Tally,
) -> Result<()> {
    let area = "um rust";
    let (outcome, cases) = boot(env, root, guest, &select(OUR_TESTS, filter))?;

    let kunit = kunit::cases(&outcome.log);
    for (name, verdict) in &kunit {
        if filter.is_none_or(|filter| name.contains(filter)) {
            tally.say(*verdict, "um kunit", name, "");
        }
    }
    if !kunit.iter().any(|(name, _)| name.starts_with(KUNIT_SUITE)) {
        tally.say(Verdict::Fail, "um kunit", KUNIT_SUITE, "did not run");
    }
    match cases {
        Ok(cases) => cases.iter().for_each(|case| tally.say_ours(area, case)),
        Err(error) => tally.must(area, OURS, Err(error)),
    }
    tally.must(area, "the kernel's log is clean", outcome.clean());
    Ok(())
}
