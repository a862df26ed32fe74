// SPDX-License-Identifier: GPL-2.0-only
//! `bench`: how fast the ways to move bytes between sockets are, next to each other.
//!
//! Both ends of each connection are in one guest, so that vsock is its loopback; the pair of a host
//! and a guest is what `demo` measures. The guest takes turns with the arms. The C and the Rust
//! sockmap need a kernel each, so their boots take turns as well, and what both have, the copy
//! loop, tells how alike the two boots are.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use serde::{Deserialize, Serialize};

use crate::boot::{Boot, System};
use crate::build::{build, Bed, Flavour, Image, Sockmap};
use crate::env::Env;
use crate::initramfs::Initramfs;
use crate::proc::{self, Step};
use crate::programs::{self, Programs};
use crate::toolroot::ToolRoot;
use crate::verbs::prepare_tree;

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
    /// How long a measurement of the copy loop takes
    #[arg(long, value_name = "MS", default_value_t = 200)]
    time: u64,
}

/// In how many boots of each kernel the rounds are.
const BOOTS: u32 = 2;

/// What `bed bench` tells of a measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Line {
    path: String,
    arm: String,
    round: u32,
    #[serde(flatten)]
    figure: Figure,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Figure {
    Throughput {
        size: usize,
        connections: usize,
        bytes: u64,
        of: u64,
        mb_s: f64,
        cpu_ms_mib: f64,
    },
    Trip {
        p50_us: f64,
        p99_us: f64,
    },
}

/// What a row of the table is about, in its order.
type Row = (usize, usize, usize);

/// The column of a measurement: an arm, or a kernel's sockmap.
fn column(arm: &str, sockmap: Sockmap) -> String {
    match (arm, sockmap) {
        ("sockmap", sockmap) => sockmap.name().to_string(),
        (arm, Sockmap::Rust) => arm.to_string(),
        (arm, Sockmap::C) => format!("{arm} (C kernel)"),
    }
}

/// The middle of some figures, the lower one of two, and the lowest and the highest.
fn median(figures: &[f64]) -> Option<(f64, f64, f64)> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some((middle, *sorted.first()?, *sorted.last()?))
}

/// All measurements, by row and column.
#[derive(Default)]
struct Figures(BTreeMap<Row, BTreeMap<String, Vec<f64>>>);

impl Figures {
    fn collect<'a>(
        lines: impl Iterator<Item = &'a (Sockmap, Line)>,
        paths: &[String],
        figure: impl Fn(&Figure) -> Option<(usize, usize, f64)>,
    ) -> Self {
        let mut all = Figures::default();
        for (sockmap, line) in lines {
            let Some((size, connections, value)) = figure(&line.figure) else {
                continue;
            };
            let path = paths.iter().position(|path| *path == line.path);
            all.0
                .entry((path.unwrap_or(usize::MAX), connections, size))
                .or_default()
                .entry(column(&line.arm, *sockmap))
                .or_default()
                .push(value);
        }
        all
    }

    /// The table: medians, and the ratios that matter.
    fn table(&self, paths: &[String], unit: &str) -> String {
        const COLUMNS: [&str; 5] = ["direct", "copy", "socat", "c", "rust"];
        let mut table = format!("{:<22}{:>8}{:>6}", unit, "size", "conn");
        for column in COLUMNS {
            let _ = write!(table, "{column:>9}");
        }
        let _ = writeln!(
            table,
            "{:>16}{:>11}{:>8}",
            "min..max", "rust/copy", "rust/c"
        );
        for ((path, connections, size), columns) in &self.0 {
            let path = paths.get(*path).map_or("?", String::as_str);
            let _ = write!(table, "{path:<22}{size:>8}{connections:>6}");
            let middle = |name: &str| columns.get(name).and_then(|figures| median(figures));
            for column in COLUMNS {
                let _ = match middle(column) {
                    Some((middle, ..)) => write!(table, "{middle:>9.1}"),
                    None => write!(table, "{:>9}", "-"),
                };
            }
            let spread = middle("rust").map_or("-".to_string(), |(_, low, high)| {
                format!("{low:.1}..{high:.1}")
            });
            let ratio = |a: Option<(f64, f64, f64)>, b: Option<(f64, f64, f64)>| {
                a.zip(b)
                    .map_or("-".to_string(), |(a, b)| format!("{:.2}", a.0 / b.0))
            };
            let _ = writeln!(
                table,
                "{spread:>16}{:>11}{:>8}",
                ratio(middle("rust"), middle("copy")),
                ratio(middle("rust"), middle("c")),
            );
        }
        table
    }
}

const GUEST_MAIN: &str = "#!/bin/sh\n\
    for i in vsock vsock_loopback; do modprobe -q $i; done\n\
    exec bed bench \"$@\"\n";

/// Boots a kernel, and measures.
fn measure(
    env: &Env,
    root: &ToolRoot,
    image: &Image,
    programs: &Programs,
    args: &Args,
    rounds: u32,
) -> Result<Vec<Line>> {
    let mut initramfs = Initramfs::new(env, root, GUEST_MAIN);
    initramfs
        .modules(image)?
        .file("/bin/bed", &programs.bed, 0o755)
        .program("/usr/bin/socat", std::path::Path::new("/usr/bin/socat"))?;
    let archive = initramfs.build(image)?;
    let list = |numbers: &[usize]| {
        let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
        numbers.join(",")
    };
    let guest_args: Vec<String> = [
        ("--paths", args.paths.join(",")),
        ("--arms", "direct,copy,socat,sockmap".to_string()),
        ("--sizes", list(&args.sizes)),
        ("--connections", list(&args.connections)),
        ("--rounds", rounds.to_string()),
        ("--trips", args.trips.to_string()),
        ("--time", args.time.to_string()),
    ]
    .into_iter()
    .flat_map(|(option, value)| [option.to_string(), value])
    .collect();

    let name = format!("bench-{}", image.flavour.sockmap.name());
    let mut step = Step::new(&format!(
        "measure with the {} kernel",
        image.flavour.sockmap.name()
    ));
    let mut lines = Vec::new();
    let mut each_line = |line: &str| {
        if let Ok(line) = serde_json::from_str::<Line>(line) {
            step.at(&format!("{}, {}", line.path, line.arm));
            lines.push(line);
        }
    };
    let mut boot = Boot::new(image, System::Initramfs(&archive));
    boot.args = &guest_args;
    boot.timeout = Some(Duration::from_secs(3600));
    boot.each_line = Some(&mut each_line);
    let outcome = boot.run(env, root, &name)?;
    outcome.verdict()?;
    step.done();
    if lines.is_empty() {
        bail!(
            "the guest measured nothing (log: {})",
            outcome.log_path.display()
        );
    }
    Ok(lines)
}

