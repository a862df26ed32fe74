// SPDX-License-Identifier: GPL-2.0-only
//! Compiles bpf/redirect.bpf.c with the clang that `$CLANG` names, or else `clang-22` or `clang`.

use std::env;
use std::path::PathBuf;
use std::process::{exit, Command};

const SOURCE: &str = "bpf/redirect.bpf.c";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=CLANG");

    let object =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("redirect.bpf.o");
    let candidates = match env::var("CLANG") {
        Ok(clang) if !clang.is_empty() => vec![clang],
        _ => vec!["clang-22".to_owned(), "clang".to_owned()],
    };
    for clang in &candidates {
        let run = Command::new(clang)
            .args([
                "-target", "bpf", "-g", "-O2", "-Wall", "-Werror", "-c", SOURCE, "-o",
            ])
            .arg(&object)
            .status();
        match run {
            Ok(status) if status.success() => return,
            Ok(status) => fail(&format!("{clang} could not compile {SOURCE} ({status})")),
            Err(_) => continue,
        }
    }
    fail(&format!(
        "cannot compile {SOURCE}: clang was not found (tried {}). Install clang, or set CLANG to \
         the path of a clang that has the BPF target",
        candidates.join(", ")
    ));
}

fn fail(message: &str) -> ! {
    println!("cargo::error={message}");
    exit(1);
}
