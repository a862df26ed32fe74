// SPDX-License-Identifier: GPL-2.0-only
//! Checks of the documentation.

use anyhow::Result;

use crate::host::step;
use crate::host::toolroot::ToolRoot;
use crate::kernel::base::Base;
use crate::kernel::changes;
use crate::mail::checks::subject::Subject;
use crate::measure::report;

/// Runs `make htmldocs` for each page that the repository adds, with warnings as errors. Each page
/// is built alone, since all pages of its folder would take minutes.
pub fn htmldocs(subject: &Subject) -> Result<String> {
    // Each run starts with an empty /tmp, since Sphinx is silent about a page that it has built
    // before. Without Sphinx make returns 0, so the script looks for the page at the end.
    const EACH: &str = r#"
        make -s O=/tmp/htmldocs SPHINXDIRS="$1" htmldocs SPHINXOPTS="-q -W --keep-going \
            -D master_doc=$2 -D include_patterns=$2.rst" &&
        test -s "/tmp/htmldocs/Documentation/output/$1/$2.html"
    "#;
    let env = subject.env;
    let docs = ToolRoot::ensure_docs(env, &Base::read(&env.repo)?.suites)?;
    let mut pages = Vec::new();
    for file in changes::overlay_files(&env.repo)?.into_keys() {
        let page = file
            .strip_prefix("Documentation/")
            .and_then(|page| page.strip_suffix(".rst"));
        let Some(page) = page else {
            continue;
        };
        let (folder, name) = page.rsplit_once('/').unwrap_or((".", page));
        let mut make = docs.command(&subject.tree.path, "sh");
        make.args(["-c", EACH, "sh", folder, name]);
        step::run(env, &format!("make htmldocs of {file}"), make)?;
        pages.push(file);
    }
    Ok(pages.join(", "))
}

/// Checks that nobody has edited the report of `bench`, its plots and the table of README.md: they
/// are what the JSON files give.
pub fn benchmarks(subject: &Subject) -> Result<String> {
    report::is_current(&subject.env.repo)?;
    Ok("docs/benchmarks.md, README.md".to_string())
}
