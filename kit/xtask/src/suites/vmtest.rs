// SPDX-License-Identifier: GPL-2.0-only
//! Linux's own vmtest.sh: its large configuration, a disk image, and the test of this series.
//!
//! vmtest.sh builds all bpf selftests, about a thousand programs for each of three runners. So it
//! runs in a mount namespace where a copy of their folder, without the other tests, hides the real
//! one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::guest::boot::splats;
use crate::host::env::{is_root, Env};
use crate::host::files::Key;
use crate::host::toolroot::ToolRoot;
use crate::host::{proc, step};
use crate::kernel::build::{lost_options, Bed};
use crate::kernel::prepare::prepare_tree;
use crate::kernel::tree::Tree;
use crate::suites::case::{Case, Verdict};
use crate::suites::selftests::names::{OURS, SELFTESTS};
use crate::suites::selftests::results;

/// The configuration fragment, in kernel/.
const FRAGMENT: &str = "vmtest.config";

/// The packages of a guest of vmtest.sh, besides Debian's essential ones, which have bash.
const PACKAGES: &[&str] = &[
    "busybox-static",
    "iproute2",
    "kmod",
    "libelf1t64",
    "libssl3t64",
    "libzstd1",
    "mount",
    "zlib1g",
];

/// The packages that only vmtest.sh and its root file system need. The first run adds them to the
/// tool root.
const TOOLS: &[&str] = &["e2fsprogs", "mmdebstrap"];

/// Installs the packages $@. An interrupted run may have left some of them half-installed.
const INSTALL: &str = r#"set -e
dpkg --configure --pending
apt-get update
apt-get install -y --no-install-recommends "$@"
"#;

/// The guest's /sbin/init. vmtest.sh writes /etc/rcS.d/S50-startup, which ends with a poweroff.
const INIT: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
ip link set lo up
for i in /etc/rcS.d/S*; do $i; done
poweroff -f
"#;

/// Changes the new system in $1. poweroff is busybox, as the packages have no init.
const HOOK: &str = r#"--customize-hook=cd "$1" && mkdir -p etc/rcS.d &&
    ln -s ../bin/busybox usr/sbin/poweroff &&
    printf %s "$INIT" > usr/sbin/init && chmod 755 usr/sbin/init"#;

/// Runs vmtest.sh in the tool root and in the folder of the kernel tree. $1 is our folder, $2 the
/// time limit in seconds, and the rest are arguments of vmtest.sh.
const SCRIPT: &str = r#"set -e
work=$1 limit=$2; shift 2
mount --bind "$work/selftests" tools/testing/selftests/bpf
PATH=$work/bin:$PATH exec timeout --kill-after=30 "$limit" tools/testing/selftests/bpf/vmtest.sh "$@"
"#;

/// The program sudo that vmtest.sh calls. Root needs no other.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// How long a run may take if nothing is built yet.
const LIMIT_SECONDS: u32 = 3600;

/// Variables with which make builds only test_progs and its dependencies. The last two also choose
/// the compiler of the kernel.
const VARIABLES: &[&str] = &[
    "TEST_GEN_FILES=",
    "TRUNNER_EXTRA_FILES=",
    "TEST_KMODS=",
    "TEST_KMOD_TARGETS=",
    "LSKELS=",
    "LSKELS_SIGNED=",
    "LSKELS_EXTRA=",
    "LINKED_SKELS=",
    "LIBARENA_SKEL=",
    "LIBARENA_ASAN_SKEL=",
    "SKIP_DOCS=1",
    "SKIP_LLVM=1",
    "LLVM=-22",
    "CLANG=clang-22",
];

