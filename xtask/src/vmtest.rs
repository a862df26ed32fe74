// SPDX-License-Identifier: GPL-2.0-only
//! Linux's own vmtest.sh: its large configuration, a disk image, and the test of this series.
//!
//! It builds all bpf selftests, about a thousand programs for each of three runners. So it runs in
//! a mount namespace where a copy of their folder, without the other tests, hides the real one.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::boot::splats;
use crate::build::{lost_options, Bed};
use crate::env::{is_root, Env, Key};
use crate::proc;
use crate::selftests::{self, Case, Verdict};
use crate::toolroot::ToolRoot;
use crate::tree::Tree;
use crate::verbs::prepare_tree;

const SELFTESTS: &str = "tools/testing/selftests/bpf";

/// In configs/.
const FRAGMENT: &str = "vmtest.config";

/// What a guest of vmtest.sh has: Debian's essential packages, which have bash, and these.
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

/// What vmtest.sh and its root file system take that nothing else does; added to the tool root by
/// the first run.
const TOOLS: &[&str] = &["e2fsprogs", "mmdebstrap"];

/// $@ are packages. A run that was interrupted may have left some half-installed.
const INSTALL: &str = r#"set -e
dpkg --configure --pending
apt-get update
apt-get install -y --no-install-recommends "$@"
"#;

/// /sbin/init of the guest. vmtest.sh writes /etc/rcS.d/S50-startup, which ends with a poweroff.
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

/// $1 is the new system. busybox for poweroff: the packages have no init.
const HOOK: &str = r#"--customize-hook=cd "$1" && mkdir -p etc/rcS.d &&
    ln -s ../bin/busybox usr/sbin/poweroff &&
    printf %s "$INIT" > usr/sbin/init && chmod 755 usr/sbin/init"#;

/// In the tool root and in the folder of the kernel tree: $1 our folder, $2 the time limit in
/// seconds, then the arguments of vmtest.sh.
const SCRIPT: &str = r#"set -e
work=$1 limit=$2; shift 2
mount --bind "$work/selftests" tools/testing/selftests/bpf
PATH=$work/bin:$PATH exec timeout --kill-after=30 "$limit" tools/testing/selftests/bpf/vmtest.sh "$@"
"#;

/// vmtest.sh calls sudo, which has nothing to do for root.
const SUDO: &str = "#!/bin/sh\nexec \"$@\"\n";

/// How long a run may take, with nothing built yet.
const LIMIT_SECONDS: u32 = 3600;

/// Make variables by which only test_progs is built, and only what it needs. The last two are also
/// what the kernel is built with.
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

/// Runs `vmtest.sh -- ./test_progs -t vsock_sockmap` with the Rust option on, and returns what
/// became of each case. An error if it could not run, or if the kernel complained.
pub fn run(env: &Env) -> Result<Vec<Case>> {
    if !is_root() {
        bail!("vmtest.sh mounts a disk image, which takes root");
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

    let fragment = env.repo.join("configs").join(FRAGMENT);
    let mut vmtest = root.command(&tree.path, "sh");
    vmtest
        .args(["-c", SCRIPT, "sh"])
        .arg(&work)
        .arg(LIMIT_SECONDS.to_string());
    // With -i the disk image is a new one, and nothing of an earlier run is in it.
    vmtest
        .arg("-i")
        .arg("-l")
        .arg(&rootfs)
        .arg("-d")
        .arg(&out)
        .arg("-c")
        .arg(&fragment);
    vmtest.args(["--", "./test_progs", "-t", selftests::OURS]);
    let dir = tree.path.join(SELFTESTS);
    // veristat is a part of test_progs' rule, and is linked with libbpf only if named here.
    let programs = format!(
        "TEST_GEN_PROGS={0}/test_progs TEST_GEN_PROGS_EXTENDED={0}/veristat",
        dir.display()
    );
    // Not O: with that the selftests are built elsewhere than vmtest.sh takes them from.
    vmtest.env("KBUILD_OUTPUT", work.join("kernel"));
    vmtest.env(
        "MAKEFLAGS",
        format!("-- {programs} {}", VARIABLES.join(" ")),
    );
    let ran = proc::run(env, "vmtest.sh", vmtest);

    let wanted = fs::read_to_string(&fragment)?;
    let got = fs::read_to_string(out.join("latest.config")).unwrap_or_default();
    let lost = lost_options(&wanted, &got);
    if !got.is_empty() && !lost.is_empty() {
        bail!(
            "vmtest.sh: the configuration lost what {FRAGMENT} asks for:\n  {}",
            lost.join("\n  ")
        );
    }
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
    let cases = selftests::parse(&fs::read_to_string(log)?);
    // A failed case is for the caller to count; anything else that went wrong is told here.
    match &cases {
        Ok(cases) if cases.iter().any(|case| case.verdict == Verdict::Fail) => {}
        _ => ran?,
    }
    cases
}

fn add_tools(env: &Env, root: &ToolRoot) -> Result<()> {
    let _lock = env.lock("tools")?;
    let mut query = root.command(Path::new("/"), "dpkg-query");
    query.args(["-W", "-f", "${db:Status-Abbrev}"]).args(TOOLS);
    // It fails for a package that it does not know.
    let installed = proc::output(query).unwrap_or_default();
    if installed.matches("ii ").count() == TOOLS.len() {
        return Ok(());
    }
    let mut install = root.command(Path::new("/"), "sh");
    install.args(["-c", INSTALL, "sh"]).args(TOOLS);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    proc::run(env, "install the tools of vmtest.sh", install)
}

/// The system that the guest runs in, packed as vmtest.sh wants it; made if the cache has none.
fn rootfs(env: &Env, root: &ToolRoot) -> Result<PathBuf> {
    let include = PACKAGES.join(",");
    let suite = crate::base::Base::read(&env.repo)?.suite;
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
            proc::run(env, "make the root file system", make)
        })?;
    }
    Ok(env.cache.join(name).join(file))
}

/// Copies the folder of the bpf selftests, with no test but ours.
fn copy_selftests(env: &Env, root: &ToolRoot, tree: &Tree, to: &Path) -> Result<()> {
    if to.exists() {
        env.remove_dir(to)?;
    }
    let mut copy = root.command(&tree.path, "rsync");
    copy.arg("-a");
    copy.arg(format!("--include=/prog_tests/{}_*.c", selftests::OURS));
    copy.arg(format!("--include=/progs/test_{}.c", selftests::OURS));
    copy.args(["--exclude=/prog_tests/*.c", "--exclude=/progs/*.c"]);
    copy.arg(format!("{SELFTESTS}/")).arg(to);
    proc::run(env, "copy the selftests", copy)
}

fn write_sudo(dir: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("sudo");
    fs::create_dir_all(dir)?;
    fs::write(&path, SUDO)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot make {}", path.display()))
}

/// What vmtest.sh took out of the guest: the output of the test, and its exit status.
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

/// By which lines the guest's kernel complained. The builds before it have warnings of their own.
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
