// SPDX-License-Identifier: GPL-2.0-only
//! `stress`: puts vsock sockets into sockmaps and takes them out at random, on the debug kernel.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::guest::boot::{Boot, Outcome, System};
use crate::guest::initramfs::Initramfs;
use crate::guest::programs::{self, Programs};
use crate::host::env::Env;
use crate::host::progress::{self, Step};
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::{build, Bed, Flavour, Image, Sockmap};
use crate::kernel::prepare::prepare_tree;
use crate::suites::case::Verdict;
use crate::suites::selftests::{self, faults, results};

#[derive(clap::Args)]
pub struct Args {
    /// Set the seed: runs with the same seed make the same random decisions [default: a new one]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run for S seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub time: u64,
    /// Let allocations fail: one of every N, where the seed chooses N from 50 to 99
    #[arg(long)]
    pub faults: bool,
    /// Run the selftests of this series with failing allocations instead, again and again until the
    /// time is over; each run adds 1 to the seed
    #[arg(long)]
    pub selftests: bool,
}

/// The main program of the guest. Its arguments are the seed, the time, and `--faults` with the
/// interval.
const GUEST_MAIN: &str = r#"#!/bin/sh
@FAIL@
if [ "$3" = --faults ]; then
    for i in failslab fail_page_alloc; do
        echo $4 > /sys/kernel/debug/$i/interval
    done
    fail_allocations -1
fi
guest stress --seed $1 --time $2 $3 > /tmp/result
status=$?
for i in failslab fail_page_alloc; do
    [ ! -w /sys/kernel/debug/$i/times ] || echo 0 > /sys/kernel/debug/$i/times
done
cat /tmp/result
exit $status
"#;

const SELFTESTS_TIMEOUT: Duration = Duration::from_secs(400);

/// Boots a kernel for a run of the stress program. Returns an error if the program or the kernel
/// complains.
pub fn run_on(
    env: &Env,
    root: &ToolRoot,
    image: &Image,
    programs: &Programs,
    args: &Args,
) -> Result<()> {
    let main = GUEST_MAIN.replace("@FAIL@", faults::FAIL_ALLOCATIONS);
    let mut initramfs = Initramfs::new(env, root, &main);
    initramfs
        .modules(image)?
        .leak_check()
        .file("/bin/guest", &programs.guest, 0o755);
    let archive = initramfs.build(image)?;
    let seed = args.seed.context("a seed")?;
    let mut guest_args = vec![seed.to_string(), args.time.to_string()];
    let mut name = "stress".to_string();
    if args.faults {
        guest_args.extend(["--faults".to_string(), interval(seed).to_string()]);
        name.push_str("-faults");
    }
    let mut boot = Boot::new(image, System::Initramfs(&archive));
    boot.args = &guest_args;
    boot.timeout = Some(Duration::from_secs(args.time * 2 + 120));
    let step = Step::new(&format!("{name} with seed {seed} for {} s", args.time));
    let outcome = boot.run(env, root, &name)?;
    step.done();
    outcome.verdict()?;
    show_result(&outcome)
}

/// Boots a kernel for our selftests with allocations that fail. Returns an error if bytes are
/// wrong, if the kernel complains, or if the selftests at the end, without failures, do not pass.
pub fn selftests_on(
    env: &Env,
    root: &ToolRoot,
    image: &Image,
    programs: &Programs,
    test_progs: &Path,
    seed: u64,
) -> Result<()> {
    let mut initramfs = Initramfs::new(env, root, &faults::main());
    selftests::guest::add_to(&mut initramfs, test_progs)?;
    initramfs
        .modules(image)?
        .leak_check()
        .program("/selftests/libpreload.so", &programs.preload)?;
    let archive = initramfs.build(image)?;
    let guest_args = [seed.to_string()];
    let mut boot = Boot::new(image, System::Initramfs(&archive));
    boot.args = &guest_args;
    boot.timeout = Some(SELFTESTS_TIMEOUT);
    let step = Step::new(&format!("selftests with faults and seed {seed}"));
    let outcome = boot.run(env, root, "selftests-faults")?;
    step.done();
    let faults = faults::parse(&outcome.log);
    // If the kernel died, its complaint explains more than the missing end of the log.
    if faults.is_err() {
        outcome.clean()?;
    }
    let faults = faults?;
    progress::say(&format!(
        "{} allocations failed; {} subtests passed, {} failed, {} waited for an event that did not come",
        faults.faults,
        faults.passed,
        faults.errors,
        faults.waited.len()
    ));
    for name in &faults.waited {
        progress::say(&format!("waited for an event that did not come: {name}"));
    }
    outcome.clean()?;
    if !faults.wrong.is_empty() {
        bail!("wrong bytes: {}", faults.wrong.join("\n  "));
    }
    for case in results::parse(&outcome.log)? {
        if case.verdict != Verdict::Pass {
            bail!(
                "without failing allocations, {}: {}",
                case.name,
                case.why.join("; ")
            );
        }
    }
    outcome.verdict()
}

/// Shows the line that the stress program printed. It has no errors, or the exit status would not
/// be 0.
fn show_result(outcome: &Outcome) -> Result<()> {
    let Some(line) = outcome.log.lines().find(|line| line.starts_with('{')) else {
        bail!(
            "the program printed nothing (log: {})",
            outcome.log_path.display()
        );
    };
    progress::say(line.trim_end());
    Ok(())
}

/// Returns the interval of failures: one of so many allocations fails.
fn interval(seed: u64) -> u64 {
    50 + seed % 50
}

/// Returns a seed that was not used before.
pub fn new_seed() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |now| now.as_secs())
}

pub fn run(env: &Env, mut args: Args) -> Result<()> {
    args.seed = args.seed.or_else(|| Some(new_seed()));
    let (root, tree) = prepare_tree(env)?;
    let flavour = Flavour {
        bed: Bed::Um,
        sockmap: Sockmap::Rust,
        debug: true,
    };
    let image = build(env, &root, &tree, flavour)?;
    let programs = programs::build(env, &root)?;
    if args.selftests {
        let test_progs = selftests::build::ensure(env, &root, &tree, None)?;
        drop(tree);
        let mut seed = args.seed.context("a seed")?;
        let end = Instant::now() + Duration::from_secs(args.time);
        while Instant::now() < end {
            selftests_on(env, &root, &image, &programs, &test_progs, seed)?;
            seed += 1;
        }
        return Ok(());
    }
    drop(tree);
    run_on(env, &root, &image, &programs, &args)
}
