// SPDX-License-Identifier: GPL-2.0-only
//! The picture of a path: a line for each arm.

use anyhow::Result;
use plotters::prelude::*;

use super::chart::{self, range, sizes, Area, Chart, COLOURS, FONT};
use crate::measure::figures::rows::{Row, COLUMNS};

/// Draws a line for each arm, with whiskers from the lowest to the highest figure.
pub fn draw(title: &str, rows: &[&Row]) -> Result<Option<String>> {
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
        let mut chart = chart::draw(&area, title, 15, (x, y), places)?;
        for index in 0..COLUMNS.len() {
            draw_arm(&mut chart, index, rows)?;
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

/// Draws the line of a column, if it has figures.
fn draw_arm(chart: &mut Chart, index: usize, rows: &[&Row]) -> Result<()> {
    let (column, colour) = (COLUMNS[index], COLOURS[index]);
    // The arms are a bit apart, so that no whisker hides behind another.
    let aside = 1.03_f64.powf(index as f64 - 2.5);
    let points: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.size as f64 * aside, row.columns.get(column)?)))
        .filter(|(_, spread)| spread.min > 0.0)
        .collect();
    if points.is_empty() {
        return Ok(());
    }
    let width = if column == "rust" { 3 } else { 2 };
    let line = LineSeries::new(
        points.iter().map(|(x, spread)| (*x, spread.median)),
        colour.stroke_width(width),
    );
    chart
        .draw_series(line)?
        .label(column)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(width)));
    chart.draw_series(points.iter().map(|(x, spread)| {
        let ends = [(*x, spread.min), (*x, spread.max)];
        PathElement::new(ends, colour.mix(0.5).stroke_width(2))
    }))?;
    let dots = points.iter().map(|(x, spread)| (*x, spread.median));
    chart.draw_series(dots.map(|at| Circle::new(at, 3, colour.filled())))?;
    Ok(())
}
