// SPDX-License-Identifier: GPL-2.0-only
//! The results of a test bed, and what follows from them.

use anyhow::Result;

use crate::measure::figures::goals::{judge, Judgement};
use crate::measure::figures::results::{Results, Setup};
use crate::measure::figures::rows::{rows, Row};
use crate::measure::plot;

pub struct BedResults<'a> {
    pub results: &'a Results,
    pub rows: Vec<Row>,
    pub judgements: Vec<Judgement>,
    pub plot: Option<String>,
}

impl<'a> BedResults<'a> {
    pub fn new(results: &'a Results) -> Result<Self> {
        let Setup { bed, paths, .. } = &results.setup;
        let rows = rows(&results.measurements, paths);
        let judgements = judge(&rows, results.is_loopback());
        let plot = plot::overview(bed, paths, &rows)?;
        Ok(BedResults {
            results,
            rows,
            judgements,
            plot,
        })
    }

    pub fn name(&self) -> &str {
        &self.results.setup.bed
    }

    /// Returns the name of the plot's file.
    pub fn plot_name(&self) -> String {
        format!("{}.svg", self.name())
    }
}