/// Runs `vmtest.sh -- ./test_progs -t vsock_sockmap` with the Rust option on, and returns the cases
/// with their verdicts. It is an error if it could not run, or if the kernel complained.
pub fn run(env: &Env) -> Result<Vec<Case>> {
    if !is_root() {
        bail!("vmtest.sh mounts a disk image, so it has to run as root");
    }
    let (root, tree) = prepare_tree(env)?;
    root.ensure_bindgen(env)?;
    env.need_space(8, "vmtest.sh")?;
    add_tools(env, &root)?;
    let rootfs = rootfs(env, &root)?;
    let work = env.cache.join(format!("build-vmtest-{}", tree.source.key));
    let out = work.join("out");
    fs::create_dir_all(&out)?;
    fs::create_dir_all(work.join("kernel"))?;
    copy_selftests(env, &root, &tree, &work.join("selftests"))?;
    write_sudo(&work.join("bin"))?;
    for log in logs(&out)? {
        fs::remove_file(log)?;
    }

    let fragment = env.repo.join("kernel").join(FRAGMENT);
    let vmtest = command(&root, &tree, &work, &rootfs, &fragment);
    let ran = step::run(env, "vmtest.sh", vmtest);

    check_config(&fragment, &out)?;
    let console = fs::read_to_string(env.logs.join("vmtest.sh.log"))?;
    let splats = console_splats(&console);
    if !splats.is_empty() {
        bail!(
            "vmtest.sh: the kernel complains:\n  {}",
            splats.join("\n  ")
        );
    }
    let of_test = |path: &&PathBuf| path.extension().is_some_and(|ext| ext == "log");
    let Some(log) = logs(&out)?.into_iter().find(|path| of_test(&path)) else {
        ran?;
        bail!("vmtest.sh left no log of the test");
    };
    let cases = results::parse(&fs::read_to_string(log)?);
    // The caller counts the failed cases. If there is none, any other failure is an error here.
    match &cases {
        Ok(cases) if cases.iter().any(|case| case.verdict == Verdict::Fail) => {}
        _ => ran?,
    }
    cases
}

/// Returns the command that runs vmtest.sh in the tool root.
fn command(root: &ToolRoot, tree: &Tree, work: &Path, rootfs: &Path, fragment: &Path) -> Command {
    let mut vmtest = root.command(&tree.path, "sh");
    vmtest
        .args(["-c", SCRIPT, "sh"])
        .arg(work)
        .arg(LIMIT_SECONDS.to_string());
    // With -i the disk image is a new one, and nothing of an earlier run is in it.
    vmtest
        .arg("-i")
        .arg("-l")
        .arg(rootfs)
        .arg("-d")
        .arg(work.join("out"))
        .arg("-c")
        .arg(fragment);
    vmtest.args(["--", "./test_progs", "-t", OURS]);
    let dir = tree.path.join(SELFTESTS);
    // veristat is a part of test_progs' rule, and is linked with libbpf only if named here.
    let programs = format!(
        "TEST_GEN_PROGS={0}/test_progs TEST_GEN_PROGS_EXTENDED={0}/veristat",
        dir.display()
    );
    // Not O: make would build the selftests elsewhere than vmtest.sh takes them from.
    vmtest.env("KBUILD_OUTPUT", work.join("kernel"));
    vmtest.env(
        "MAKEFLAGS",
        format!("-- {programs} {}", VARIABLES.join(" ")),
    );
    vmtest
}

/// Checks that the kernel has all options of the fragment.
fn check_config(fragment: &Path, out: &Path) -> Result<()> {
    let wanted = fs::read_to_string(fragment)?;
    let got = fs::read_to_string(out.join("latest.config")).unwrap_or_default();
    let lost = lost_options(&wanted, &got);
    if !got.is_empty() && !lost.is_empty() {
        bail!(
            "vmtest.sh: options of {FRAGMENT} are not in the kernel's configuration:\n  {}",
            lost.join("\n  ")
        );
    }
    Ok(())
}

