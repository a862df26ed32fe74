// SPDX-License-Identifier: GPL-2.0-only
//! `bench`: how fast the ways to move bytes between sockets are, next to each other.
//!
//! Both ends of each connection are in one guest, so that vsock is its loopback; on the bed `pair`
//! the far ends of the vsocks are on the guest's host. The guest takes turns with the arms. The C
//! and the Rust sockmap need a kernel each, so their boots take turns as well, and what both have,
//! the copy loop, tells how alike the two boots are.
//!
//! The third kernel is the source without the series. There a redirect can stop, spin or eat the
//! memory, so each measurement has a boot of its own, and one that fails is only told.

mod figures;
mod plot;

use std::path::Path;
use std::time::Duration;

use anyhow::{anyhow, bail, Result};
use serde::Serialize;
use tempfile::TempPath;

use self::figures::{Judged, Line, Measured, Row, Unit};
use crate::guest::boot::{Boot, System};
use crate::guest::initramfs::Initramfs;
use crate::guest::pair::{said, Pair};
use crate::guest::programs::{self, Programs};
use crate::host::env::Env;
use crate::host::files::write_atomic;
use crate::host::progress::{self, Step};
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::{build, Bed, Flavour, Image, Sockmap};
use crate::kernel::prepare::prepare_tree;
use crate::kernel::tree::{self, Tree};

#[derive(clap::Args)]
pub struct Args {
    /// What kind of machine
    #[arg(long, value_enum, default_value = "um")]
    bed: Bed,
    /// From which socket to which
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "unix-dgram-to-vsock,unix-stream-to-vsock,tcp-to-vsock,udp-to-vsock,\
                         vsock-to-unix-stream,vsock-to-tcp,vsock-to-vsock"
    )]
    paths: Vec<String>,
    /// Bytes of each write
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "64,512,4096,65536,262144"
    )]
    sizes: Vec<usize>,
    /// How many at once
    #[arg(long, value_delimiter = ',', default_value = "1")]
    connections: Vec<usize>,
    /// Medians are of so many
    #[arg(long, default_value_t = 6)]
    rounds: u32,
    /// How many round trips of 64 bytes are a round of them
    #[arg(long, default_value_t = 500)]
    trips: usize,
    /// How long a measurement of the copy loop takes [default: 200, or 1000 where it is emulated]
    #[arg(long, value_name = "MS")]
    time: Option<u64>,
    /// Leave out the kernel without the series
    #[arg(long)]
    no_pristine: bool,
}

/// In how many boots of each kernel the rounds are.
const BOOTS: u32 = 2;

const VMADDR_CID_HOST: u32 = 2;

const GUEST_MAIN: &str = "#!/bin/sh\n\
    for i in vsock vsock_loopback vmw_vsock_virtio_transport vsockmon; do modprobe -q $i; done\n\
    ip link add vsockmon type vsockmon\n\
    exec guest bench --monitor vsockmon \"$@\"\n";

/// A kernel and what it boots with.
struct Guest<'a> {
    env: &'a Env,
    root: &'a ToolRoot,
    image: Image,
    archive: TempPath,
    host: Option<&'a Host>,
}

/// What has the far ends, when the guest has not.
struct Host {
    image: Image,
    script: String,
}

const PORT: u32 = 1234;

impl Host {
    fn new(image: Image, programs: &Programs) -> Self {
        Host {
            image,
            script: format!("'{}' bench-peer {PORT} &", programs.guest.display()),
        }
    }
}

/// What a boot measures.
#[derive(Clone, Debug, PartialEq)]
struct Work {
    arms: &'static str,
    paths: Vec<String>,
    sizes: Vec<usize>,
    connections: Vec<usize>,
    rounds: u32,
    trips: usize,
    time: u64,
    limit: Duration,
}

impl Work {
    /// All of it.
    fn new(args: &Args) -> Self {
        Work {
            arms: "direct,copy,socat,sockmap",
            paths: args.paths.clone(),
            sizes: args.sizes.clone(),
            connections: args.connections.clone(),
            rounds: args.rounds.div_ceil(BOOTS),
            trips: args.trips,
            time: args.time.unwrap_or(match args.bed {
                Bed::Um => 200,
                Bed::Qemu | Bed::PairHost => 1000,
            }),
            limit: Duration::from_secs(3600),
        }
    }

