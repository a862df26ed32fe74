// SPDX-License-Identifier: GPL-2.0-only
//! Reads kernel/base.toml, which names the kernel source that the series is made for.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::host::toolroot::Suites;

/// The content of kernel/base.toml.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// The Debian package that has the source as a tarball.
    pub package: String,
    /// The version of the package.
    pub version: String,
    /// The SHA256 of the tarball, in hexadecimal digits.
    pub sha256: String,
    /// The Debian suites that have the package and the tools.
    pub suites: Suites,
}

impl Base {
    /// Reads the file of a checkout.
    pub fn read(repo: &Path) -> Result<Self> {
        let path = repo.join("kernel/base.toml");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("correct {}", path.display()))
    }
}
