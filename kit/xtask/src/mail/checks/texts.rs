// SPDX-License-Identifier: GPL-2.0-only
//! Checks of the text in all files of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Result};

use crate::host::proc;
use crate::mail::checks::subject::{expect_silence, Subject};

/// Checks the spelling in all files.
pub fn spelling(subject: &Subject) -> Result<String> {
    // --no-index also works without a git repository. Files that .gitignore names are left out. The
    // word benchs is the name of a folder in Linux.
    const ALL: &str = r#"
        git grep --no-index --exclude-standard -lIz "" -- ":!Cargo.lock" | xargs -0 codespell -L benchs
    "#;
    let mut spell = subject.root.command(&subject.env.repo, "sh");
    spell.args(["-c", ALL]);
    subject.git(&mut spell);
    expect_silence(spell)?;
    Ok("all files".to_string())
}

/// Checks that no file has a path of this machine or the name of a package server.
pub fn places(subject: &Subject) -> Result<String> {
    let mut places = vec![
        subject.env.repo.display().to_string(),
        subject.env.cache.display().to_string(),
    ];
    if let Some(home) = std::env::var_os("HOME").map(PathBuf::from) {
        // The folder /root may be named, since guests have one too.
        if home != Path::new("/root") && home != Path::new("/") {
            places.push(home.display().to_string());
        }
    }
    // The names are in parts, so that this file passes the check.
    let mut hosts = fs::read_to_string(subject.root.path.join("etc/apt/sources.list"))?;
    hosts += " https://deb.debian.";
    hosts += "org/ https://crates.";
    hosts += "io/ https://static.rust-lang.";
    hosts += "org/";
    places.extend(host_names(&hosts));
    let mut grep = subject.root.command(&subject.env.repo, "git");
    subject.git(&mut grep);
    // --no-index also reads files that git does not track yet.
    grep.args(["grep", "--no-index", "--exclude-standard", "-nIF"]);
    for place in &places {
        grep.arg("-e").arg(place);
    }
    // Cargo writes the name of its registry to Cargo.lock.
    grep.args(["--", ":!Cargo.lock"]);
    let mut said = Vec::new();
    let status = proc::lines(grep, |line| said.push(line.to_string()))?;
    match status.code() {
        Some(1) => Ok("no path of this machine, no package server".to_string()),
        _ => bail!(
            "remove these paths of this machine or names of package servers:\n{}",
            said.join("\n")
        ),
    }
}

/// Returns the host names of the URLs in a text.
fn host_names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .split("://")
        .skip(1)
        .filter_map(|rest| rest.split(['/', ':', ' ', '\n']).next())
        .map(String::from)
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_urls() {
        let text = "deb http://a.example/debian trixie main\ndeb https://b.example:81/x y\n\
                    deb http://a.example/z y\n";
        assert_eq!(host_names(text), ["a.example", "b.example"]);
    }
}