fn add_tools(env: &Env, root: &ToolRoot) -> Result<()> {
    let _lock = env.lock("tools")?;
    let mut query = root.command(Path::new("/"), "dpkg-query");
    query.args(["-W", "-f", "${db:Status-Abbrev}"]).args(TOOLS);
    // dpkg-query fails for a package that it does not know.
    let installed = proc::output(query).unwrap_or_default();
    if installed.matches("ii ").count() == TOOLS.len() {
        return Ok(());
    }
    let mut install = root.command(Path::new("/"), "sh");
    install.args(["-c", INSTALL, "sh"]).args(TOOLS);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    step::run(env, "install the tools of vmtest.sh", install)
}

/// Returns the guest's root file system, packed as vmtest.sh wants it. It is made first if the
/// cache has none.
fn rootfs(env: &Env, root: &ToolRoot) -> Result<PathBuf> {
    let include = PACKAGES.join(",");
    let suite = crate::kernel::base::Base::read(&env.repo)?.suites.suite;
    let key = Key::new()
        .add(&root.key)
        .add(&suite)
        .add(&include)
        .add(HOOK)
        .add(INIT)
        .finish();
    let name = format!("rootfs-{key}");
    let file = "rootfs.tar.zst";
    if !env.cache.join(&name).exists() {
        let _lock = env.lock("rootfs")?;
        env.make_dir(&name, |dir| {
            let mut make = root.command(dir, "mmdebstrap");
            make.args([
                "--variant=essential",
                "--mode=root",
                "--dpkgopt=force-unsafe-io",
                HOOK,
            ]);
            make.arg(format!("--include={include}"))
                .arg(&suite)
                .arg(dir.join(file));
            make.env("INIT", INIT);
            step::run(env, "make the root file system", make)
        })?;
    }
    Ok(env.cache.join(name).join(file))
}

/// Copies the folder of the bpf selftests, without tests except ours.
fn copy_selftests(env: &Env, root: &ToolRoot, tree: &Tree, to: &Path) -> Result<()> {
    if to.exists() {
        env.remove_dir(to)?;
    }
    let mut copy = root.command(&tree.path, "rsync");
    copy.arg("-a");
    copy.arg(format!("--include=/prog_tests/{OURS}_*.c"));
    copy.arg(format!("--include=/progs/*{OURS}*.c"));
    copy.args(["--exclude=/prog_tests/*.c", "--exclude=/progs/*.c"]);
    copy.arg(format!("{SELFTESTS}/")).arg(to);
    step::run(env, "copy the selftests", copy)
}

fn write_sudo(dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("sudo");
    fs::create_dir_all(dir)?;
    fs::write(&path, SUDO)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {}", path.display()))
}

/// Returns the files that vmtest.sh took out of the guest: the output of the test, and its exit
/// status.
fn logs(out: &Path) -> Result<Vec<PathBuf>> {
    let mut logs = Vec::new();
    for entry in fs::read_dir(out)? {
        let entry = entry?;
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("bpf_selftests.")
        {
            logs.push(entry.path());
        }
    }
    Ok(logs)
}

/// Returns the lines in which the guest's kernel complains. The builds before its boot have
/// warnings of their own, which do not count.
fn console_splats(log: &str) -> Vec<String> {
    match log.split_once("Linux version ") {
        Some((_, console)) => splats(console, Bed::Qemu),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_guest_complains() {
        let build = "WARNING: modpost: missing MODULE_DESCRIPTION()\n";
        let boot = "[    0.000000] Linux version 7.3.4\n";
        assert!(console_splats(&format!("{build}{boot}[    9.9] ok\n")).is_empty());
        let complaint = "[    9.9] WARNING: CPU: 0 PID: 1 at net/core/skmsg.c:1 f+0x1/0x2";
        let log = format!("{build}{boot}{complaint}\n");
        assert_eq!(console_splats(&log), [complaint]);
    }

    #[test]
    fn logs_of_a_run() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "bpf_selftests.1.log",
            "bpf_selftests.1.exit_status",
            "root.img",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(logs(dir.path()).unwrap().len(), 2);
    }
}
