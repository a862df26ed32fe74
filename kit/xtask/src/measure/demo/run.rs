// SPDX-License-Identifier: GPL-2.0-only
//! Builds the kernels, boots host and guest, and runs the arms.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Result};
use tempfile::TempPath;

use super::args::Args;
use super::arm::{guests, Arm};
use super::reports::Reports;
use super::scripts::{DRAIN, GUEST, HOST};
use super::table::table;
use crate::guest::initramfs::Initramfs;
use crate::guest::pair::{fill, Pair};
use crate::guest::programs::{self, Programs};
use crate::host::env::Env;
use crate::host::progress::{self, Step};
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::{build, Bed, Flavour, Image, Sockmap};
use crate::kernel::prepare;

pub fn run(env: &Env, args: Args) -> Result<()> {
    if args.bytes.as_u64() == 0 {
        bail!("--bytes 0: there is nothing to send");
    }
    let (root, tree) = prepare::prepare_tree(env)?;
    let flavour = |bed, sockmap| Flavour {
        bed,
        sockmap,
        debug: false,
    };
    let machines = Machines {
        env,
        programs: programs::build(env, &root)?,
        host: build(env, &root, &tree, flavour(Bed::PairHost, Sockmap::Rust))?,
        root: &root,
    };
    let mut guests_built = Vec::new();
    for (sockmap, arms) in guests(&args.arms) {
        let image = build(env, &root, &tree, flavour(Bed::Qemu, sockmap))?;
        guests_built.push((image, arms));
    }
    // Another run may use the tree while this one boots.
    drop(tree);

    let mut ran = Vec::new();
    let mut problems = Vec::new();
    for (image, arms) in &guests_built {
        let (mut reports, wrong) = machines.boot(image, arms, &args)?;
        problems.extend(wrong);
        for arm in arms {
            let reports = reports.remove(arm).unwrap_or_default();
            ran.push((*arm, image.flavour.sockmap, reports));
        }
    }
    ran.sort_by_key(|(arm, ..)| *arm);
    let (table, failed) = table(&ran, args.bytes.as_u64());
    println!(
        "UNIX datagrams of 64 KiB in a guest, one thread, to a vsock server on its host, {}.\n\
         Redirector none: the sender writes to the vsock itself.\n",
        args.bytes
    );
    print!("{table}");
    problems.extend(failed);
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(())
}

/// All that a boot needs except the guest's kernel.
struct Machines<'a> {
    env: &'a Env,
    root: &'a ToolRoot,
    programs: Programs,
    host: Image,
}

impl Machines<'_> {
    /// Boots the host with a guest in it, and runs arms. Returns also what is wrong with the run as
    /// such.
    fn boot(
        &self,
        guest: &Image,
        arms: &[Arm],
        args: &Args,
    ) -> Result<(BTreeMap<Arm, Reports>, Vec<String>)> {
        let initramfs = self.initramfs(guest, args)?;
        let names: Vec<_> = arms.iter().map(|arm| arm.name()).collect();
        let arm_limit = args.limit + DRAIN + 20;
        let script = fill(
            HOST,
            &[
                ("GUEST", &self.programs.guest.display()),
                ("ARMS", &names.join(" ")),
                ("BYTES", &args.bytes.as_u64()),
                ("SERVER_LIMIT", &arm_limit),
            ],
        );
        let mut step = Step::new(&format!(
            "pair: {} of {} with the {} kernel in the guest",
            names.join(" and "),
            args.bytes,
            guest.flavour.sockmap.name()
        ));
        let mut reports = BTreeMap::new();
        let mut each_line = |line: &str| {
            Reports::read(&mut reports, line);
            step.at(line);
        };
        let pair = Pair {
            env: self.env,
            root: self.root,
            host: &self.host,
            guest,
            initramfs: &initramfs,
            args: &[],
            script: &script,
            limit: Duration::from_secs(arm_limit * arms.len() as u64),
        };
        let name = format!("pair-{}", guest.flavour.sockmap.name());
        let (outcome, problems) = pair.run(&name, &mut each_line)?;
        if problems.is_empty() {
            step.done();
        }
        progress::say(&format!("log: {}", outcome.log_path.display()));
        Ok((reports, problems))
    }

    fn initramfs(&self, guest: &Image, args: &Args) -> Result<TempPath> {
        let main = fill(
            GUEST,
            &[
                ("BYTES", &args.bytes.as_u64()),
                ("LIMIT", &args.limit),
                ("DRAIN", &DRAIN),
            ],
        );
        let mut initramfs = Initramfs::new(self.env, self.root, &main);
        initramfs
            .modules(guest)?
            .file("/bin/vsock-redirect", &self.programs.redirect, 0o755)
            .file("/bin/guest", &self.programs.guest, 0o755)
            .program("/usr/bin/socat", Path::new("/usr/bin/socat"))?;
        initramfs.build(guest)
    }
}
