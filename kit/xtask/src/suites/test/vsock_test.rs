// SPDX-License-Identifier: GPL-2.0-only
//! vsock_test in a map: the kernel's vsock tests with each socket in a sockmap.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::compare::side_by_side;
use super::guest::debug;
use super::tally::Tally;
use crate::guest::boot::{Boot, System};
use crate::guest::programs::{self, Programs};
use crate::host::env::Env;
use crate::host::progress::Step;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::{build, Bed, Flavour, Image, Sockmap};
use crate::kernel::prepare::prepare_tree;
use crate::suites::oracle::{self, cases, guest, results};

/// How long a guest may take with all cases, and with one.
const ALL_CASES_TIMEOUT: Duration = Duration::from_secs(600);
const ONE_CASE_TIMEOUT: Duration = Duration::from_secs(80);

/// Runs all cases with the Rust version, in one guest.
pub fn with_rust(
    env: &Env,
    root: &ToolRoot,
    image: &Image,
    tests: &Path,
    programs: &Programs,
    tally: &mut Tally,
) -> Result<()> {
    let area = "um vsock_test";
    let mut initramfs = guest::initramfs(env, root, image, tests, programs)?;
    let archive = initramfs.leak_check().build(image)?;
    let args = guest::all();
    let mut boot = Boot::new(image, System::Initramfs(&archive));
    boot.args = &args;
    boot.timeout = Some(ALL_CASES_TIMEOUT);
    let step = Step::new("vsock_test in no map, in a map, and with a verdict that passes");
    let outcome = boot.run(env, root, "um-vsock-test")?;
    step.done();
    match results::parse(&outcome.log) {
        Ok(cases) => {
            for case in &cases {
                tally.say(case.verdict, area, &case.name, &case.why.join("; "));
            }
        }
        Err(error) => tally.must(area, "vsock_test", Err(error)),
    }
    tally.must(area, "the kernel's log is clean", outcome.clean());
    Ok(())
}

/// Runs all cases with both versions. Each case has its own guest, as some leave a task behind with
/// C that cannot be killed.
pub fn with_both(env: &Env, tally: &mut Tally) -> Result<()> {
    let (root, tree) = prepare_tree(env)?;
    let mut images = Vec::new();
    for sockmap in [Sockmap::C, Sockmap::Rust] {
        let flavour = Flavour {
            debug: false,
            ..debug(Bed::Um, sockmap)
        };
        images.push(build(env, &root, &tree, flavour)?);
    }
    let tests = oracle::build::ensure(env, &root, &tree)?;
    let programs = programs::build(env, &root)?;
    drop(tree);

    let cases = cases::cases(&root, &tests)?;
    let mut results = Vec::new();
    for image in &images {
        let archive = guest::initramfs(env, &root, image, &tests, &programs)?.build(image)?;
        let step = Step::new(&format!(
            "{} cases on {}",
            cases.len(),
            image.flavour.name()
        ));
        let mut of_image = Vec::new();
        for case in &cases {
            let args = guest::one(case);
            let mut boot = Boot::new(image, System::Initramfs(&archive));
            boot.args = &args;
            boot.timeout = Some(ONE_CASE_TIMEOUT);
            let name = format!("{}-{}-{}", image.flavour.name(), case.mode, case.id);
            let outcome = boot.run(env, &root, &name.replace(' ', "-"))?;
            of_image.push(results::parse_one(case, &outcome));
        }
        step.done();
        results.push(of_image);
    }
    side_by_side(tally, "um", [&results[0], &results[1]], |name| {
        let mode = name.split(':').next().unwrap_or(name);
        format!("vsock_test: {mode}")
    });
    Ok(())
}
