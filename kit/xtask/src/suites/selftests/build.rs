// SPDX-License-Identifier: GPL-2.0-only
//! Builds `test_progs`.
//!
//! make works in a folder of links into the work tree, which has only the wanted tests and the BPF
//! programs that they include. Its objects stay in the cache, so a change in one test costs one
//! compilation and a link.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use super::names::{OUR_HELPERS, OUR_TESTS, SELFTESTS, UPSTREAM};
use super::reduce::reduce;
use crate::host::env::Env;
use crate::host::files::{sha256_file, Key};
use crate::host::toolroot::ToolRoot;
use crate::host::{proc, step};
use crate::kernel::build::Image;
use crate::kernel::tree::Tree;

/// Variables that make some targets of the Makefile empty. No test here uses the test modules.
const LEFT_OUT: &[&str] = &[
    "LSKELS=",
    "LSKELS_SIGNED=",
    "LSKELS_EXTRA=",
    "LINKED_SKELS=",
    "LIBARENA_SKEL=",
    "LIBARENA_ASAN_SKEL=",
    "TRUNNER_EXTRA_FILES=",
    "TEST_KMODS=",
    "TEST_KMOD_TARGETS=",
    // Bpftool's own BPF programs.
    "feature-clang-bpf-co-re=0",
    "SKIP_DOCS=1",
    "SKIP_LLVM=1",
];

/// The compiler. BPF programs have a variable of their own.
const COMPILER: &[&str] = &[
    "LLVM=-22",
    "CLANG=clang-22",
    "LLVM_CONFIG=llvm-config-22",
    "LLVM_STRIP=llvm-strip-22",
];

/// Increase this number when the way in which test_progs is built changes.
const FORMAT: &str = "1";

/// A file that is in make's working folder while make runs.
const BUSY: &str = "make-is-running";

/// Returns the path of `test_progs`, which is built first if the cache has none. With an image of
/// the qemu bed it has upstream's tests and ours; their programs need the types of that kernel.
/// Without an image it has only ours, for kernels of any kind.
pub fn ensure(env: &Env, root: &ToolRoot, tree: &Tree, image: Option<&Image>) -> Result<PathBuf> {
    let types = tempfile::NamedTempFile::new_in(&env.logs)?.into_temp_path();
    let ours = [OUR_TESTS, &[OUR_HELPERS]].concat();
    no_test_is_missing(&tree.files, &ours)?;
    let (tests, kind) = match image {
        Some(image) => {
            dump_btf(root, image, &types)?;
            ([UPSTREAM, &ours].concat(), "all")
        }
        None => {
            // make wants a header, but ours includes none.
            fs::write(&types, "")?;
            (ours, "ours")
        }
    };
    let job = Job {
        env,
        root,
        tree,
        kind,
        tests,
        types: &types,
        of_image: image.is_some(),
    };
    let name = format!("selftests-{}", job.key()?);
    let done = env.make_dir(&name, |dir| {
        env.need_space(1, "building the selftests")?;
        job.build(dir)
    })?;
    Ok(done.join("test_progs"))
}

/// Fails if the tree has a test of this series that is not in the list of tests to run.
fn no_test_is_missing(files: &[String], ours: &[&str]) -> Result<()> {
    let tests = format!("{SELFTESTS}/prog_tests/");
    for file in files {
        let name = file
            .strip_prefix(&tests)
            .and_then(|file| file.strip_suffix(".c"));
        if let Some(name) = name.filter(|name| !ours.contains(name)) {
            bail!("{file} would not run; add {name} to OUR_TESTS in suites/selftests/names.rs");
        }
    }
    Ok(())
}

/// A `test_progs` that is to be built.
struct Job<'a> {
    env: &'a Env,
    root: &'a ToolRoot,
    tree: &'a Tree,
    /// Names the working folder, so that each kind keeps its objects.
    kind: &'static str,
    tests: Vec<&'static str>,
    /// The type information of the kernel.
    types: &'a Path,
    /// Whether `types` is of a kernel, and not empty.
    of_image: bool,
}

