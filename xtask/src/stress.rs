// SPDX-License-Identifier: GPL-2.0-only
//! `stress`: vsock sockets in and out of sockmaps at random, on the debug kernel.

use std::time::Duration;

use anyhow::{bail, Context, Result};

use crate::boot::{Boot, Outcome, System};
use crate::build::{build, Bed, Flavour, Image, Sockmap};
use crate::env::Env;
use crate::initramfs::Initramfs;
use crate::proc::{self, Step};
use crate::programs::{self, Programs};
use crate::toolroot::ToolRoot;
use crate::verbs::prepare_tree;

#[derive(clap::Args)]
pub struct Args {
    /// Of all decisions; the same again makes the same ones [default: a new one]
    #[arg(long)]
    pub seed: Option<u64>,
    /// How long, in seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    pub time: u64,
    /// Let allocations fail, about one in a hundred
    #[arg(long)]
    pub faults: bool,
}

/// Arguments: seed, time, and `--faults`.
const GUEST_MAIN: &str = r#"#!/bin/sh
if [ "$3" = --faults ]; then
    for i in failslab fail_page_alloc; do
        cd /sys/kernel/debug/$i || exit 1
        echo 0 > verbose
        # Only for tasks that ask for it: the threads of bed, and the workers of the loopback.
        echo Y > task-filter
        echo N > ignore-gfp-wait
        echo 50 > interval
        echo 50 > probability
        echo -1 > times
    done
    echo 0 > /sys/kernel/debug/fail_page_alloc/min-order
    for i in /proc/[0-9]*; do
        ! grep -q '^kworker' $i/comm || echo 1 > $i/make-it-fail
    done
fi
bed stress --seed $1 --time $2 $3 > /tmp/result
status=$?
for i in failslab fail_page_alloc; do
    [ ! -w /sys/kernel/debug/$i/times ] || echo 0 > /sys/kernel/debug/$i/times
done
cat /tmp/result
exit $status
"#;

/// Boots a kernel for a run, and fails if the program, or the kernel, complains.
pub fn run_on(
    env: &Env,
    root: &ToolRoot,
    image: &Image,
    programs: &Programs,
    args: &Args,
) -> Result<()> {
    let mut initramfs = Initramfs::new(env, root, GUEST_MAIN);
    initramfs
        .modules(image)?
        .leak_check()
        .file("/bin/bed", &programs.bed, 0o755);
    let archive = initramfs.build(image)?;
    let seed = args.seed.context("a seed")?;
    let mut guest_args = vec![seed.to_string(), args.time.to_string()];
    let mut name = "stress".to_string();
    if args.faults {
        guest_args.push("--faults".to_string());
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

/// What the program printed; it has no errors, or the exit status would not be 0.
fn said(outcome: &Outcome) -> Result<()> {
    let Some(line) = outcome.log.lines().find(|line| line.starts_with('{')) else {
        bail!(
            "the program printed nothing (log: {})",
            outcome.log_path.display()
        );
    };
    proc::say(line.trim_end());
    Ok(())
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
    drop(tree);
    let programs = programs::build(env, &root)?;
    run_on(env, &root, &image, &programs, &args)
}
