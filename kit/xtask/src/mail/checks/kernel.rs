// SPDX-License-Identifier: GPL-2.0-only
//! Checks of the kernel code.

use std::fs;

use anyhow::Result;

use crate::kernel::flavour::{Bed, Flavour, Sockmap};
use crate::kernel::{config, make};
use crate::mail::checks::subject::{expect_silence, Subject};

/// Checks the format of the kernel's Rust files that the repository adds or changes.
pub fn rustfmt(subject: &Subject) -> Result<String> {
    // rustfmt reads stdin, since for a file by name it would also check all modules of that file.
    // With stdin it returns 0 even if it reports differences, but then it is not silent.
    const EACH: &str = r#"
        for file; do
            rustfmt --check --color=never --config-path .rustfmt.toml < "$file" 2>&1 |
                sed "s|<stdin>|$file|"
        done
    "#;
    let files = subject.tree.files.iter();
    let files: Vec<_> = files.filter(|file| file.ends_with(".rs")).collect();
    let mut check = subject.shell(EACH);
    check.args(&files);
    expect_silence(check)?;
    Ok(format!("{} files", files.len()))
}

/// Checks that clang, rustc and clippy with W=1 have no warnings for the files that the repository
/// adds or changes. The kernel has the debugging options of the test bed um, which include the
/// KUnit tests.
pub fn lints(subject: &Subject) -> Result<String> {
    let flavour = Flavour {
        bed: Bed::Um,
        sockmap: Sockmap::Rust,
        debug: true,
    };
    // The build folder is not that of the test bed, since make would build all files there again,
    // as the flags differ.
    let out = subject
        .env
        .cache
        .join(format!("build-lint-{}", subject.tree.source.key));
    fs::create_dir_all(&out)?;
    let wanted = config::wanted_config(&subject.env.repo, flavour)?;
    config::configure(
        subject.env,
        &subject.root,
        &subject.tree,
        &out,
        flavour,
        &wanted,
    )?;
    let mut make = make::command(&subject.root, &subject.tree.path, &out, flavour.bed);
    // To build a folder, make first builds all of rust/. The `e` makes each warning an error, so
    // that a later run does not skip a file with a warning because it is built already.
    make.args(["CLIPPY=1", "W=1e", "net/vmw_vsock/"]);
    // C files of other folders are built one by one.
    let mut elsewhere: Vec<String> = Vec::new();
    for file in &subject.tree.files {
        if let Some(stem) = file.strip_suffix(".c") {
            if stem.starts_with("net/") && !stem.starts_with("net/vmw_vsock/") {
                elsewhere.push(format!("{stem}.o"));
            }
        }
    }
    make.args(&elsewhere);
    make::run(subject.env, "lint the kernel's objects", &out, make)?;
    Ok(format!(
        "rust/, net/vmw_vsock/, {} with W=1",
        elsewhere.join(", ")
    ))
}
