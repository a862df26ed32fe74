// SPDX-License-Identifier: GPL-2.0-only
//! The parts that all pictures share: areas, colours, scales, labels.

use anyhow::Result;
use plotters::coord::combinators::WithKeyPoints;
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::measure::figures::rows::Row;

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The lower and the upper end of an axis.
pub type Scale = (f64, f64);

type Axis = WithKeyPoints<LogCoord<f64>>;

pub type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

pub const FONT: &str = "sans-serif";

/// The colours of the columns, in the order of `COLUMNS`. A colour-blind person can tell them
/// apart.
pub const COLOURS: [RGBColor; 6] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xc0, 0x2f, 0x1d),
];

/// Returns a range that holds all values, with some room. None if no value is above 0, which is
/// what a logarithmic scale can show.
pub fn range(values: impl Iterator<Item = f64>, room: f64) -> Option<Scale> {
    let (low, high) = values
        .filter(|value| *value > 0.0)
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    (high > 0.0).then_some((low / room, high * room))
}

/// Returns round numbers in a range: 1, 2, 5, 10 and so on, or powers of ten in a wide range.
fn ticks((low, high): Scale) -> Vec<f64> {
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

/// Returns a size as a label: `4K` for 4096.
fn short(size: usize) -> String {
    match size {
        0..1024 => size.to_string(),
        1024..1_048_576 => format!("{}K", size / 1024),
        _ => format!("{}M", size >> 20),
    }
}

/// Returns a number as a label, without zeroes at its end.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

pub fn sizes(rows: &[&Row]) -> Vec<f64> {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.size).collect();
    sizes.sort();
    sizes.dedup();
    sizes.into_iter().map(|size| size as f64).collect()
}

/// Draws an empty chart with a caption, logarithmic scales, and ticks at the given sizes.
pub fn draw<'a, 'b>(
    area: &Area<'a>,
    caption: &str,
    font: u32,
    (x, y): (Scale, Scale),
    sizes: Vec<f64>,
) -> Result<Chart<'b, 'a>>
where
    'a: 'b,
{
    let mut chart = ChartBuilder::on(area)
        .margin(font / 2)
        .caption(caption, (FONT, font + 2))
        .x_label_area_size(font * 2)
        .y_label_area_size(font * 3)
        .build_cartesian_2d(
            (x.0..x.1).log_scale().with_key_points(sizes),
            (y.0..y.1).log_scale().with_key_points(ticks(y)),
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
    Ok(chart)
}

#[cfg(test)]
mod tests {
    use super::*;

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
