// SPDX-License-Identifier: GPL-2.0-only
//! Throughput as pictures.

use std::path::Path;

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::{Row, Unit, COLUMNS};
use crate::host::files::write_atomic;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const FONT: &str = "sans-serif";

/// Told apart by those who do not see all colours; in the order of `COLUMNS`.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xc0, 0x2f, 0x1d),
];

/// Writes a picture of each path, and one of all; returns their names.
pub fn write(dir: &Path, bed: &str, paths: &[String], rows: &[Row]) -> Result<Vec<String>> {
    let rows = || rows.iter().filter(|row| row.unit == Unit::MbS);
    // A line is an arm; more connections than the fewest are for the tables.
    let fewest = rows().map(|row| row.connections).min();
    let rows: Vec<&Row> = rows()
        .filter(|row| Some(row.connections) == fewest)
        .collect();
    let of = |path: &String| -> Vec<&Row> {
        rows.iter()
            .filter(|row| row.path == *path)
            .copied()
            .collect()
    };
    let bed_and_many = match fewest {
        None | Some(1) => format!("bed {bed}"),
        Some(many) => format!("bed {bed}, {many} connections"),
    };
    let mut names = Vec::new();
    let mut keep = |name: String, svg: String| -> Result<()> {
        write_atomic(&dir.join(&name), svg.as_bytes())?;
        names.push(name);
        Ok(())
    };
    for path in paths {
        let title = format!("{path}, {bed_and_many}: MB/s by bytes of a write");
        if let Some(svg) = throughput(&title, &of(path))? {
            keep(format!("{bed}-{path}.svg"), svg)?;
        }
    }
    let panels: Vec<_> = paths.iter().map(|path| (path.as_str(), of(path))).collect();
    let title = format!("Rust sockmap / copy loop, {bed_and_many}: throughput by bytes of a write");
    if let Some(svg) = overview(&title, &panels)? {
        keep(format!("{bed}-overview.svg"), svg)?;
    }
    Ok(names)
}

/// A range that holds all values, with some room; None where a logarithm has nothing to show.
fn range(values: impl Iterator<Item = f64>, room: f64) -> Option<(f64, f64)> {
    let (low, high) = values
        .filter(|value| *value > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    (high > 0.0).then_some((low / room, high * room))
}

/// Round numbers in a range: 1, 2, 5, 10 and so on; only powers of ten in a wide one.
fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    let digits: &[f64] = if high / low > 2e3 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)))
        .filter(|tick| (low..=high).contains(tick))
        .collect()
}

/// `4K` for 4096.
fn short(size: usize) -> String {
    match size {
        0..1024 => size.to_string(),
        1024..1_048_576 => format!("{}K", size / 1024),
        _ => format!("{}M", size >> 20),
    }
}

/// Without digits that say nothing.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn sizes(rows: &[&Row]) -> Vec<f64> {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.size).collect();
    sizes.sort();
    sizes.dedup();
    sizes.into_iter().map(|size| size as f64).collect()
}

/// All that is drawn is text and lines, so both scales are as given and both axes have ticks at
/// chosen places.
macro_rules! chart {
    ($area:expr, $caption:expr, $font:expr, $x:expr, $y:expr, $sizes:expr) => {{
        let font = $font;
        let mut chart = ChartBuilder::on($area)
            .margin(font / 2)
            .caption($caption, (FONT, font + 2))
            .x_label_area_size(font * 2)
            .y_label_area_size(font * 3)
            .build_cartesian_2d(
                ($x.0..$x.1).log_scale().with_key_points($sizes),
                ($y.0..$y.1).log_scale().with_key_points(ticks($y)),
            )?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .axis_style(BLACK.mix(0.5))
            .x_label_formatter(&|size| short(*size as usize))
            .y_label_formatter(&|value| number(*value))
            .label_style((FONT, font))
            .draw()?;
        chart
    }};
}

/// One line an arm, with whiskers from the lowest to the highest.
fn throughput(title: &str, rows: &[&Row]) -> Result<Option<String>> {
    let spreads = rows.iter().flat_map(|row| {
        COLUMNS
            .iter()
            .filter_map(|column| row.columns.get(*column))
            .flat_map(|spread| [spread.min, spread.max])
    });
    let places = sizes(rows);
    let (Some(x), Some(y)) = (range(places.iter().copied(), 1.3), range(spreads, 1.2)) else {
        return Ok(None);
    };
    let mut svg = String::new();
    {
        let area: Area = SVGBackend::with_string(&mut svg, (800, 500)).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = chart!(&area, title, 15, x, y, places);
        for (index, column) in COLUMNS.iter().enumerate() {
            let colour = COLOURS[index];
            // Beside each other, so that a whisker does not hide behind another.
            let aside = 1.03_f64.powf(index as f64 - 2.5);
            let points: Vec<_> = rows
                .iter()
                .filter_map(|row| Some((row.size as f64 * aside, row.columns.get(*column)?)))
                .filter(|(_, spread)| spread.min > 0.0)
                .collect();
            if points.is_empty() {
                continue;
            }
            let width = if *column == "rust" { 3 } else { 2 };
            let line = LineSeries::new(
                points.iter().map(|(x, spread)| (*x, spread.median)),
                colour.stroke_width(width),
            );
            chart
                .draw_series(line)?
                .label(*column)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(width))
                });
            chart.draw_series(points.iter().map(|(x, spread)| {
                let ends = [(*x, spread.min), (*x, spread.max)];
                PathElement::new(ends, colour.mix(0.5).stroke_width(2))
            }))?;
            let dots = points.iter().map(|(x, spread)| (*x, spread.median));
            chart.draw_series(dots.map(|at| Circle::new(at, 3, colour.filled())))?;
        }
        // Larger writes are faster, so this corner is free.
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 15))
            .draw()?;
        area.present()?;
    }
    Ok(Some(svg))
}

