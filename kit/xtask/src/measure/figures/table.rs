// SPDX-License-Identifier: GPL-2.0-only
//! Tables of fixed width, which a terminal and the report show alike.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::measured::{Figure, Measured};
use super::rows::{Row, Unit, COLUMNS};

/// The columns that the tables compare the Rust sockmap with.
const COMPARED: [&str; 3] = ["copy", "c", "pristine"];

/// Returns the table of a unit, with medians and the ratios that matter; it is empty if there is
/// no row.
pub fn table(rows: &[Row], unit: Unit) -> String {
    let rows: Vec<_> = rows.iter().filter(|row| row.unit == unit).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut table = format!("{:<22}{:>8}{:>6}", unit.title(), "size", "conn");
    for column in COLUMNS {
        let _ = write!(table, "{column:>9}");
    }
    let _ = write!(table, "{:>18}", "min..max");
    for other in COMPARED {
        let title = format!("rust/{other}");
        let _ = write!(table, "{title:>w$}", w = other.len() + 7);
    }
    table.push('\n');
    for row in rows {
        add_row(&mut table, row);
    }
    table
}

fn add_row(table: &mut String, row: &Row) {
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

/// Returns a line for each kernel, arm and path where bytes were missing at the time limit, with
/// the share that arrived. UDP is left out, as it may lose bytes.
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

#[cfg(test)]
mod tests {
    use super::super::rows::rows;
    use super::super::samples::{measured, of_each_kernel, paths};
    use super::*;
    use crate::kernel::build::Sockmap;

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
            words(head)[1..].join(" "),
            "size conn direct copy socat c pristine rust min..max rust/copy rust/c rust/pristine"
        );
        assert_eq!(
            words(row).join(" "),
            "unix-dgram-to-vsock 65536 1 - 10.0 - 15.0 0.5 30.0 20.0..90.0 3.00 2.00 60.00"
        );
        assert_eq!(head.len(), row.len());
    }

    #[test]
    fn no_row_is_no_table() {
        assert_eq!(table(&rows(&of_each_kernel(), &paths()), Unit::IdleKib), "");
    }

    #[test]
    fn bytes_that_did_not_arrive_are_told() {
        let half = |path: &str| {
            let json = format!(
                r#"{{"path":"{path}","arm":"sockmap","round":0,"size":64,"connections":1,
                    "bytes":50,"of":100,"mb_s":1.0,"cpu_ms_mib":null}}"#
            );
            measured(Sockmap::Pristine, &json)
        };
        assert_eq!(
            incomplete(&[half("vsock-to-tcp"), half("udp-to-vsock")]),
            ["pristine kernel, sockmap, vsock-to-tcp: 50 % of 64"]
        );
    }
}
