// SPDX-License-Identifier: GPL-2.0-only
//! What was measured, and what it says: medians, ratios, and whether they reach the bars.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize, Serializer};

use crate::kernel::build::Sockmap;

/// What `guest bench` tells of a measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Line {
    pub path: String,
    pub arm: String,
    pub round: u32,
    #[serde(flatten)]
    pub figure: Figure,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Figure {
    Throughput {
        size: usize,
        connections: usize,
        bytes: u64,
        of: u64,
        mb_s: f64,
        /// None if nothing arrived.
        cpu_ms_mib: Option<f64>,
    },
    Trip {
        p50_us: f64,
        p99_us: f64,
    },
    Idle {
        idle_kib: f64,
    },
    /// None where the end that is looked at is no vsock.
    Packets {
        size: usize,
        connections: usize,
        packets_mib: Option<f64>,
        updates_mib: Option<f64>,
    },
}

/// A measurement, and the kernel that it was made with.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    #[serde(serialize_with = "kernel_name")]
    pub kernel: Sockmap,
    #[serde(flatten)]
    pub line: Line,
}

fn kernel_name<S: Serializer>(kernel: &Sockmap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kernel.name())
}

/// What `Figure::Trip` is about.
const TRIP_SIZE: usize = 64;

/// The columns of the tables and the lines of the plots.
pub const COLUMNS: [&str; 6] = ["direct", "copy", "socat", "c", "pristine", "rust"];

/// What the Rust sockmap is compared with in the tables.
const COMPARED: [&str; 3] = ["copy", "c", "pristine"];

