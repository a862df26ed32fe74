// SPDX-License-Identifier: GPL-2.0-only
//! The test bed qemu: both versions, on x86_64 in QEMU.

use anyhow::Result;

use super::compare::{area_of, side_by_side};
use super::guest::{boot, select, Guest};
use super::tally::Tally;
use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::suites::selftests::names::{OUR_TESTS, UPSTREAM};

/// Runs the selftests on `guests`, the first with the C and the second with the Rust version.
pub fn run(
    env: &Env,
    root: &ToolRoot,
    guests: [&Guest; 2],
    filter: Option<&str>,
    tally: &mut Tally,
) -> Result<()> {
    let tests = select(&[UPSTREAM, OUR_TESTS].concat(), filter);
    let mut results = Vec::new();
    for guest in guests {
        let area = guest.image.flavour.name();
        let (outcome, cases) = boot(env, root, guest, &tests)?;
        tally.must(&area, "the kernel's log is clean", outcome.clean());
        match cases {
            Ok(cases) => results.push(cases),
            Err(error) => {
                tally.must(&area, "test_progs", Err(error));
                results.push(Vec::new());
            }
        }
    }
    side_by_side(tally, "qemu", [&results[0], &results[1]], area_of);
    Ok(())
}
