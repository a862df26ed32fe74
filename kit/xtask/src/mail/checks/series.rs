// SPDX-License-Identifier: GPL-2.0-only
//! Checks of the series: it is complete, and its mails are as maintainers want them.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{bail, ensure, Result};
use glob::{MatchOptions, Pattern};

use crate::kernel::changes;
use crate::mail::checks::subject::{expect_silence, Subject};
use crate::mail::manifest::Manifest;

/// Checks that each file belongs to one patch, and that the messages are well formed.
pub fn manifest(subject: &Subject) -> Result<String> {
    let manifest = Manifest::read(&subject.env.repo)?;
    let count = manifest.patches().count();
    let files = changes::overlay_files(&subject.env.repo)?.len();
    Ok(format!("{count} patches, {files} new files"))
}

/// Checks that `git am` of the mails gives the work tree.
pub fn git_am(subject: &Subject) -> Result<String> {
    let patches = subject.patches()?;
    let manifest = Manifest::read(&subject.env.repo)?;
    subject.exporter(&manifest).give(&subject.tree, &patches)?;
    Ok(format!(
        "git am of {} patches gives the work tree",
        patches.len()
    ))
}

/// Checks the mails with the kernel's checkpatch.pl.
pub fn checkpatch(subject: &Subject) -> Result<String> {
    // FILE_PATH_CHANGES asks for MAINTAINERS in each patch, but the last patch has all of it, and
    // `maintainers` checks it. UNKNOWN_COMMIT_ID needs the history of Linux, which is not here. The
    // person who sends adds the Signed-off-by. The option --codespell is left out, since it takes
    // minutes, while the check `spelling` takes a second.
    const EACH: &str = r#"
        printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" perl scripts/checkpatch.pl --strict \
            --no-signoff --no-summary --ignore FILE_PATH_CHANGES,UNKNOWN_COMMIT_ID \
            --show-types --terse
    "#;
    let patches = subject.patches()?;
    let mut check = subject.shell(EACH);
    check.args(&patches);
    if let Err(error) = expect_silence(check) {
        // Each line begins with the path of a mail. Its folder is removed.
        let mut said = error.to_string();
        for folder in patches.iter().filter_map(|mail| mail.parent()) {
            said = said.replace(&format!("{}/", folder.display()), "");
        }
        bail!("{said}");
    }
    Ok(format!("{} patches", patches.len()))
}

/// Checks that MAINTAINERS names each new file, and that its new lines name no others.
pub fn maintainers(subject: &Subject) -> Result<String> {
    const FILE: &str = "MAINTAINERS";
    let files: Vec<_> = changes::overlay_files(&subject.env.repo)?
        .into_keys()
        .collect();
    let wrong = maintainers_faults(
        &fs::read_to_string(subject.tree.source.path.join(FILE))?,
        &fs::read_to_string(subject.tree.path.join(FILE))?,
        &files,
    );
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(format!("{} new files", files.len()))
}

/// Returns the faults of a new MAINTAINERS. It has to name each new file, or the folder of the
/// file. An old line that names a parent folder, such as `net/`, does not count.
fn maintainers_faults(old: &str, new: &str, files: &[String]) -> Vec<String> {
    fn patterns(text: &str) -> BTreeSet<&str> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("F:"));
        lines.map(str::trim).collect()
    }
    let (old, new) = (patterns(old), patterns(new));
    let mut wrong = Vec::new();
    for file in files {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        if !new.difference(&old).any(|pattern| covers(pattern, file))
            && !new.contains(file.as_str())
            && !new.contains(format!("{folder}/").as_str())
        {
            wrong.push(format!("{file}: add the file or its folder to MAINTAINERS"));
        }
    }
    for pattern in new.difference(&old) {
        if !files.iter().any(|file| covers(pattern, file)) {
            wrong.push(format!(
                "F: {pattern}: remove this line; no new file matches it"
            ));
        }
    }
    wrong
}

/// Returns whether an `F:` line of MAINTAINERS is for a file: a folder for all below it, and `*` for
/// a part of a name.
fn covers(pattern: &str, file: &str) -> bool {
    const OPTIONS: MatchOptions = MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };
    if pattern.ends_with('/') {
        return file.starts_with(pattern);
    }
    Pattern::new(pattern).is_ok_and(|pattern| pattern.matches_with(file, OPTIONS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintainers_has_new_files_and_no_others() {
        let old = "NET\nF:\tnet/\nF:\trust/lock/\n\nTHE REST\nF:\t*\n";
        let new = format!("NEW\nF:\tnet/new/\nF:\trust/x.rs\nF:\ttools/*_new.c\n\n{old}");
        let files = |names: &[&str]| {
            names
                .iter()
                .map(|name| name.to_string())
                .collect::<Vec<_>>()
        };
        let all = files(&[
            "net/new/a.rs",
            "net/new/x/a.rs",
            "rust/x.rs",
            "rust/lock/b.rs",
            "tools/a_new.c",
        ]);
        assert!(maintainers_faults(old, &new, &all).is_empty());
        assert_eq!(maintainers_faults(old, old, &all).len(), 4);
        let wrong = maintainers_faults(old, &new, &files(&["net/new/a.rs", "tools/x/a_new.c"]));
        assert_eq!(
            wrong,
            [
                "tools/x/a_new.c: add the file or its folder to MAINTAINERS",
                "F: rust/x.rs: remove this line; no new file matches it",
                "F: tools/*_new.c: remove this line; no new file matches it"
            ]
        );
    }
}