    /// A boot for each row of the tables.
    fn in_pieces(args: &Args) -> Vec<Self> {
        let all = Work::new(args);
        // A measurement of throughput ends by itself after some 10 s, and a round trip takes up to
        // two jiffies.
        let round = Duration::from_secs(20 + all.trips as u64 / 20);
        let all = Work {
            arms: "copy,sockmap",
            limit: Duration::from_secs(60) + round * all.rounds,
            ..all
        };
        let mut pieces = Vec::new();
        for path in &all.paths {
            let piece = Work {
                paths: vec![path.clone()],
                ..all.clone()
            };
            for connections in &all.connections {
                pieces.extend(all.sizes.iter().map(|size| Work {
                    connections: vec![*connections],
                    sizes: vec![*size],
                    trips: 0,
                    ..piece.clone()
                }));
            }
            if all.trips > 0 {
                pieces.push(Work {
                    sizes: Vec::new(),
                    connections: Vec::new(),
                    ..piece
                });
            }
        }
        pieces
    }

    fn guest_args(&self) -> Vec<String> {
        let list = |numbers: &[usize]| {
            let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
            numbers.join(",")
        };
        [
            ("--paths", self.paths.join(",")),
            ("--arms", self.arms.to_string()),
            ("--sizes", list(&self.sizes)),
            ("--connections", list(&self.connections)),
            ("--rounds", self.rounds.to_string()),
            ("--trips", self.trips.to_string()),
            ("--time", self.time.to_string()),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .flat_map(|(option, value)| [option.to_string(), value])
        .collect()
    }

    /// For people, of a piece.
    fn name(&self) -> String {
        let mut name = self.paths.join(",");
        if self.sizes.is_empty() {
            name += ", round trips";
        }
        for size in &self.sizes {
            name += &format!(", {size} bytes");
        }
        for many in self.connections.iter().filter(|many| **many > 1) {
            name += &format!(", {many} connections");
        }
        name
    }
}

impl<'a> Guest<'a> {
    fn new(
        env: &'a Env,
        root: &'a ToolRoot,
        image: Image,
        programs: &Programs,
        host: Option<&'a Host>,
    ) -> Result<Self> {
        let mut initramfs = Initramfs::new(env, root, GUEST_MAIN);
        initramfs
            .modules(&image)?
            .file("/bin/guest", &programs.guest, 0o755)
            .program("/usr/bin/socat", Path::new("/usr/bin/socat"))?;
        let archive = initramfs.build(&image)?;
        Ok(Guest {
            env,
            root,
            image,
            archive,
            host,
        })
    }

    /// Boots, and measures. The first error is of a boot that could not be, the second of one that
    /// did not go well.
    fn measure(
        &self,
        work: &Work,
        name: &str,
        step: &mut Step,
    ) -> Result<(Vec<Measured>, Result<()>)> {
        let kernel = self.image.flavour.sockmap;
        let mut lines = Vec::new();
        let mut each_line = |line: &str| {
            if let Ok(line) = serde_json::from_str::<Line>(said(line)) {
                step.at(&format!("{}, {}", line.path, line.arm));
                lines.push(Measured { kernel, line });
            }
        };
        let mut guest_args = work.guest_args();
        if let Some(host) = self.host {
            guest_args.extend(["--peer".to_string(), format!("{VMADDR_CID_HOST}:{PORT}")]);
            let pair = Pair {
                env: self.env,
                root: self.root,
                host: &host.image,
                guest: &self.image,
                initramfs: &self.archive,
                args: &guest_args,
                script: &host.script,
                limit: work.limit,
            };
            let (_, problems) = pair.run(name, &mut each_line)?;
            let verdict = match problems.is_empty() {
                true => Ok(()),
                false => Err(anyhow!("{}", problems.join("\n"))),
            };
            return Ok((lines, verdict));
        }
        let mut boot = Boot::new(&self.image, System::Initramfs(&self.archive));
        boot.args = &guest_args;
        boot.timeout = Some(work.limit);
        boot.each_line = Some(&mut each_line);
        let outcome = boot.run(self.env, self.root, name)?;
        Ok((lines, outcome.verdict()))
    }
}

/// A measurement on the kernel without the series that came to nothing.
#[derive(Serialize)]
struct Failed {
    what: String,
    why: String,
}

/// The file for other programs.
#[derive(Serialize)]
struct Report<'a> {
    bed: &'a str,
    summary: &'a [Row],
    bars: &'a [Judged],
    failed: &'a [Failed],
    measurements: &'a [Measured],
}

