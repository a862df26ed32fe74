// SPDX-License-Identifier: GPL-2.0-only
//! Checks of the kit's own code.

use anyhow::Result;

use crate::host::step;
use crate::mail::checks::subject::{expect_silence, Subject};

/// Checks the format of all crates.
pub fn rustfmt(subject: &Subject) -> Result<String> {
    let mut fmt = subject.cargo();
    fmt.args(["fmt", "--all", "--check", "--", "--color=never"]);
    expect_silence(fmt)?;
    Ok("all crates".to_string())
}

/// Checks that clippy has no warnings for any crate.
pub fn clippy(subject: &Subject) -> Result<String> {
    let mut clippy = subject.cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--locked"]);
    clippy.args(["--", "-D", "warnings"]);
    step::run(subject.env, "lint the kit", clippy)?;
    Ok("all crates".to_string())
}
