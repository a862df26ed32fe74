// SPDX-License-Identifier: GPL-2.0-only
//! The report on what `bench` measured: a page, and a table in README.md.
//!
//! Both are made from the JSON files alone, so nobody writes figures by hand.

mod bed;
mod input;
mod page;
mod readme;
mod summary;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure, Context, Result};

use self::input::Input;
use crate::host::files::write_atomic;
use crate::host::progress;

/// Where `bench` leaves its JSON files and plots, in the repository.
pub const NEW_RESULTS: &str = "build/bench";

/// The report of the repository.
const PAGE: &str = "docs/benchmarks.md";

/// Writes the report `page`, and beside it the folder with its JSON files and plots. If README.md
/// of the repository has the markers of the table, writes the table too.
pub fn write(repo: &Path, page: &Path) -> Result<()> {
    ensure!(
        page.extension().is_some(),
        "the report needs a name like benchmarks.md, as its JSON files go to the folder benchmarks"
    );
    let page = &std::path::absolute(page)?;
    let data = page.with_extension("");
    let inputs = input::newest(&[&repo.join(NEW_RESULTS), &data])?;
    for input in &inputs {
        input.copy_to(&data)?;
    }
    for (path, content) in made_from(repo, page, &inputs)? {
        if fs::read_to_string(&path).is_ok_and(|old| old == content) {
            continue;
        }
        write_atomic(&path, content.as_bytes())?;
        progress::say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// Checks that docs/benchmarks.md, its plots and the table in README.md are what the JSON files in
/// docs/benchmarks/ give.
pub fn is_current(repo: &Path) -> Result<()> {
    let page = repo.join(PAGE);
    let inputs = input::newest(&[&page.with_extension("")])?;
    let mut stale = Vec::new();
    for (path, content) in made_from(repo, &page, &inputs)? {
        if !fs::read_to_string(&path).is_ok_and(|old| old == content) {
            stale.push(path.strip_prefix(repo)?.display().to_string());
        }
    }
    if !stale.is_empty() {
        bail!(
            "not what the JSON files give: {}; `cargo xtask bench --report {PAGE}` writes them",
            stale.join(", ")
        );
    }
    Ok(())
}

/// Returns all files that are made from the results, and their contents.
fn made_from(repo: &Path, page: &Path, inputs: &[Input]) -> Result<Vec<(PathBuf, String)>> {
    let data = page.with_extension("");
    let folder = data.file_name().context("the report has a name")?;
    let notes = fs::read_to_string(data.join("notes.md")).unwrap_or_default();
    let mut files = Vec::new();
    let mut beds = Vec::new();
    for input in inputs {
        let bed = bed::BedResults::new(&input.results)?;
        if let Some(plot) = &bed.plot {
            files.push((data.join(bed.plot_name()), plot.clone()));
        }
        beds.push(bed);
    }
    let text = page::render(&beds, &folder.to_string_lossy(), &notes);
    files.push((page.to_path_buf(), text));
    let readme = repo.join("README.md");
    if let Ok(old) = fs::read_to_string(&readme) {
        if let Some(new) = readme::with_table(&old, &summary::table(&beds)) {
            files.push((readme, new));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::figures::samples;

    fn repo() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let repo = dir.path();
        for bed in ["um", "pair"] {
            let file = repo.join(NEW_RESULTS).join(format!("{bed}.json"));
            samples::results(bed).write(&file).unwrap();
        }
        fs::create_dir_all(repo.join("docs/benchmarks")).unwrap();
        fs::write(repo.join("docs/benchmarks/notes.md"), "## Why\n\nSo.\n").unwrap();
        let readme = format!("# Title\n{}\nold\n{}\nrest\n", readme::BEGIN, readme::END);
        fs::write(repo.join("README.md"), readme).unwrap();
        dir
    }

    #[test]
    fn report_is_current_until_something_changes() {
        let dir = repo();
        let repo = dir.path();
        assert!(is_current(repo).is_err());
        write(repo, &repo.join(PAGE)).unwrap();
        is_current(repo).unwrap();
        for name in ["docs/benchmarks/um.json", "docs/benchmarks/pair.svg"] {
            assert!(repo.join(name).exists(), "{name}");
        }
        let page = fs::read_to_string(repo.join(PAGE)).unwrap();
        assert!(page.ends_with("## Why\n\nSo.\n"), "{page}");
        let readme = fs::read_to_string(repo.join("README.md")).unwrap();
        assert!(readme.starts_with("# Title\n") && readme.ends_with("\nrest\n"));
        assert!(readme.contains("3.00") && !readme.contains("\nold\n"));

        fs::write(repo.join("README.md"), readme.replace("3.00", "4.00")).unwrap();
        let error = is_current(repo).unwrap_err().to_string();
        assert!(
            error.contains("README.md") && !error.contains("svg"),
            "{error}"
        );
    }

    #[test]
    fn report_can_be_made_again_without_new_results() {
        let dir = repo();
        let repo = dir.path();
        write(repo, &repo.join(PAGE)).unwrap();
        let page = fs::read_to_string(repo.join(PAGE)).unwrap();
        fs::remove_dir_all(repo.join(NEW_RESULTS)).unwrap();
        fs::remove_file(repo.join(PAGE)).unwrap();
        write(repo, &repo.join(PAGE)).unwrap();
        assert_eq!(fs::read_to_string(repo.join(PAGE)).unwrap(), page);
    }

    #[test]
    fn no_results_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let error = write(dir.path(), &dir.path().join("docs")).unwrap_err();
        assert!(error.to_string().contains("name like"), "{error}");
        let error = write(dir.path(), &dir.path().join(PAGE)).unwrap_err();
        assert!(error.to_string().contains("build/bench"), "{error}");
    }
}
