// SPDX-License-Identifier: GPL-2.0-only
//! Throughput as pictures, in SVG.

mod chart;
mod overview;
mod path;

use anyhow::Result;

use crate::measure::figures::rows::{Row, Unit};

/// Draws a picture for each path and one of all paths. Returns file names and contents.
pub fn all(bed: &str, paths: &[String], rows: &[Row]) -> Result<Vec<(String, String)>> {
    let (rows, bed_and_many) = shown(bed, rows);
    let mut plots = Vec::new();
    for path in paths {
        let title = format!("{path}, {bed_and_many}: MB/s by bytes of a write");
        if let Some(svg) = path::draw(&title, &of_path(&rows, path))? {
            plots.push((format!("{bed}-{path}.svg"), svg));
        }
    }
    if let Some(svg) = overview_of(&bed_and_many, paths, &rows)? {
        plots.push((format!("{bed}-overview.svg"), svg));
    }
    Ok(plots)
}

/// Draws the picture of all paths; there is none if nothing was compared with the copy loop.
pub fn overview(bed: &str, paths: &[String], rows: &[Row]) -> Result<Option<String>> {
    let (rows, bed_and_many) = shown(bed, rows);
    overview_of(&bed_and_many, paths, &rows)
}

/// Returns the rows of throughput that have the fewest connections, as a plot has one line for each
/// arm, and words for the title.
fn shown<'a>(bed: &str, rows: &'a [Row]) -> (Vec<&'a Row>, String) {
    let rows = || rows.iter().filter(|row| row.unit == Unit::MbS);
    let fewest = rows().map(|row| row.connections).min();
    let bed_and_many = match fewest {
        None | Some(1) => format!("bed {bed}"),
        Some(many) => format!("bed {bed}, {many} connections"),
    };
    let rows = rows().filter(|row| Some(row.connections) == fewest);
    (rows.collect(), bed_and_many)
}

fn of_path<'a>(rows: &[&'a Row], path: &str) -> Vec<&'a Row> {
    let of = rows.iter().filter(|row| row.path == path);
    of.copied().collect()
}

fn overview_of(bed_and_many: &str, paths: &[String], rows: &[&Row]) -> Result<Option<String>> {
    let panels: Vec<_> = paths
        .iter()
        .map(|path| (path.as_str(), of_path(rows, path)))
        .collect();
    let title = format!("Rust sockmap / copy loop, {bed_and_many}: throughput by bytes of a write");
    overview::draw(&title, &panels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::build::Sockmap;
    use crate::measure::figures::rows::rows;
    use crate::measure::figures::samples::{paths, throughput};

    fn some_rows() -> Vec<Row> {
        let mut lines = Vec::new();
        for size in [64, 65536] {
            for arm in ["copy", "sockmap"] {
                for path in paths() {
                    let mb_s = size as f64 / 50.0;
                    lines.push(throughput(Sockmap::Rust, &path, arm, size, mb_s));
                }
            }
        }
        rows(&lines, &paths())
    }

    #[test]
    fn one_picture_a_path_and_one_of_all() {
        let plots = all("um", &paths(), &some_rows()).unwrap();
        let names: Vec<_> = plots.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "um-unix-dgram-to-vsock.svg",
                "um-vsock-to-tcp.svg",
                "um-overview.svg"
            ]
        );
        let svg = &plots[1].1;
        for text in ["64K", "copy", "rust", "vsock-to-tcp"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("socat"));
        let overview = overview("um", &paths(), &some_rows()).unwrap();
        assert_eq!(overview.as_ref(), Some(&plots[2].1));
    }

    #[test]
    fn nothing_measured_is_no_picture() {
        assert!(all("um", &paths(), &[]).unwrap().is_empty());
        assert_eq!(overview("um", &paths(), &[]).unwrap(), None);
    }
}