/// A small picture for each path, all to the same scale.
fn overview(title: &str, panels: &[(&str, Vec<&Row>)]) -> Result<Option<String>> {
    const OVER: &str = "copy";
    const ACROSS: usize = 4;
    let rows = || panels.iter().flat_map(|(_, rows)| rows.iter().copied());
    let ratios = rows().filter_map(|row| row.ratios.get(OVER).copied());
    // With 1 in it, which is what the lines are to be seen against.
    let (Some(x), Some(y)) = (
        range(rows().map(|row| row.size as f64), 1.5),
        range(ratios.chain([1.0]), 1.5),
    ) else {
        return Ok(None);
    };
    let across = panels.len().min(ACROSS);
    let down = panels.len().div_ceil(ACROSS);
    let mut svg = String::new();
    {
        // The title is as wide as three.
        let size = (240 * across.max(3) as u32, 48 + 220 * down as u32);
        let area: Area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        let area = area.margin(8, 0, 0, 0);
        let cells = area.titled(title, (FONT, 18))?.split_evenly((down, across));
        for ((path, rows), cell) in panels.iter().zip(&cells) {
            let mut chart = chart!(cell, path, 12, x, y, sizes(rows));
            let even = PathElement::new([(x.0, 1.0), (x.1, 1.0)], BLACK.mix(0.6));
            chart.draw_series([even])?;
            let colour = COLOURS[5];
            let points: Vec<(f64, f64)> = rows
                .iter()
                .filter_map(|row| Some((row.size as f64, *row.ratios.get(OVER)?)))
                .filter(|(_, ratio)| *ratio > 0.0)
                .collect();
            chart.draw_series(LineSeries::new(
                points.iter().copied(),
                colour.stroke_width(2),
            ))?;
            chart.draw_series(points.iter().map(|at| {
                // Away from the line at 1.
                let (pos, down) = if at.1 < 1.0 {
                    (VPos::Top, 6)
                } else {
                    (VPos::Bottom, -6)
                };
                let style = (FONT, 11)
                    .into_text_style(cell)
                    .pos(Pos::new(HPos::Center, pos));
                EmptyElement::at(*at)
                    + Circle::new((0, 0), 3, colour.filled())
                    + Text::new(format!("{:.2}", at.1), (0, down), style)
            }))?;
        }
        area.present()?;
    }
    Ok(Some(svg))
}

#[cfg(test)]
mod tests {
    use super::super::figures::{rows, tests};
    use super::*;
    use crate::kernel::build::Sockmap;

    fn some_rows() -> Vec<Row> {
        let mut lines = Vec::new();
        for size in [64, 65536] {
            for arm in ["copy", "sockmap"] {
                for path in tests::paths() {
                    let mb_s = size as f64 / 50.0;
                    lines.push(tests::throughput(Sockmap::Rust, &path, arm, size, mb_s));
                }
            }
        }
        rows(&lines, &tests::paths())
    }

    #[test]
    fn one_picture_a_path_and_one_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let names = write(dir.path(), "um", &tests::paths(), &some_rows()).unwrap();
        assert_eq!(
            names,
            [
                "um-unix-dgram-to-vsock.svg",
                "um-vsock-to-tcp.svg",
                "um-overview.svg"
            ]
        );
        let svg = std::fs::read_to_string(dir.path().join(&names[1])).unwrap();
        for text in ["64K", "copy", "rust", "vsock-to-tcp"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("socat"));
    }

    #[test]
    fn nothing_measured_is_no_picture() {
        let dir = tempfile::tempdir().unwrap();
        let names = write(dir.path(), "um", &tests::paths(), &[]).unwrap();
        assert!(names.is_empty());
    }

    #[test]
    fn range_leaves_out_what_has_no_logarithm() {
        assert_eq!(range([0.0, 2.0, 8.0].into_iter(), 2.0), Some((1.0, 16.0)));
        assert_eq!(range([0.0].into_iter(), 2.0), None);
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(ticks((0.4, 12.0)), [0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(ticks((0.5, 2e3)), [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(
            [64, 4096, 262_144, 1 << 20].map(short),
            ["64", "4K", "256K", "1M"]
        );
        assert_eq!(
            [0.5, 2.0, 1000.0, 0.05].map(number),
            ["0.5", "2", "1000", "0.05"]
        );
    }
}