/// The column of a measurement: an arm, or a kernel's sockmap.
fn column(arm: &str, kernel: Sockmap) -> String {
    match (arm, kernel) {
        ("sockmap", kernel) => kernel.name().to_string(),
        (arm, Sockmap::Rust) => arm.to_string(),
        (arm, kernel) => format!("{arm} ({} kernel)", kernel.name()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    MbS,
    CpuMsMib,
    P50Us,
    P99Us,
    PacketsMib,
    UpdatesMib,
    IdleKib,
}

impl Unit {
    pub const ALL: [Unit; 7] = [
        Unit::MbS,
        Unit::CpuMsMib,
        Unit::P50Us,
        Unit::P99Us,
        Unit::PacketsMib,
        Unit::UpdatesMib,
        Unit::IdleKib,
    ];

    fn title(self) -> &'static str {
        match self {
            Unit::MbS => "MB/s",
            Unit::CpuMsMib => "CPU ms per MiB",
            Unit::P50Us => "trip p50, us",
            Unit::P99Us => "trip p99, us",
            Unit::PacketsMib => "packets per MiB",
            Unit::UpdatesMib => "updates per MiB",
            Unit::IdleKib => "idle pair, KiB",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The lower one of two.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Spread {
            median: *sorted.get(sorted.len().checked_sub(1)? / 2)?,
            min: *sorted.first()?,
            max: *sorted.last()?,
        })
    }
}

/// A row of a table.
#[derive(Debug, Serialize)]
pub struct Row {
    pub unit: Unit,
    pub path: String,
    pub connections: usize,
    pub size: usize,
    pub columns: BTreeMap<String, Spread>,
    /// Of medians: the Rust sockmap's over that of another column.
    pub ratios: BTreeMap<String, f64>,
}

/// All rows, in the order in which they are shown.
pub fn rows(measured: &[Measured], paths: &[String]) -> Vec<Row> {
    type Place = (Unit, usize, usize, usize);
    let mut all: BTreeMap<Place, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for Measured { kernel, line } in measured {
        let (size, connections, values) = match line.figure {
            Figure::Throughput {
                size,
                connections,
                mb_s,
                cpu_ms_mib,
                ..
            } => (
                size,
                connections,
                vec![(Unit::MbS, Some(mb_s)), (Unit::CpuMsMib, cpu_ms_mib)],
            ),
            Figure::Trip { p50_us, p99_us } => (
                TRIP_SIZE,
                1,
                vec![(Unit::P50Us, Some(p50_us)), (Unit::P99Us, Some(p99_us))],
            ),
            Figure::Idle { idle_kib } => (0, 1, vec![(Unit::IdleKib, Some(idle_kib))]),
            Figure::Packets {
                size,
                connections,
                packets_mib,
                updates_mib,
            } => (
                size,
                connections,
                vec![
                    (Unit::PacketsMib, packets_mib),
                    (Unit::UpdatesMib, updates_mib),
                ],
            ),
        };
        let Some(path) = paths.iter().position(|path| *path == line.path) else {
            continue;
        };
        for (unit, value) in values {
            if let Some(value) = value {
                all.entry((unit, path, connections, size))
                    .or_default()
                    .entry(column(&line.arm, *kernel))
                    .or_default()
                    .push(value);
            }
        }
    }
    all.into_iter()
        .map(|((unit, path, connections, size), columns)| {
            let columns: BTreeMap<String, Spread> = columns
                .into_iter()
                .filter_map(|(name, figures)| Some((name, Spread::of(&figures)?)))
                .collect();
            let rust = columns.get("rust").map(|rust| rust.median);
            let ratios = COLUMNS
                .iter()
                .filter(|name| **name != "rust")
                .filter_map(|name| {
                    let other = columns.get(*name)?.median;
                    (other > 0.0).then_some((name.to_string(), rust? / other))
                })
                .collect();
            Row {
                unit,
                path: paths[path].clone(),
                connections,
                size,
                columns,
                ratios,
            }
        })
        .collect()
}

/// The table of a unit: medians, and the ratios that matter; empty if there is no row.
pub fn table(rows: &[Row], unit: Unit) -> String {
    let mut table = format!("{:<22}{:>8}{:>6}", unit.title(), "size", "conn");
    for column in COLUMNS {
        let _ = write!(table, "{column:>9}");
    }
    let _ = write!(table, "{:>18}", "min..max");
    for other in COMPARED {
        let _ = write!(
            table,
            "{:>w$}",
            format!("rust/{other}"),
            w = other.len() + 7
        );
    }
    table.push('\n');
    let rows: Vec<_> = rows.iter().filter(|row| row.unit == unit).collect();
    if rows.is_empty() {
        return String::new();
    }
    for row in rows {
        let _ = write!(
            table,
            "{:<22}{:>8}{:>6}",
            row.path, row.size, row.connections
        );
        for column in COLUMNS {
            let _ = match row.columns.get(column) {
                Some(spread) => write!(table, "{:>9.1}", spread.median),
                None => write!(table, "{:>9}", "-"),
            };
        }
        let spread = row.columns.get("rust").map_or("-".to_string(), |rust| {
            format!("{:.1}..{:.1}", rust.min, rust.max)
        });
        let _ = write!(table, "{spread:>18}");
        for other in COMPARED {
            let ratio = row
                .ratios
                .get(other)
                .map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
            let _ = write!(table, "{ratio:>w$}", w = other.len() + 7);
        }
        table.push('\n');
    }
    table
}

/// Where some bytes were not there at the time limit, though nothing on the path may lose any: how
/// many were, by kernel, arm and path.
pub fn incomplete(measured: &[Measured]) -> Vec<String> {
    // By size, how many bytes arrived and of how many.
    type Sizes = BTreeMap<usize, (u64, u64)>;
    let mut all: BTreeMap<(&str, &str, &str), Sizes> = BTreeMap::new();
    for Measured { kernel, line } in measured {
        if let Figure::Throughput {
            size, bytes, of, ..
        } = line.figure
        {
            if bytes < of && !line.path.starts_with("udp-") {
                let (had, wanted) = all
                    .entry((kernel.name(), &line.arm, &line.path))
                    .or_default()
                    .entry(size)
                    .or_default();
                *had += bytes;
                *wanted += of;
            }
        }
    }
    all.into_iter()
        .map(|((kernel, arm, path), sizes)| {
            let sizes: Vec<_> = sizes
                .into_iter()
                .map(|(size, (had, of))| format!("{} % of {size}", had * 100 / of))
                .collect();
            format!("{kernel} kernel, {arm}, {path}: {}", sizes.join(", "))
        })
        .collect()
}

enum Wanted {
    Least(f64),
    Most(f64),
}

/// What a figure of the Rust sockmap, or its ratio to another, is to be.
struct Bar {
    unit: Unit,
    /// None is the figure itself.
    over: Option<&'static str>,
    /// None is all.
    path: Option<&'static str>,
    size: Option<usize>,
    /// Whether it is only for a loopback.
    loopback: bool,
    wanted: Wanted,
}

const BARS: &[Bar] = &[
    Bar::new("socat", Wanted::Least(2.21))
        .at(65536)
        .of("unix-dgram-to-vsock"),
    Bar::new("direct", Wanted::Least(0.8))
        .at(65536)
        .of("unix-dgram-to-vsock"),
    Bar::new("copy", Wanted::Least(1.2)),
    Bar::new("pristine", Wanted::Least(1.0)),
    Bar::new("pristine", Wanted::Least(50.0))
        .at(65536)
        .on_loopback(),
    Bar::new("c", Wanted::Least(1.0)),
    Bar::new("c", Wanted::Least(1.3))
        .at(65536)
        .of("unix-dgram-to-vsock"),
    Bar::new("c", Wanted::Least(1.3))
        .at(512)
        .of("unix-dgram-to-vsock"),
    Bar::new("copy", Wanted::Most(0.8)).in_unit(Unit::P50Us),
    Bar {
        over: None,
        ..Bar::new("", Wanted::Most(17.0))
    }
    .at(65536)
    .of("unix-dgram-to-vsock")
    .in_unit(Unit::PacketsMib),
    Bar::new("copy", Wanted::Most(1.0)).in_unit(Unit::UpdatesMib),
    Bar::new("c", Wanted::Most(1.1)).in_unit(Unit::IdleKib),
];

impl Bar {
    const fn new(over: &'static str, wanted: Wanted) -> Self {
        Bar {
            unit: Unit::MbS,
            over: Some(over),
            path: None,
            size: None,
            loopback: false,
            wanted,
        }
    }

    const fn on_loopback(mut self) -> Self {
        self.loopback = true;
        self
    }

    const fn of(mut self, path: &'static str) -> Self {
        self.path = Some(path);
        self
    }

    const fn at(mut self, size: usize) -> Self {
        self.size = Some(size);
        self
    }

    const fn in_unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    fn name(&self) -> String {
        let what = match self.unit {
            Unit::MbS => "",
            Unit::CpuMsMib => "CPU time, ",
            Unit::P50Us => "trip p50, ",
            Unit::P99Us => "trip p99, ",
            Unit::PacketsMib => "packets per MiB, ",
            Unit::UpdatesMib => "updates per MiB, ",
            Unit::IdleKib => "idle pair, KiB, ",
        };
        let over = self
            .over
            .map_or("rust".to_string(), |over| format!("rust/{over}"));
        let path = self.path.unwrap_or("each path");
        let size = match (self.unit, self.size) {
            (Unit::MbS | Unit::UpdatesMib, None) => " and size".to_string(),
            (_, None) => String::new(),
            (_, Some(size)) => format!(", {size}"),
        };
        format!("{what}{over}, {path}{size}")
    }

    fn meets(&self, figure: f64) -> bool {
        match self.wanted {
            Wanted::Least(least) => figure >= least,
            Wanted::Most(most) => figure <= most,
        }
    }
}

/// How a bar compares with what was measured.
#[derive(Debug, Serialize)]
pub struct Judged {
    bar: String,
    wanted: String,
    /// Of all rows that the bar is about.
    worst: f64,
    worst_at: String,
    rows_met: usize,
    rows: usize,
    met: bool,
}

/// The bars for which there is a figure.
pub fn judge(rows: &[Row], loopback: bool) -> Vec<Judged> {
    let judge = |bar: &Bar| {
        let figures: Vec<(&Row, f64)> = rows
            .iter()
            .filter(|row| row.unit == bar.unit)
            .filter(|row| bar.path.is_none_or(|path| path == row.path))
            .filter(|row| bar.size.is_none_or(|size| size == row.size))
            .filter_map(|row| {
                let figure = match bar.over {
                    None => row.columns.get("rust")?.median,
                    Some(over) => *row.ratios.get(over)?,
                };
                Some((row, figure))
            })
            .collect();
        let rows_met = figures
            .iter()
            .filter(|(_, figure)| bar.meets(*figure))
            .count();
        let order = |a: &&(&Row, f64), b: &&(&Row, f64)| a.1.total_cmp(&b.1);
        let (wanted, worst) = match bar.wanted {
            Wanted::Least(least) => (format!(">= {least:.2}"), figures.iter().min_by(order)),
            Wanted::Most(most) => (format!("<= {most:.2}"), figures.iter().max_by(order)),
        };
        let (row, worst) = worst?;
        let connections = match row.connections {
            1 => String::new(),
            many => format!(", {many} connections"),
        };
        Some(Judged {
            bar: bar.name(),
            wanted,
            worst: *worst,
            worst_at: format!("{}, {}{connections}", row.path, row.size),
            rows_met,
            rows: figures.len(),
            met: rows_met == figures.len(),
        })
    };
    BARS.iter()
        .filter(|bar| loopback || !bar.loopback)
        .filter_map(judge)
        .collect()
}

/// The bars as a table.
pub fn bars_table(bars: &[Judged]) -> String {
    let mut table = format!(
        "{:<50}{:>8}{:>8}{:>10}  {:<9}worst at\n",
        "bar", "wanted", "worst", "rows met", ""
    );
    for bar in bars {
        let _ = writeln!(
            table,
            "{:<50}{:>8}{:>8.2}{:>10}  {:<9}{}",
            bar.bar,
            bar.wanted,
            bar.worst,
            format!("{}/{}", bar.rows_met, bar.rows),
            if bar.met { "met" } else { "not met" },
            bar.worst_at
        );
    }
    table
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn paths() -> Vec<String> {
        ["unix-dgram-to-vsock", "vsock-to-tcp"]
            .map(String::from)
            .into()
    }

    pub fn measured(kernel: Sockmap, json: &str) -> Measured {
        let line = serde_json::from_str(json).unwrap();
        Measured { kernel, line }
    }

    pub fn throughput(kernel: Sockmap, path: &str, arm: &str, size: usize, mb_s: f64) -> Measured {
        let json = format!(
            r#"{{"path":"{path}","arm":"{arm}","round":0,"size":{size},"connections":1,
                "bytes":10,"of":10,"mb_s":{mb_s},"cpu_ms_mib":1.5}}"#
        );
        measured(kernel, &json)
    }

    fn of_each_kernel() -> Vec<Measured> {
        let at = |kernel, arm, mb_s| throughput(kernel, "unix-dgram-to-vsock", arm, 65536, mb_s);
        vec![
            at(Sockmap::Rust, "copy", 10.0),
            at(Sockmap::Rust, "sockmap", 30.0),
            at(Sockmap::Rust, "sockmap", 20.0),
            at(Sockmap::Rust, "sockmap", 90.0),
            at(Sockmap::C, "sockmap", 15.0),
            at(Sockmap::C, "copy", 1.0),
            at(Sockmap::Pristine, "sockmap", 0.5),
        ]
    }

    fn words(line: &str) -> Vec<&str> {
        line.split_whitespace().collect()
    }

    #[test]
    fn medians_and_ratios_are_of_the_right_kernel() {
        let table = table(&rows(&of_each_kernel(), &paths()), Unit::MbS);
        let [head, row] = table.lines().collect::<Vec<_>>()[..] else {
            panic!("{table}");
        };
        assert_eq!(
            words(head)[1..],
            [
                "size",
                "conn",
                "direct",
                "copy",
                "socat",
                "c",
                "pristine",
                "rust",
                "min..max",
                "rust/copy",
                "rust/c",
                "rust/pristine"
            ]
        );
        assert_eq!(
            words(row),
            [
                "unix-dgram-to-vsock",
                "65536",
                "1",
                "-",
                "10.0",
                "-",
                "15.0",
                "0.5",
                "30.0",
                "20.0..90.0",
                "3.00",
                "2.00",
                "60.00"
            ]
        );
        assert_eq!(head.len(), row.len());
    }

    #[test]
    fn order_is_that_of_the_paths_and_then_of_the_sizes() {
        let at = |path, size| throughput(Sockmap::Rust, path, "copy", size, 1.0);
        let lines = [
            at("vsock-to-tcp", 64),
            at("unix-dgram-to-vsock", 512),
            at("unix-dgram-to-vsock", 64),
        ];
        let rows = rows(&lines, &paths());
        let places: Vec<_> = rows
            .iter()
            .filter(|row| row.unit == Unit::MbS)
            .map(|row| (row.path.as_str(), row.size))
            .collect();
        assert_eq!(
            places,
            [
                ("unix-dgram-to-vsock", 64),
                ("unix-dgram-to-vsock", 512),
                ("vsock-to-tcp", 64)
            ]
        );
    }

    #[test]
    fn trips_are_not_throughput() {
        let trip = measured(
            Sockmap::Rust,
            r#"{"path":"vsock-to-tcp","arm":"copy","round":0,"p50_us":1.0,"p99_us":2.0}"#,
        );
        let rows = rows(&[trip], &paths());
        let units: Vec<_> = rows.iter().map(|row| row.unit).collect();
        assert_eq!(units, [Unit::P50Us, Unit::P99Us]);
        assert_eq!(table(&rows, Unit::MbS), "");
    }

    #[test]
    fn nothing_that_arrived_is_no_ratio() {
        let none = measured(
            Sockmap::Pristine,
            r#"{"path":"vsock-to-tcp","arm":"sockmap","round":0,"size":64,"connections":1,
                "bytes":0,"of":100,"mb_s":0.0,"cpu_ms_mib":null}"#,
        );
        let lines = [
            throughput(Sockmap::Rust, "vsock-to-tcp", "sockmap", 64, 3.0),
            none,
        ];
        let rows = rows(&lines, &paths());
        assert_eq!(rows[0].columns["pristine"].median, 0.0);
        assert!(rows[0].ratios.is_empty());
        assert_eq!(
            incomplete(&lines),
            ["pristine kernel, sockmap, vsock-to-tcp: 0 % of 64"]
        );
    }

    #[test]
    fn bars_are_judged_by_the_worst_row() {
        let mut lines = of_each_kernel();
        lines.push(throughput(Sockmap::Rust, "vsock-to-tcp", "copy", 64, 100.0));
        lines.push(throughput(
            Sockmap::Rust,
            "vsock-to-tcp",
            "sockmap",
            64,
            110.0,
        ));
        let bars = judge(&rows(&lines, &paths()), true);
        let shown: Vec<_> = bars
            .iter()
            .map(|bar| {
                (
                    bar.bar.as_str(),
                    format!("{:.2}", bar.worst),
                    (bar.rows_met, bar.rows),
                    bar.met,
                )
            })
            .collect();
        let bar = |name, worst: &str, rows, met| (name, worst.to_string(), rows, met);
        assert_eq!(
            shown,
            [
                bar("rust/copy, each path and size", "1.10", (1, 2), false),
                bar("rust/pristine, each path and size", "60.00", (1, 1), true),
                bar("rust/pristine, each path, 65536", "60.00", (1, 1), true),
                bar("rust/c, each path and size", "2.00", (1, 1), true),
                bar("rust/c, unix-dgram-to-vsock, 65536", "2.00", (1, 1), true),
            ]
        );
        assert_eq!(bars[0].worst_at, "vsock-to-tcp, 64");
    }

    #[test]
    fn short_trips_are_the_good_ones() {
        let trip = |arm: &str, p50: f64| {
            let json = format!(
                r#"{{"path":"vsock-to-tcp","arm":"{arm}","round":0,"p50_us":{p50},"p99_us":9.0}}"#
            );
            measured(Sockmap::Rust, &json)
        };
        let bars = judge(
            &rows(&[trip("copy", 10.0), trip("sockmap", 7.0)], &paths()),
            true,
        );
        assert_eq!(bars.len(), 1);
        assert_eq!(bars[0].bar, "trip p50, rust/copy, each path");
        assert!(bars[0].met);
    }

    #[test]
    fn median_of_an_even_number_is_the_lower_middle() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 4.0));
        assert_eq!(Spread::of(&[]), None);
    }
}
