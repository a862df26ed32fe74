// SPDX-License-Identifier: GPL-2.0-only
//! Rows of the tables: medians of the measurements, and their ratios.

use std::collections::BTreeMap;

use super::measured::{Figure, Measured};
use crate::kernel::build::Sockmap;

/// How many bytes go around in a round trip.
const TRIP_SIZE: usize = 64;

/// The columns of the tables and the lines of the plots.
pub const COLUMNS: [&str; 6] = ["direct", "copy", "socat", "c", "pristine", "rust"];

/// Returns the column of a measurement: its arm, or the kernel if the arm is the sockmap.
fn column(arm: &str, kernel: Sockmap) -> String {
    match (arm, kernel) {
        ("sockmap", kernel) => kernel.name().to_string(),
        (arm, Sockmap::Rust) => arm.to_string(),
        (arm, kernel) => format!("{arm} ({} kernel)", kernel.name()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

    pub fn title(self) -> &'static str {
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

/// The range of a figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Of an even number of figures, the lower one of the middle two.
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
#[derive(Debug)]
pub struct Row {
    pub unit: Unit,
    pub path: String,
    pub connections: usize,
    pub size: usize,
    pub columns: BTreeMap<String, Spread>,
    /// The median of the Rust sockmap divided by the median of another column.
    pub ratios: BTreeMap<String, f64>,
}

impl Row {
    fn new(
        (unit, connections, size): (Unit, usize, usize),
        path: &str,
        figures: BTreeMap<String, Vec<f64>>,
    ) -> Self {
        let columns: BTreeMap<String, Spread> = figures
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
            path: path.to_string(),
            connections,
            size,
            columns,
            ratios,
        }
    }
}

/// Returns the size of the writes, the number of connections, and what was measured with them.
fn values(figure: &Figure) -> (usize, usize, [Option<(Unit, f64)>; 2]) {
    let with = |unit, value: Option<f64>| Some((unit, value?));
    match *figure {
        Figure::Throughput {
            size,
            connections,
            mb_s,
            cpu_ms_mib,
            ..
        } => {
            let cpu = with(Unit::CpuMsMib, cpu_ms_mib);
            (size, connections, [Some((Unit::MbS, mb_s)), cpu])
        }
        Figure::Trip { p50_us, p99_us } => {
            let trips = [(Unit::P50Us, p50_us), (Unit::P99Us, p99_us)];
            (TRIP_SIZE, 1, trips.map(Some))
        }
        Figure::Idle { idle_kib } => (0, 1, [Some((Unit::IdleKib, idle_kib)), None]),
        Figure::Packets {
            size,
            connections,
            packets_mib,
            updates_mib,
        } => {
            let packets = with(Unit::PacketsMib, packets_mib);
            let updates = with(Unit::UpdatesMib, updates_mib);
            (size, connections, [packets, updates])
        }
    }
}

/// Returns all rows in the order of the tables.
pub fn rows(measured: &[Measured], paths: &[String]) -> Vec<Row> {
    type Place = (Unit, usize, usize, usize);
    let mut all: BTreeMap<Place, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for Measured { kernel, line } in measured {
        let Some(path) = paths.iter().position(|path| *path == line.path) else {
            continue;
        };
        let (size, connections, values) = values(&line.figure);
        for (unit, value) in values.into_iter().flatten() {
            all.entry((unit, path, connections, size))
                .or_default()
                .entry(column(&line.arm, *kernel))
                .or_default()
                .push(value);
        }
    }
    all.into_iter()
        .map(|((unit, path, connections, size), figures)| {
            Row::new((unit, connections, size), &paths[path], figures)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{measured, paths, throughput};
    use super::*;

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
    }

    #[test]
    fn median_of_an_even_number_is_the_lower_middle() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 4.0));
        assert_eq!(Spread::of(&[]), None);
    }
}