pub fn run(env: &Env, args: Args) -> Result<()> {
    let (root, tree) = prepare_tree(env)?;
    let programs = programs::build(env, &root)?;
    let image = |tree: &Tree, bed, sockmap| {
        let flavour = Flavour {
            bed,
            sockmap,
            debug: false,
        };
        build(env, &root, tree, flavour)
    };
    let host = match args.bed {
        Bed::PairHost => Some(Host::new(
            image(&tree, Bed::PairHost, Sockmap::Rust)?,
            &programs,
        )),
        Bed::Um | Bed::Qemu => None,
    };
    let guest = |tree: &Tree, sockmap| {
        let bed = if host.is_some() { Bed::Qemu } else { args.bed };
        let image = image(tree, bed, sockmap)?;
        Guest::new(env, &root, image, &programs, host.as_ref())
    };
    let ours = [guest(&tree, Sockmap::Rust)?, guest(&tree, Sockmap::C)?];
    let source = tree.source.clone();
    drop(tree);
    let pristine = if args.no_pristine {
        None
    } else {
        let tree = tree::pristine(env, source)?;
        Some(guest(&tree, Sockmap::Pristine)?)
    };

    let mut measured = Vec::new();
    let mut failed = Vec::new();
    let all = Work::new(&args);
    let mut pieces = Work::in_pieces(&args);
    for _ in 0..BOOTS {
        for guest in &ours {
            let kernel = guest.image.flavour.sockmap.name();
            let mut step = Step::new(&format!("measure with the {kernel} kernel"));
            let log = format!("bench-{kernel}");
            let (lines, verdict) = guest.measure(&all, &log, &mut step)?;
            verdict?;
            step.done();
            if lines.is_empty() {
                let log = env.logs.join(log);
                bail!(
                    "the guest measured nothing (log: {}.console)",
                    log.display()
                );
            }
            measured.extend(lines);
        }
        if let Some(guest) = &pristine {
            let mut step = Step::new("measure with the pristine kernel");
            let mut left = Vec::new();
            for work in pieces {
                let name = work.name();
                let log = format!("bench-pristine-{}", name.replace([' ', ','], "-"));
                let (lines, verdict) = guest.measure(&work, &log, &mut step)?;
                match verdict {
                    Ok(()) => {
                        measured.extend(lines);
                        left.push(work);
                    }
                    // It would fail again, and take its time.
                    Err(error) => failed.push(Failed {
                        what: name,
                        why: format!("{error:#}"),
                    }),
                }
            }
            pieces = left;
            step.done();
        }
    }

    let rows = figures::rows(&measured, &args.paths);
    let bars = figures::judge(&rows, host.is_none());
    let bed = args.bed.name();
    let dir = env.repo.join("build/bench");
    let file = dir.join(format!("{bed}.json"));
    let report = Report {
        bed,
        summary: &rows,
        bars: &bars,
        failed: &failed,
        measurements: &measured,
    };
    write_atomic(&file, serde_json::to_string_pretty(&report)?.as_bytes())?;
    let plots = plot::write(&dir, bed, &args.paths, &rows)?;

    let way = if host.is_some() {
        "between guest and host"
    } else {
        "loopback"
    };
    println!("bed {bed}, {way}, medians of {}", all.rounds * BOOTS);
    for unit in Unit::ALL {
        let table = figures::table(&rows, unit);
        if !table.is_empty() {
            print!("\n{table}");
        }
    }
    for Failed { what, why } in &failed {
        println!("\npristine kernel, {what}: no figure, since {why}");
    }
    let incomplete = figures::incomplete(&measured);
    if !incomplete.is_empty() {
        println!("\nnot all had arrived at the time limit:");
        incomplete.iter().for_each(|line| println!("  {line}"));
    }
    print!("\n{}", figures::bars_table(&bars));
    progress::say(&format!("figures: {}", file.display()));
    progress::say(&format!("plots: {}", plots.join(" ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Cli::parse_from(line.split_whitespace()).args
    }

    #[test]
    fn pieces_are_rows_of_the_tables() {
        let args = args("bench --paths a,b --sizes 64,512 --connections 1,16 --rounds 6");
        let pieces = Work::in_pieces(&args);
        let names: Vec<_> = pieces.iter().map(Work::name).collect();
        assert_eq!(
            names[..5],
            [
                "a, 64 bytes",
                "a, 512 bytes",
                "a, 64 bytes, 16 connections",
                "a, 512 bytes, 16 connections",
                "a, round trips"
            ]
        );
        assert_eq!(names.len(), 10);
        // Two boots.
        assert!(pieces.iter().all(|piece| piece.rounds == 3));
        let trips: Vec<_> = pieces.iter().map(|piece| piece.trips).collect();
        assert_eq!(trips[..5], [0, 0, 0, 0, 500]);
    }

    #[test]
    fn piece_of_round_trips_names_no_size() {
        let args = args("bench --paths a --trips 7 --sizes 64");
        let [size, trips] = &Work::in_pieces(&args)[..] else {
            panic!("two pieces");
        };
        assert!(size.guest_args().join(" ").contains("--sizes 64"));
        assert!(!trips.guest_args().join(" ").contains("--sizes"));
        assert!(trips.guest_args().join(" ").contains("--trips 7"));
    }

    #[test]
    fn without_round_trips_no_piece_of_them() {
        let args = args("bench --paths a --trips 0 --sizes 64");
        assert_eq!(Work::in_pieces(&args).len(), 1);
    }
}
