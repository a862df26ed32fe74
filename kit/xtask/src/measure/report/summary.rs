// SPDX-License-Identifier: GPL-2.0-only
//! The summary: how fast each arm is, compared with the copy loop.

use std::fmt::Write as _;

use super::bed::BedResults;
use crate::measure::figures::rows::{Row, Unit};

/// The paths of the summary.
const PATHS: [&str; 5] = [
    "unix-dgram-to-vsock",
    "unix-stream-to-vsock",
    "tcp-to-vsock",
    "vsock-to-unix-stream",
    "vsock-to-tcp",
];

/// The sizes of the writes, and their titles.
const SIZES: [(usize, &str); 2] = [(65536, "64 KiB writes"), (512, "512 B writes")];

/// The columns, and what each is divided by.
const COLUMNS: [&str; 4] = ["direct", "socat", "c", "rust"];
const OVER: &str = "copy";

const WIDTH: usize = 7;

/// Returns the table, fenced as code, with a line for each test bed and path.
pub fn table(beds: &[BedResults]) -> String {
    let mut table = format!("```\n{:<26}", "MB/s, copy loop = 1");
    for (_, title) in SIZES {
        let _ = write!(table, "  {title:^w$}", w = WIDTH * COLUMNS.len());
    }
    table.truncate(table.trim_end().len());
    let _ = write!(table, "\n{:<5}{:<21}", "bed", "path");
    for _ in SIZES {
        table.push_str("  ");
        for column in COLUMNS {
            let _ = write!(table, "{column:>WIDTH$}");
        }
    }
    table.push('\n');
    for bed in beds {
        for path in PATHS {
            add_line(&mut table, bed, path);
        }
    }
    table.push_str("```\n");
    table
}

/// Adds the line of a path, if it was measured.
fn add_line(table: &mut String, bed: &BedResults, path: &str) {
    let rows: Vec<&Row> = bed
        .rows
        .iter()
        .filter(|row| row.unit == Unit::MbS && row.connections == 1 && row.path == path)
        .collect();
    if rows.is_empty() {
        return;
    }
    let _ = write!(table, "{:<5}{path:<21}", bed.name());
    for (size, _) in SIZES {
        let row = rows.iter().find(|row| row.size == size);
        table.push_str("  ");
        for column in COLUMNS {
            let ratio = row.and_then(|row| ratio(row, column));
            let ratio = ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
            let _ = write!(table, "{ratio:>WIDTH$}");
        }
    }
    table.push('\n');
}

fn ratio(row: &Row, column: &str) -> Option<f64> {
    let over = row.columns.get(OVER)?.median;
    let median = row.columns.get(column)?.median;
    (over > 0.0).then_some(median / over)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::figures::samples;

    #[test]
    fn a_line_for_each_path_that_was_measured() {
        let (um, pair) = (samples::results("um"), samples::results("pair"));
        let beds = [&pair, &um].map(|results| BedResults::new(results).unwrap());
        let table = table(&beds);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 6, "{table}");
        let words: Vec<&str> = lines[3].split_whitespace().collect();
        let row = "pair unix-dgram-to-vsock - - 1.50 3.00 - - - -";
        assert_eq!(words.join(" "), row);
        assert_eq!(lines[2].len(), lines[3].len());
        assert!(lines[4].starts_with("um "));
    }
}