#[derive(Serialize)]
struct Entry<'a> {
    bed: &'a str,
    kernel: &'a str,
    #[serde(flatten)]
    line: &'a Line,
}

pub fn run(env: &Env, args: Args) -> Result<()> {
    if args.bed == Bed::PairHost {
        bail!("between a host and a guest, `demo` measures");
    }
    let (root, tree) = prepare_tree(env)?;
    let programs = programs::build(env, &root)?;
    let image = |sockmap| {
        let flavour = Flavour {
            bed: args.bed,
            sockmap,
            debug: false,
        };
        build(env, &root, &tree, flavour)
    };
    let images = [image(Sockmap::Rust)?, image(Sockmap::C)?];
    drop(tree);

    let mut lines = Vec::new();
    for _ in 0..BOOTS {
        for image in &images {
            let rounds = args.rounds.div_ceil(BOOTS);
            let measured = measure(env, &root, image, &programs, &args, rounds)?;
            lines.extend(
                measured
                    .into_iter()
                    .map(|line| (image.flavour.sockmap, line)),
            );
        }
    }

    let dir = env.repo.join("build/bench");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let file = dir.join(format!("{}.json", args.bed.name()));
    let entries: Vec<_> = lines
        .iter()
        .map(|(sockmap, line)| Entry {
            bed: args.bed.name(),
            kernel: sockmap.name(),
            line,
        })
        .collect();
    fs::write(&file, serde_json::to_string_pretty(&entries)?)
        .with_context(|| format!("cannot write {}", file.display()))?;

    println!(
        "bed {}, loopback, medians of {}\n",
        args.bed.name(),
        args.rounds.div_ceil(BOOTS) * BOOTS
    );
    let mut between = "";
    for (unit, is_cpu) in [("MB/s", false), ("CPU ms per MiB", true)] {
        let figures = Figures::collect(lines.iter(), &args.paths, |figure| match figure {
            Figure::Throughput {
                size,
                connections,
                mb_s,
                cpu_ms_mib,
                ..
            } => Some((
                *size,
                *connections,
                if is_cpu { *cpu_ms_mib } else { *mb_s },
            )),
            Figure::Trip { .. } => None,
        });
        print!("{between}{}", figures.table(&args.paths, unit));
        between = "\n";
    }
    for (unit, is_p99) in [("trip p50, us", false), ("trip p99, us", true)] {
        let trips = Figures::collect(lines.iter(), &args.paths, |figure| match figure {
            Figure::Trip { p50_us, p99_us } => {
                Some((64, 1, if is_p99 { *p99_us } else { *p50_us }))
            }
            Figure::Throughput { .. } => None,
        });
        if !trips.0.is_empty() {
            print!("\n{}", trips.table(&args.paths, unit));
        }
    }
    proc::say(&format!("figures: {}", file.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<(Sockmap, Line)> {
        let line = |arm: &str, round: u32, mb_s: f64| {
            serde_json::from_str(&format!(
                r#"{{"path":"a","arm":"{arm}","round":{round},"size":64,"connections":1,
                    "bytes":10,"of":10,"mb_s":{mb_s},"cpu_ms_mib":1.5}}"#
            ))
            .unwrap()
        };
        vec![
            (Sockmap::Rust, line("copy", 0, 10.0)),
            (Sockmap::Rust, line("sockmap", 0, 30.0)),
            (Sockmap::Rust, line("sockmap", 1, 20.0)),
            (Sockmap::Rust, line("sockmap", 2, 90.0)),
            (Sockmap::C, line("sockmap", 0, 15.0)),
            (Sockmap::C, line("copy", 0, 1.0)),
        ]
    }

    #[test]
    fn medians_and_ratios_are_of_the_right_kernel() {
        let paths = ["a".to_string()];
        let figures = Figures::collect(lines().iter(), &paths, |figure| match figure {
            Figure::Throughput { size, mb_s, .. } => Some((*size, 1, *mb_s)),
            Figure::Trip { .. } => None,
        });
        let table = figures.table(&paths, "MB/s");
        let row = table.lines().nth(1).unwrap();
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            [
                "a",
                "64",
                "1",
                "-",
                "10.0",
                "-",
                "15.0",
                "30.0",
                "20.0..90.0",
                "3.00",
                "2.00"
            ]
        );
    }

    #[test]
    fn trips_are_not_throughput() {
        let line: Line = serde_json::from_str(
            r#"{"path":"a","arm":"copy","round":0,"p50_us":1.0,"p99_us":2.0}"#,
        )
        .unwrap();
        assert!(matches!(line.figure, Figure::Trip { .. }));
    }

    #[test]
    fn median_of_an_even_number_is_the_lower_middle() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some((2.0, 1.0, 4.0)));
        assert_eq!(median(&[]), None);
    }
}
