// SPDX-License-Identifier: GPL-2.0-only
//! Builds the kernels, measures with each, and shows the results.

use std::process::Command;

use anyhow::{bail, Result};

use super::args::Args;
use super::guest::{Guest, Host};
use super::work::{Work, BOOTS};
use crate::guest::machine::kvm_works;
use crate::guest::programs::{self, Programs};
use crate::host::env::Env;
use crate::host::progress::{self, Step};
use crate::host::toolroot::ToolRoot;
use crate::host::{files::write_atomic, proc};
use crate::kernel::build::{build, Bed, Flavour, Image, Sockmap};
use crate::kernel::prepare::prepare_tree;
use crate::kernel::source::Source;
use crate::kernel::tree::{self, Tree};
use crate::measure::figures::measured::Measured;
use crate::measure::figures::results::{Failed, Results, Setup};
use crate::measure::figures::rows::{rows, Unit};
use crate::measure::figures::{goals, table};
use crate::measure::{plot, report};

pub fn run(env: &Env, args: Args) -> Result<()> {
    if let Some(file) = &args.report {
        return report::write(&env.repo, file);
    }
    let (root, tree) = prepare_tree(env)?;
    let builder = Builder {
        env,
        root: &root,
        programs: programs::build(env, &root)?,
    };
    let host = match args.bed {
        Bed::PairHost => Some(builder.host(&tree)?),
        Bed::Um | Bed::Qemu => None,
    };
    let guest = |tree: &Tree, sockmap| builder.guest(tree, args.bed, sockmap, host.as_ref());
    let ours = [guest(&tree, Sockmap::Rust)?, guest(&tree, Sockmap::C)?];
    let source = tree.source.clone();
    // Another run may use the tree while this one boots.
    drop(tree);
    let pristine = if args.no_pristine {
        None
    } else {
        let tree = tree::pristine(env, source.clone())?;
        Some(guest(&tree, Sockmap::Pristine)?)
    };

    let mut session = Session::default();
    let all = Work::new(&args);
    let mut pieces = Work::in_pieces(&args);
    for _ in 0..BOOTS {
        for guest in &ours {
            session.measure(env, guest, &all)?;
        }
        if let Some(guest) = &pristine {
            pieces = session.measure_in_pieces(guest, pieces)?;
        }
    }
    let results = Results {
        setup: setup(&args, &all, &source, session.failed)?,
        measurements: session.measured,
    };
    show(env, &results)
}

/// Builds kernels and their guests.
struct Builder<'a> {
    env: &'a Env,
    root: &'a ToolRoot,
    programs: Programs,
}

impl<'a> Builder<'a> {
    fn image(&self, tree: &Tree, bed: Bed, sockmap: Sockmap) -> Result<Image> {
        let flavour = Flavour {
            bed,
            sockmap,
            debug: false,
        };
        build(self.env, self.root, tree, flavour)
    }

    fn host(&self, tree: &Tree) -> Result<Host> {
        let image = self.image(tree, Bed::PairHost, Sockmap::Rust)?;
        Ok(Host::new(image, &self.programs))
    }

    fn guest(
        &self,
        tree: &Tree,
        bed: Bed,
        sockmap: Sockmap,
        host: Option<&'a Host>,
    ) -> Result<Guest<'a>> {
        let bed = if host.is_some() { Bed::Qemu } else { bed };
        let image = self.image(tree, bed, sockmap)?;
        Guest::new(self.env, self.root, image, &self.programs, host)
    }
}

/// Collects what the guests measure.
#[derive(Default)]
struct Session {
    measured: Vec<Measured>,
    failed: Vec<Failed>,
}

impl Session {
    /// Boots a kernel of the series for all the work. A boot that does not go well is an error.
    fn measure(&mut self, env: &Env, guest: &Guest, work: &Work) -> Result<()> {
        let kernel = guest.image.flavour.sockmap.name();
        let mut step = Step::new(&format!("measure with the {kernel} kernel"));
        let log = format!("bench-{kernel}");
        let (lines, verdict) = guest.measure(work, &log, &mut step)?;
        verdict?;
        step.done();
        if lines.is_empty() {
            let log = env.logs.join(log);
            bail!(
                "the guest measured nothing (log: {}.console)",
                log.display()
            );
        }
        self.measured.extend(lines);
        Ok(())
    }

    /// Boots the pristine kernel for each piece of the work. Returns the pieces that went well: one
    /// that failed would fail again, and take its time.
    fn measure_in_pieces(&mut self, guest: &Guest, pieces: Vec<Work>) -> Result<Vec<Work>> {
        let mut step = Step::new("measure with the pristine kernel");
        let mut left = Vec::new();
        for work in pieces {
            let name = work.name();
            let log = format!("bench-pristine-{}", name.replace([' ', ','], "-"));
            let (lines, verdict) = guest.measure(&work, &log, &mut step)?;
            match verdict {
                Ok(()) => {
                    self.measured.extend(lines);
                    left.push(work);
                }
                Err(error) => self.failed.push(Failed {
                    what: name,
                    why: format!("{error:#}"),
                }),
            }
        }
        step.done();
        Ok(left)
    }
}

fn setup(args: &Args, work: &Work, source: &Source, failed: Vec<Failed>) -> Result<Setup> {
    let mut date = Command::new("date");
    date.args(["-u", "+%F"]);
    Ok(Setup {
        bed: args.bed.name().to_string(),
        date: proc::output(date)?.trim().to_string(),
        source: source.version.clone(),
        processors: std::thread::available_parallelism()?.get(),
        kvm: args.bed == Bed::Qemu && kvm_works(),
        rounds: work.rounds * BOOTS,
        time_ms: work.time,
        paths: args.paths.clone(),
        failed,
    })
}

/// Writes the JSON file and the plots to build/bench/, and prints the tables.
fn show(env: &Env, results: &Results) -> Result<()> {
    let Setup {
        bed, rounds, paths, ..
    } = &results.setup;
    let rows = rows(&results.measurements, paths);
    let dir = env.repo.join(report::NEW_RESULTS);
    let file = dir.join(format!("{bed}.json"));
    results.write(&file)?;
    let mut plots = Vec::new();
    for (name, svg) in plot::all(bed, paths, &rows)? {
        write_atomic(&dir.join(&name), svg.as_bytes())?;
        plots.push(name);
    }

    let way = match results.is_loopback() {
        true => "loopback",
        false => "between guest and host",
    };
    println!("bed {bed}, {way}, medians of {rounds}");
    for unit in Unit::ALL {
        let table = table::table(&rows, unit);
        if !table.is_empty() {
            print!("\n{table}");
        }
    }
    for Failed { what, why } in &results.setup.failed {
        println!("\npristine kernel, {what}: no figure, since {why}");
    }
    let incomplete = table::incomplete(&results.measurements);
    if !incomplete.is_empty() {
        println!("\nbytes that were missing at the time limit:");
        incomplete.iter().for_each(|line| println!("  {line}"));
    }
    let judgements = goals::judge(&rows, results.is_loopback());
    print!("\n{}", goals::table(&judgements));
    progress::say(&format!("figures: {}", file.display()));
    progress::say(&format!("plots: {}", plots.join(" ")));
    Ok(())
}
