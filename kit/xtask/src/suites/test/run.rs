// SPDX-License-Identifier: GPL-2.0-only
//! Builds the kernels and runs the suites that are wanted.

use std::path::PathBuf;

use anyhow::Result;

use super::args::{Args, TestBed};
use super::guest::{debug, Guest};
use super::tally::Tally;
use super::{kit, qemu, um, vsock_test};
use crate::guest::programs::{self, Programs};
use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::{build, Bed, Sockmap};
use crate::kernel::prepare::prepare_tree;
use crate::kernel::tree::Tree;
use crate::suites::{oracle, selftests, stress, vmtest};

/// The programs of vsock_test in a map. A filter that is in none of these names leaves them out.
const VSOCK_TESTS: &[&str] = &["vsock_test", "vsock_perf", "socat"];

/// The stress program, without and with allocations that fail.
const STRESS: [(&str, bool); 2] = [("stress", false), ("stress with faults", true)];
const STRESS_SECONDS: u64 = 60;

/// Our selftests, in their error paths.
const FAULTS: &str = "selftests with allocations that fail";

pub fn run(env: &Env, args: Args) -> Result<()> {
    let mut tally = Tally::default();
    match (args.filter.as_deref(), args.bed) {
        (Some("vmtest"), _) => {
            for case in vmtest::run(env)? {
                tally.say_ours("vmtest", &case);
            }
        }
        (Some("vsock_test_both"), _) => vsock_test::with_both(env, &mut tally)?,
        _ => run_suites(env, &args, &mut tally)?,
    }
    tally.close()
}

fn run_suites(env: &Env, args: &Args, tally: &mut Tally) -> Result<()> {
    let filter = args.filter.as_deref();
    if args.bed.is_none() {
        kit::run(env, filter, tally)?;
    }
    // Everything that needs the work tree comes first: another run may use the tree while this one
    // boots.
    let (root, tree) = prepare_tree(env)?;
    let mut qemu_guests = Vec::new();
    if args.wants_bed(TestBed::Qemu) {
        for sockmap in [Sockmap::C, Sockmap::Rust] {
            let image = build(env, &root, &tree, debug(Bed::Qemu, sockmap))?;
            let test_progs = selftests::build::ensure(env, &root, &tree, Some(&image))?;
            qemu_guests.push(Guest { image, test_progs });
        }
    }
    let mut um_guest = None;
    if args.wants_bed(TestBed::Um) {
        let image = build(env, &root, &tree, debug(Bed::Um, Sockmap::Rust))?;
        let test_progs = selftests::build::ensure(env, &root, &tree, None)?;
        let guest = Guest { image, test_progs };
        let more = LongSuites::build(env, &root, &tree, args)?;
        um_guest = Some((guest, more));
    }
    drop(tree);

    if let Some((guest, more)) = &um_guest {
        um::run(env, &root, guest, filter, tally)?;
        if let Some(more) = more {
            more.run(env, &root, guest, args, tally)?;
        }
    }
    if let [c, rust] = &qemu_guests[..] {
        qemu::run(env, &root, [c, rust], filter, tally)?;
    }
    Ok(())
}

/// The suites of the test bed um that take longer.
struct LongSuites {
    vsock_tests: PathBuf,
    programs: Programs,
}

impl LongSuites {
    /// Builds the programs, if one of the suites is wanted.
    fn build(env: &Env, root: &ToolRoot, tree: &Tree, args: &Args) -> Result<Option<Self>> {
        let stress = STRESS.map(|(name, _)| name);
        if !args.wants_any(&[VSOCK_TESTS, &stress, &[FAULTS]].concat()) {
            return Ok(None);
        }
        Ok(Some(LongSuites {
            vsock_tests: oracle::build::ensure(env, root, tree)?,
            programs: programs::build(env, root)?,
        }))
    }

    fn run(
        &self,
        env: &Env,
        root: &ToolRoot,
        guest: &Guest,
        args: &Args,
        tally: &mut Tally,
    ) -> Result<()> {
        let Guest { image, test_progs } = guest;
        let LongSuites {
            vsock_tests,
            programs,
        } = self;
        if args.wants_any(VSOCK_TESTS) {
            vsock_test::with_rust(env, root, image, vsock_tests, programs, tally)?;
        }
        if args.wants_any(&[FAULTS]) {
            let seed = stress::new_seed();
            let result = stress::selftests_on(env, root, image, programs, test_progs, seed);
            tally.must("um rust", FAULTS, result);
        }
        for (name, faults) in STRESS {
            if args.wants_any(&[name]) {
                let args = stress::Args {
                    seed: Some(stress::new_seed()),
                    time: STRESS_SECONDS,
                    faults,
                    selftests: false,
                };
                let result = stress::run_on(env, root, image, programs, &args);
                tally.must("um rust", name, result);
            }
        }
        Ok(())
    }
}
