// SPDX-License-Identifier: GPL-2.0-only
//! The picture of all paths: a small panel for each.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{self, range, sizes, Area, Scale, COLOURS, FONT};
use crate::measure::figures::rows::Row;

/// The column that the Rust sockmap is compared with.
const OVER: &str = "copy";

/// How many panels are side by side.
const ACROSS: usize = 4;

/// Draws a panel for each path, all to the same scale.
pub fn draw(title: &str, panels: &[(&str, Vec<&Row>)]) -> Result<Option<String>> {
    let rows = || panels.iter().flat_map(|(_, rows)| rows.iter().copied());
    let ratios = rows().filter_map(|row| row.ratios.get(OVER).copied());
    // The scale has to include 1, where both are equally fast.
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
        // The title is as wide as three panels.
        let size = (240 * across.max(3) as u32, 48 + 220 * down as u32);
        let area: Area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        let area = area.margin(8, 0, 0, 0);
        let cells = area.titled(title, (FONT, 18))?.split_evenly((down, across));
        for ((path, rows), cell) in panels.iter().zip(&cells) {
            draw_panel(cell, path, rows, (x, y))?;
        }
        area.present()?;
    }
    Ok(Some(svg))
}

fn draw_panel(cell: &Area, path: &str, rows: &[&Row], (x, y): (Scale, Scale)) -> Result<()> {
    let mut chart = chart::draw(cell, path, 12, (x, y), sizes(rows))?;
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
        // The number is on the side of the point that is away from the line at 1.
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
    Ok(())
}
