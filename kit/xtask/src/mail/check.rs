// SPDX-License-Identifier: GPL-2.0-only
//! The verb `check`: style, lints, and that the series gives the work tree.
//!
//! All checks run the programs of the tool root, so that they give the same answer on each machine.

use std::time::Instant;

use anyhow::{bail, ensure, Result};

use crate::host::env::Env;
use crate::kernel::prepare;
use crate::mail::checks::subject::Subject;
use crate::mail::checks::{docs, imports, kernel, kit, series, texts};

/// The options of the verb.
#[derive(clap::Args)]
pub struct Args {
    /// Run only the checks whose names contain FILTER
    filter: Option<String>,
}

/// A check. Returns a note on what it looked at, or an error that says what to correct.
type Check = fn(&Subject) -> Result<String>;

/// The checks by name, the fast ones first.
const CHECKS: &[(&str, Check)] = &[
    ("manifest", series::manifest),
    ("places", texts::places),
    ("imports", imports::check),
    ("kernel-rustfmt", kernel::rustfmt),
    ("kit-rustfmt", kit::rustfmt),
    ("series", series::git_am),
    ("checkpatch", series::checkpatch),
    ("spelling", texts::spelling),
    ("maintainers", series::maintainers),
    ("htmldocs", docs::htmldocs),
    ("benchmarks", docs::benchmarks),
    ("kit-clippy", kit::clippy),
    ("kernel-clippy", kernel::lints),
];

/// Runs the verb.
pub fn run(env: &Env, args: Args) -> Result<()> {
    let wanted = |name: &str| {
        args.filter
            .as_ref()
            .is_none_or(|filter| name.contains(filter.as_str()))
    };
    let checks: Vec<_> = CHECKS.iter().filter(|(name, _)| wanted(name)).collect();
    if checks.is_empty() {
        let names: Vec<_> = CHECKS.iter().map(|(name, _)| *name).collect();
        bail!(
            "no check has this in its name; choose from: {}",
            names.join(", ")
        );
    }
    let (root, tree) = prepare::prepare_tree(env)?;
    let subject = Subject::new(env, root, tree);
    let mut failed = 0;
    for (name, check) in &checks {
        let start = Instant::now();
        match check(&subject) {
            Ok(note) => {
                let seconds = start.elapsed().as_secs_f32();
                println!("PASS {name}: {note} ({seconds:.1} s)");
            }
            Err(error) => {
                failed += 1;
                println!(
                    "FAIL {name}: {}",
                    format!("{error:#}").replace('\n', "\n     ")
                );
            }
        }
    }
    println!("{} passed, {failed} failed", checks.len() - failed);
    ensure!(
        failed == 0,
        "{failed} of {} checks failed; correct what they report",
        checks.len()
    );
    Ok(())
}
