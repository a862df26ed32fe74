// SPDX-License-Identifier: GPL-2.0-only
//! Performance goals, and which of them the measurements meet.

use std::fmt::Write as _;

use super::rows::{Row, Unit};

enum Wanted {
    Least(f64),
    Most(f64),
}

/// A limit for a figure of the Rust sockmap, or for its ratio to another column.
struct Goal {
    unit: Unit,
    /// The column to divide by. None is for the figure itself.
    over: Option<&'static str>,
    /// None is for all paths.
    path: Option<&'static str>,
    /// None is for all sizes.
    size: Option<usize>,
    /// Whether the goal is only for test beds where vsock is a loopback.
    loopback: bool,
    wanted: Wanted,
}

const GOALS: &[Goal] = &[
    Goal::new("socat", Wanted::Least(2.21))
        .at(65536)
        .of("unix-dgram-to-vsock"),
    Goal::new("direct", Wanted::Least(0.8))
        .at(65536)
        .of("unix-dgram-to-vsock"),
    Goal::new("copy", Wanted::Least(1.2)),
    Goal::new("pristine", Wanted::Least(1.0)),
    Goal::new("pristine", Wanted::Least(50.0))
        .at(65536)
        .on_loopback(),
    Goal::new("c", Wanted::Least(1.0)),
    Goal::new("c", Wanted::Least(1.3))
        .at(65536)
        .of("unix-dgram-to-vsock"),
    Goal::new("c", Wanted::Least(1.3))
        .at(512)
        .of("unix-dgram-to-vsock"),
    Goal::new("copy", Wanted::Most(0.8)).in_unit(Unit::P50Us),
    Goal {
        over: None,
        ..Goal::new("", Wanted::Most(17.0))
    }
    .at(65536)
    .of("unix-dgram-to-vsock")
    .in_unit(Unit::PacketsMib),
    Goal::new("copy", Wanted::Most(1.0)).in_unit(Unit::UpdatesMib),
    Goal::new("c", Wanted::Most(1.1)).in_unit(Unit::IdleKib),
];

impl Goal {
    const fn new(over: &'static str, wanted: Wanted) -> Self {
        Goal {
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
            Unit::MbS => String::new(),
            Unit::CpuMsMib => "CPU time, ".to_string(),
            Unit::P50Us => "trip p50, ".to_string(),
            Unit::P99Us => "trip p99, ".to_string(),
            Unit::PacketsMib | Unit::UpdatesMib | Unit::IdleKib => {
                format!("{}, ", self.unit.title())
            }
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

    /// Returns the figure that the goal limits, if a row has it.
    fn figure(&self, row: &Row) -> Option<f64> {
        let about = row.unit == self.unit
            && self.path.is_none_or(|path| path == row.path)
            && self.size.is_none_or(|size| size == row.size);
        match self.over {
            _ if !about => None,
            None => Some(row.columns.get("rust")?.median),
            Some(over) => row.ratios.get(over).copied(),
        }
    }

    fn judge(&self, rows: &[Row]) -> Option<Judgement> {
        let figures: Vec<(&Row, f64)> = rows
            .iter()
            .filter_map(|row| Some((row, self.figure(row)?)))
            .collect();
        let met = figures.iter().filter(|(_, figure)| self.meets(*figure));
        let rows_met = met.count();
        let order = |a: &&(&Row, f64), b: &&(&Row, f64)| a.1.total_cmp(&b.1);
        let (wanted, worst) = match self.wanted {
            Wanted::Least(least) => (format!(">= {least:.2}"), figures.iter().min_by(order)),
            Wanted::Most(most) => (format!("<= {most:.2}"), figures.iter().max_by(order)),
        };
        let (row, worst) = worst?;
        let connections = match row.connections {
            1 => String::new(),
            many => format!(", {many} connections"),
        };
        Some(Judgement {
            goal: self.name(),
            wanted,
            worst: *worst,
            worst_at: format!("{}, {}{connections}", row.path, row.size),
            rows_met,
            rows: figures.len(),
            met: rows_met == figures.len(),
        })
    }
}

/// How a goal compares with what was measured.
#[derive(Debug)]
pub struct Judgement {
    pub goal: String,
    pub wanted: String,
    /// The worst figure of all rows that the goal is for.
    pub worst: f64,
    pub worst_at: String,
    pub rows_met: usize,
    pub rows: usize,
    pub met: bool,
}

impl Judgement {
    pub fn word(&self) -> &'static str {
        match self.met {
            true => "met",
            false => "not met",
        }
    }
}

/// Judges the goals for which there is a figure.
pub fn judge(rows: &[Row], loopback: bool) -> Vec<Judgement> {
    GOALS
        .iter()
        .filter(|goal| loopback || !goal.loopback)
        .filter_map(|goal| goal.judge(rows))
        .collect()
}

/// Returns the table of the goals for a terminal.
pub fn table(judgements: &[Judgement]) -> String {
    let mut table = format!(
        "{:<50}{:>8}{:>8}{:>10}  {:<9}worst at\n",
        "goal", "wanted", "worst", "rows met", ""
    );
    for judgement in judgements {
        let _ = writeln!(
            table,
            "{:<50}{:>8}{:>8.2}{:>10}  {:<9}{}",
            judgement.goal,
            judgement.wanted,
            judgement.worst,
            format!("{}/{}", judgement.rows_met, judgement.rows),
            judgement.word(),
            judgement.worst_at
        );
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::rows::rows;
    use super::super::samples::{measured, of_each_kernel, paths, throughput};
    use super::*;
    use crate::kernel::build::Sockmap;

    #[test]
    fn goals_are_judged_by_the_worst_row() {
        let mut lines = of_each_kernel();
        let at = |arm, mb_s| throughput(Sockmap::Rust, "vsock-to-tcp", arm, 64, mb_s);
        lines.extend([at("copy", 100.0), at("sockmap", 110.0)]);
        let judgements = judge(&rows(&lines, &paths()), true);
        let shown: Vec<_> = judgements
            .iter()
            .map(|judgement| {
                (
                    judgement.goal.as_str(),
                    format!("{:.2}", judgement.worst),
                    (judgement.rows_met, judgement.rows),
                    judgement.met,
                )
            })
            .collect();
        let goal = |name, worst: &str, rows, met| (name, worst.to_string(), rows, met);
        assert_eq!(
            shown,
            [
                goal("rust/copy, each path and size", "1.10", (1, 2), false),
                goal("rust/pristine, each path and size", "60.00", (1, 1), true),
                goal("rust/pristine, each path, 65536", "60.00", (1, 1), true),
                goal("rust/c, each path and size", "2.00", (1, 1), true),
                goal("rust/c, unix-dgram-to-vsock, 65536", "2.00", (1, 1), true),
            ]
        );
        assert_eq!(judgements[0].worst_at, "vsock-to-tcp, 64");
    }

    #[test]
    fn short_trips_are_the_good_ones() {
        let trip = |arm: &str, p50: f64| {
            let json = format!(
                r#"{{"path":"vsock-to-tcp","arm":"{arm}","round":0,"p50_us":{p50},"p99_us":9.0}}"#
            );
            measured(Sockmap::Rust, &json)
        };
        let trips = [trip("copy", 10.0), trip("sockmap", 7.0)];
        let judgements = judge(&rows(&trips, &paths()), true);
        assert_eq!(judgements.len(), 1);
        assert_eq!(judgements[0].goal, "trip p50, rust/copy, each path");
        assert!(judgements[0].met);
    }
}
