// SPDX-License-Identifier: GPL-2.0-only
//! `stress`: vsock sockets in and out of sockmaps at random, on the debug kernel.

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
use crate::suites::selftests::{self, Verdict};

#[derive(clap::Args)]
pub struct Args {
    /// Of all decisions; the same again makes the same ones [default: a new one]
    #[arg(long)]
    pub seed: Option<u64>,
    /// How long, in seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub time: u64,
    /// Let allocations fail, one in 50 to 99 as the seed has it
    #[arg(long)]
    pub faults: bool,
    /// Instead, run our selftests with allocations that fail, again and again with a seed one higher
    #[arg(long)]
    pub selftests: bool,
}

/// Arguments: seed, time, and `--faults` with the interval.
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

/// Boots a kernel for a run, and fails if the program, or the kernel, complains.
pub fn run_on(
    env: &Env,
    root: &ToolRoot,
    image: &Image,
    programs: &Programs,
    args: &Args,
) -> Result<()> {
    let main = GUEST_MAIN.replace("@FAIL@", selftests::FAIL_ALLOCATIONS);
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
    said(&outcome)
}

/// Boots a kernel for our selftests with allocations that fail, and fails if bytes are wrong, the
/// kernel complains, or they do not pass when the allocations no longer fail.
pub fn selftests_on(
    env: &Env,
    root: &ToolRoot,
    image: &Image,
    programs: &Programs,
    test_progs: &Path,
    seed: u64,
) -> Result<()> {
    let mut initramfs = Initramfs::new(env, root, &selftests::faults_main());
    selftests::add_to(&mut initramfs, test_progs)?;
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
    let faults = selftests::parse_faults(&outcome.log);
    // A kernel that died says more than a log that has no end.
    if faults.is_err() {
        outcome.clean()?;
    }
    let faults = faults?;
    progress::say(&format!(
        "{} allocations failed; {} subtests passed, {} failed, {} waited in vain",
        faults.faults,
        faults.passed,
        faults.errors,
        faults.waited.len()
    ));
    for name in &faults.waited {
        progress::say(&format!("waited in vain: {name}"));
    }
    outcome.clean()?;
    if !faults.wrong.is_empty() {
        bail!("wrong bytes: {}", faults.wrong.join("\n  "));
    }
    for case in selftests::parse(&outcome.log)? {
        if case.verdict != Verdict::Pass {
            bail!("afterwards {}: {}", case.name, case.why.join("; "));
        }
    }
    outcome.verdict()
}

/// What the program printed; it has no errors, or the exit status would not be 0.
fn said(outcome: &Outcome) -> Result<()> {
    let Some(line) = outcome.log.lines().find(|line| line.starts_with('{')) else {
        bail!(
            "the program printed nothing (log: {})",
            outcome.log_path.display()
        );
    };
    progress::say(line.trim_end());
    Ok(())
}

/// Every so many'th allocation fails.
fn interval(seed: u64) -> u64 {
    50 + seed % 50
}

/// A seed that is not used again.
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
        let test_progs = selftests::ensure(env, &root, &tree, None)?;
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
