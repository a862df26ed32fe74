// SPDX-License-Identifier: GPL-2.0-only
//! The JSON files that a report is made from.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::host::files::write_atomic;
use crate::kernel::build::Bed;
use crate::measure::figures::results::Results;

/// The order of the test beds in a report: the one that is closest to real use comes first.
const BEDS: [Bed; 3] = [Bed::PairHost, Bed::Qemu, Bed::Um];

/// The results of a test bed, and their file.
pub struct Input {
    pub results: Results,
    path: PathBuf,
}

impl Input {
    /// Copies the file as it is: numbers that are read and written again can differ in a last
    /// digit.
    pub fn copy_to(&self, dir: &Path) -> Result<()> {
        let name = self.path.file_name().context("a file has a name")?;
        let to = dir.join(name);
        if to != self.path {
            write_atomic(&to, &fs::read(&self.path)?)?;
        }
        Ok(())
    }
}

/// Returns the results of each test bed. If more than one folder has some, takes the ones with the
/// later date, and of the same date those of the first folder.
pub fn newest(dirs: &[&Path]) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for bed in BEDS {
        let mut newest: Option<Input> = None;
        for dir in dirs {
            let path = dir.join(format!("{}.json", bed.name()));
            if !path.exists() {
                continue;
            }
            let results = Results::read(&path)?;
            if newest
                .as_ref()
                .is_none_or(|newest| results.setup.date > newest.results.setup.date)
            {
                newest = Some(Input { results, path });
            }
        }
        inputs.extend(newest);
    }
    if inputs.is_empty() {
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        bail!(
            "there are no results in {}; `cargo xtask bench` measures",
            dirs.join(" or ")
        );
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::figures::samples;

    #[test]
    fn later_results_win() {
        let [new, old] = [(); 2].map(|_| tempfile::tempdir().unwrap());
        let mut results = samples::results("um");
        results.write(&old.path().join("um.json")).unwrap();
        let dirs = [new.path(), old.path()];
        assert_eq!(newest(&dirs).unwrap()[0].path, old.path().join("um.json"));
        // On the same day.
        results.write(&new.path().join("um.json")).unwrap();
        assert_eq!(newest(&dirs).unwrap()[0].path, new.path().join("um.json"));
        results.setup.date = "2025-12-31".to_string();
        results.write(&new.path().join("um.json")).unwrap();
        assert_eq!(newest(&dirs).unwrap()[0].path, old.path().join("um.json"));
        assert_eq!(newest(&dirs).unwrap().len(), 1);
    }
}