impl Job<'_> {
    /// Returns the cache key: a hash of all that test_progs is made from.
    fn key(&self) -> Result<String> {
        let tree = self.tree;
        let mut key = Key::new()
            .add(FORMAT)
            .add(&self.root.key)
            .add(&tree.source.key)
            .add(self.kind)
            .add(self.tests.join(" "))
            .add(sha256_file(self.types)?);
        if tree.source.of_user {
            key = key.add(&tree.key);
        }
        for file in tree.files.iter().filter(|file| file.starts_with("tools/")) {
            key = key
                .add(file)
                .add(fs::read(tree.path.join(file)).unwrap_or_default());
        }
        Ok(key.finish())
    }

    /// Builds test_progs, and copies it to `dir`.
    fn build(&self, dir: &Path) -> Result<()> {
        let Job {
            env, tree, kind, ..
        } = self;
        let work = env
            .cache
            .join(format!("build-selftests-{kind}-{}", tree.source.key));
        let busy = work.join(BUSY);
        if busy.exists() {
            // make was killed, and would take a half-written file for a good one.
            env.remove_dir(&work)?;
        }
        let (source, out) = (work.join("source"), work.join("out"));
        fs::create_dir_all(&out)?;
        reduce(&tree.path, &source, &self.tests)?;
        let types = work.join("types");
        refresh(self.types, &types)?;
        fs::write(&busy, "")?;
        let make = self.make(&source, &out, &types);
        let built = step::run(env, &format!("build bpf selftests ({kind})"), make);
        fs::remove_file(&busy)?;
        built?;
        fs::copy(out.join("test_progs"), dir.join("test_progs"))
            .context("make did not make test_progs")?;
        Ok(())
    }

    fn make(&self, source: &Path, out: &Path, types: &Path) -> Command {
        let mut make = self.root.command(&source.join(SELFTESTS), "make");
        let jobs = std::thread::available_parallelism().map_or(2, |count| count.get());
        make.arg(format!("-j{jobs}")).args(COMPILER).args(LEFT_OUT);
        make.arg(format!("VMLINUX_BTF={}", types.display()));
        if !self.of_image {
            make.arg(format!("VMLINUX_H={}", types.display()));
        }
        make.arg(format!("OUTPUT={}", out.display()))
            .arg(out.join("test_progs"));
        make
    }
}

/// Writes the type information of a kernel to a file. The BPF programs depend on nothing else of
/// the kernel.
fn dump_btf(root: &ToolRoot, image: &Image, to: &Path) -> Result<()> {
    let mut objcopy = root.command(Path::new("/"), "llvm-objcopy-22");
    objcopy.args(["-O", "binary", "--only-section=.BTF"]);
    objcopy.arg("--set-section-flags=.BTF=alloc");
    objcopy.arg(image.dir.join("vmlinux")).arg(to);
    proc::output(objcopy)?;
    if fs::metadata(to)?.len() == 0 {
        bail!(
            "kernel {} has no BTF, which the selftests need",
            image.flavour.name()
        );
    }
    Ok(())
}

/// Copies a file unless the old copy is the same: make builds all programs again when the file is
/// new.
fn refresh(new: &Path, kept: &Path) -> Result<()> {
    if !kept.exists() || sha256_file(new)? != sha256_file(kept)? {
        fs::copy(new, kept)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_of_the_tree_runs() {
        let files = [
            format!("{SELFTESTS}/prog_tests/vsock_sockmap_recv.c"),
            format!("{SELFTESTS}/prog_tests/vsock_sockmap_helpers.h"),
            format!("{SELFTESTS}/progs/test_vsock_sockmap.c"),
        ];
        no_test_is_missing(&files, &["vsock_sockmap_recv"]).unwrap();
        let error = no_test_is_missing(&files, &["vsock_sockmap_eof"]).unwrap_err();
        assert!(error.to_string().contains("vsock_sockmap_recv"), "{error}");
    }
}
