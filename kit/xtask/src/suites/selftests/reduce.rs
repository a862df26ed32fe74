// SPDX-License-Identifier: GPL-2.0-only
//! A folder that shows make only the wanted tests of a kernel tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use walkdir::WalkDir;

use super::names::SELFTESTS;

/// Makes `source` look like the kernel tree `tree` with these tests only. Everything in it is a
/// link, except the folders on the way to the tests.
pub fn reduce(tree: &Path, source: &Path, tests: &[&str]) -> Result<()> {
    let mut wanted = BTreeMap::new();
    let mut dir = PathBuf::new();
    for part in Path::new(SELFTESTS) {
        link_all(tree, &dir, part.to_str(), &mut wanted)?;
        dir.push(part);
    }
    link_all(tree, &dir, None, &mut wanted)?;
    for folder in ["prog_tests", "progs"] {
        wanted.remove(&dir.join(folder));
        link_all(tree, &dir.join(folder), None, &mut wanted)?;
    }
    let mut programs = BTreeSet::new();
    for test in tests {
        let path = dir.join("prog_tests").join(format!("{test}.c"));
        match fs::read_to_string(tree.join(&path)) {
            Ok(text) => programs.extend(skeletons(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("the kernel tree has no {}", path.display())
            }
            Err(error) => return Err(error.into()),
        }
    }
    wanted.retain(|path, _| match path.strip_prefix(&dir) {
        Ok(inside) => is_wanted(inside, tests, &programs),
        Err(_) => true,
    });
    sync_links(source, &wanted)
}

/// Decides whether make sees a file in the folder of the bpf selftests.
fn is_wanted(inside: &Path, tests: &[&str], programs: &BTreeSet<String>) -> bool {
    /// Files that the build generates: tests.h from the tests that are there, the other from a key.
    const GENERATED: [&str; 2] = ["prog_tests/tests.h", "verification_cert.h"];
    if GENERATED.iter().any(|name| inside == Path::new(name)) {
        return false;
    }
    let is_c = inside.extension().is_some_and(|ext| ext == "c");
    let stem = inside.file_stem().unwrap_or_default().to_string_lossy();
    if inside.starts_with("prog_tests") {
        !is_c || tests.contains(&&*stem)
    } else if inside.starts_with("progs") {
        !is_c || programs.contains(&*stem)
    } else {
        true
    }
}

/// Adds links to everything in folder `dir` of `tree`, except the entry `except`.
fn link_all(
    tree: &Path,
    dir: &Path,
    except: Option<&str>,
    wanted: &mut BTreeMap<PathBuf, PathBuf>,
) -> Result<()> {
    let full = tree.join(dir);
    let entries = fs::read_dir(&full).with_context(|| format!("cannot read {}", full.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if except.is_none_or(|except| name != except) {
            wanted.insert(dir.join(&name), entry.path());
        }
    }
    Ok(())
}

/// Makes the links in `root` the ones in `wanted`, a map from path to target. Other files stay.
fn sync_links(root: &Path, wanted: &BTreeMap<PathBuf, PathBuf>) -> Result<()> {
    fs::create_dir_all(root)?;
    for entry in WalkDir::new(root) {
        let entry = entry?;
        let path = entry.path();
        if entry.path_is_symlink() {
            let inside = path.strip_prefix(root)?;
            if wanted.get(inside) != Some(&fs::read_link(path)?) {
                fs::remove_file(path)?;
            }
        }
    }
    for (inside, target) in wanted {
        let path = root.join(inside);
        if path.symlink_metadata().is_err() {
            fs::create_dir_all(path.parent().context("a link is in a folder")?)?;
            symlink(target, &path).with_context(|| format!("cannot make {}", path.display()))?;
        }
    }
    Ok(())
}

/// Returns the names of the BPF programs whose skeletons a test includes.
fn skeletons(test: &str) -> Vec<String> {
    test.lines()
        .filter_map(|line| {
            let name = line.trim().strip_prefix("#include \"")?;
            Some(name.strip_suffix(".skel.h\"")?.to_string())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::names::{OUR_TESTS, UPSTREAM};
    use super::*;

    #[test]
    fn programs_of_a_test() {
        let test = "#include \"test_progs.h\"\n#include \"bpf_iter_sockmap.skel.h\"\n\
                    #include \"test_sockmap_redir.skel.h\"\n";
        assert_eq!(skeletons(test), ["bpf_iter_sockmap", "test_sockmap_redir"]);
    }

    /// A kernel tree with just the folders that count.
    fn tree(dir: &Path) {
        let mut files = vec![
            ("Makefile".to_string(), ""),
            ("tools/lib/bpf/libbpf.c".to_string(), ""),
            ("tools/testing/selftests/lib.mk".to_string(), ""),
        ];
        for file in ["Makefile", "verification_cert.h", "prog_tests/tests.h"] {
            files.push((format!("{SELFTESTS}/{file}"), ""));
        }
        for file in ["prog_tests/other.c", "progs/other.c", "progs/bpf_misc.h"] {
            files.push((format!("{SELFTESTS}/{file}"), ""));
        }
        for test in UPSTREAM.iter().chain(OUR_TESTS) {
            files.push((
                format!("{SELFTESTS}/prog_tests/{test}.c"),
                "#include \"mine.skel.h\"\n",
            ));
        }
        files.push((format!("{SELFTESTS}/progs/mine.c"), ""));
        for (path, text) in files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn make_sees_only_our_tests() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, source) = (dir.path().join("kernel"), dir.path().join("source"));
        tree(&kernel);
        reduce(&kernel, &source, UPSTREAM).unwrap();
        let bpf = source.join(SELFTESTS);
        for there in [
            "Makefile",
            "prog_tests/sockmap_redir.c",
            "progs/mine.c",
            "progs/bpf_misc.h",
        ] {
            assert!(bpf.join(there).exists(), "{there}");
        }
        for gone in [
            "verification_cert.h",
            "prog_tests/tests.h",
            "prog_tests/vsock_sockmap_recv.c",
            "prog_tests/other.c",
            "progs/other.c",
        ] {
            assert!(!bpf.join(gone).exists(), "{gone}");
        }
        assert!(source.join("tools/lib/bpf/libbpf.c").exists());
        assert!(!bpf.is_symlink() && !bpf.join("progs").is_symlink());

        // A second time: what make wrote stays, a test that is gone goes.
        fs::write(bpf.join("prog_tests/tests.h"), "made").unwrap();
        fs::remove_file(kernel.join(SELFTESTS).join("progs/bpf_misc.h")).unwrap();
        reduce(&kernel, &source, UPSTREAM).unwrap();
        assert!(bpf.join("prog_tests/tests.h").exists());
        assert!(bpf.join("progs/bpf_misc.h").symlink_metadata().is_err());
    }

    #[test]
    fn missing_test_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("kernel");
        tree(&kernel);
        let gone = format!("{SELFTESTS}/prog_tests/sockmap_redir.c");
        fs::remove_file(kernel.join(&gone)).unwrap();
        let error = reduce(&kernel, &dir.path().join("source"), UPSTREAM).unwrap_err();
        assert!(error.to_string().contains(&gone), "{error}");
    }
}
