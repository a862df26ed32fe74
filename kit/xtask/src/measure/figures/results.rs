// SPDX-License-Identifier: GPL-2.0-only
//! The JSON file in which `bench` keeps everything that it measured on a test bed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::host::files::write_atomic;
use crate::kernel::build::Bed;

use super::measured::Measured;

/// All that was measured on one test bed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Results {
    #[serde(flatten)]
    pub setup: Setup,
    pub measurements: Vec<Measured>,
}

/// How the measurements were made.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Setup {
    /// The name of the test bed, as in `--bed`.
    pub bed: String,
    /// The day, `2026-01-31`, in UTC.
    pub date: String,
    /// The version of the kernel source under the series.
    pub source: String,
    /// How many processors the measuring machine has.
    pub processors: usize,
    /// Whether the machine ran QEMU's guest on its own processor, by KVM.
    pub kvm: bool,
    /// How many measurements each median is of.
    pub rounds: u32,
    /// For how long the copy loop ran in a measurement of throughput, in milliseconds. The other
    /// arms moved as many bytes.
    pub time_ms: u64,
    /// The paths, in the order of the tables.
    pub paths: Vec<String>,
    /// Measurements on the pristine kernel that gave no figure.
    pub failed: Vec<Failed>,
}

/// A measurement on the pristine kernel that gave no figure.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Failed {
    pub what: String,
    pub why: String,
}

impl Results {
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("cannot understand {}", path.display()))
    }

    pub fn parse(text: &str) -> Result<Self> {
        Ok(serde_json::from_str(text)?)
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        write_atomic(path, self.text()?.as_bytes())
    }

    /// Returns the content of the file. Each measurement is one line, so that `diff` shows those
    /// that differ.
    pub fn text(&self) -> Result<String> {
        let setup = serde_json::to_string_pretty(&self.setup)?;
        let setup = setup.trim_end_matches(['\n', '}']);
        let lines: Vec<String> = self
            .measurements
            .iter()
            .map(serde_json::to_string)
            .collect::<Result<_, _>>()?;
        let lines = lines.join(",\n    ");
        Ok(format!(
            "{setup},\n  \"measurements\": [\n    {lines}\n  ]\n}}\n"
        ))
    }

    /// Tells whether the far ends of the vsocks were in the guest too.
    pub fn is_loopback(&self) -> bool {
        self.setup.bed != Bed::PairHost.name()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;

    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let results = samples::results("um");
        let text = results.text().unwrap();
        let again = Results::parse(&text).unwrap();
        assert_eq!(again.text().unwrap(), text);
        assert_eq!(again.measurements.len(), results.measurements.len());
        // A line each, and not the rest of the file on one of them.
        let lines = text.lines().filter(|line| line.contains("\"arm\""));
        assert_eq!(lines.count(), results.measurements.len());
    }

    #[test]
    fn a_kernel_that_does_not_exist_is_an_error() {
        let text = samples::results("um").text().unwrap();
        let error = Results::parse(&text.replace("\"c\"", "\"d\"")).unwrap_err();
        assert!(error.to_string().contains("`d`"), "{error}");
    }
}
