// SPDX-License-Identifier: GPL-2.0-only
//! kernel/base.toml: which kernel source the series is made for.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::host::toolroot::Suites;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// Debian package that holds the source.
    pub package: String,
    pub version: String,
    /// SHA256 of the tarball in the package.
    pub sha256: String,
    /// Where the package is, and where the tool root comes from.
    pub suites: Suites,
}

impl Base {
    pub fn read(repo: &Path) -> Result<Self> {
        let path = repo.join("kernel/base.toml");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not right", path.display()))
    }
}
