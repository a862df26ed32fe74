// SPDX-License-Identifier: GPL-2.0-only
//! The tool root: a Debian folder with compilers, QEMU and all else, so that the host needs nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};

use crate::base::Base;
use crate::env::{is_root, Env, Key};
use crate::proc;

/// What is in the tool root. A name ending in `/` and the word `backports` comes from there.
const PACKAGES: &[&str] = &[
    "clang-22",
    "lld-22",
    "llvm-22",
    "pahole",
    "rustc/backports",
    "rust-src/backports",
    "rust-clippy/backports",
    "rustfmt/backports",
    "cargo/backports",
    "bc",
    "bison",
    "flex",
    "libelf-dev",
    "libssl-dev",
    "libdw-dev",
    "zlib1g-dev",
    "libzstd-dev",
    "libcap-dev",
    "binutils-dev",
    "pkgconf",
    "cpio",
    "kmod",
    "rsync",
    "xz-utils",
    "zstd",
    "qemu-system-x86",
    "busybox-static",
    "socat",
    "iproute2",
    "strace",
    "sparse",
    "python3",
    "perl",
    "git",
    "make",
    "gcc",
    "libc6-dev",
    "ca-certificates",
    "codespell",
    "patch",
    "file",
];

/// What is in the tool root for documentation. That is a folder of its own: a change here leaves
/// the key of the other one alone, so no kernel has to be built again.
const DOCS_PACKAGES: &[&str] = &[
    "python3-sphinx",
    "python3-yaml",
    // The kernel's Sphinx extension kfigure warns when there is no dot.
    "graphviz",
    "make",
    "ca-certificates",
];

/// Debian's own is too old for this clang: it makes opaque structs.
const BINDGEN: &str = "bindgen-cli@0.72.1";

/// Runs in the new namespaces: $1 root, $2 working folder, then folders to show up to `--`, then
/// the program.
const ENTER: &str = r#"
fail() { echo "xtask: cannot enter the tool root $root: $*" >&2; exit 125; }
root=$1 dir=$2; shift 2
[ -d "$root/usr" ] || fail "it is gone"
mount -t tmpfs -o size=90% tmpfs "$root/tmp" || fail "mount /tmp"
while [ "$1" != -- ]; do
    mkdir -p "$root$1" && mount --rbind "$1" "$root$1" || fail "mount $1"
    shift
done
shift
mount -t proc proc "$root/proc" || fail "mount /proc"
mount --rbind /sys "$root/sys" || fail "mount /sys"
mount --rbind /dev "$root/dev" || fail "mount /dev"
[ ! -e /etc/resolv.conf ] || mount --bind /etc/resolv.conf "$root/etc/resolv.conf" || fail "resolv.conf"
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    for i in /etc/ssl/certs /usr/share/ca-certificates /usr/local/share/ca-certificates; do
        [ ! -d $i ] || mount --rbind $i "$root$i" || fail "mount $i"
    done
fi
exec chroot "$root" env -C "$dir" "$@"
"#;

/// Variables of the user that a program in the tool root sees.
const KEPT_VARIABLES: &[&str] = &[
    "TERM",
    "CI",
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];

pub struct ToolRoot {
    pub path: PathBuf,
    pub key: String,
    /// Which bindgen: its folder in the cache.
    pub bindgen: String,
    cache: PathBuf,
    shown: Vec<PathBuf>,
}

impl ToolRoot {
    /// Returns the tool root. Makes it if the cache has none.
    pub fn ensure(env: &Env) -> Result<Self> {
        Self::ensure_packages(env, "tools", PACKAGES, 12)
    }

    /// Returns the tool root for documentation. Makes it if the cache has none.
    pub fn ensure_docs(env: &Env) -> Result<Self> {
        Self::ensure_packages(env, "docs-tools", DOCS_PACKAGES, 1)
    }

    /// Returns the tool root that has these packages. Makes it if the cache has none, which fails
    /// when less than `gib` GiB are free.
    fn ensure_packages(env: &Env, kind: &str, packages: &[&str], gib: u64) -> Result<Self> {
        let base = Base::read(&env.repo)?;
        let include = packages
            .join(",")
            .replace("/backports", &format!("/{}", base.backports));
        let key = Key::new()
            .add(&base.suite)
            .add(&include)
            .add(HOOKS.join("\n"))
            .finish();
        let name = format!("{kind}-{key}");
        let path = env.cache.join(&name);
        if !path.exists() {
            let _lock = env.lock(kind)?;
            if !path.exists() {
                prepare_host()?;
                env.need_space(gib, "a first run")?;
                env.make_dir(&name, |dir| bootstrap(env, &base, &include, dir))?;
            }
        }
        let mut shown = vec![env.cache.clone(), env.repo.clone()];
        shown.extend(env.source.clone());
        let bindgen = format!("bindgen-{}", Key::new().add(&key).add(BINDGEN).finish());
        Ok(ToolRoot {
            path,
            key,
            bindgen,
            cache: env.cache.clone(),
            shown,
        })
    }

    /// `program`, to be run inside the tool root in folder `dir`. It sees the cache, the checkout
    /// and `--source` at their own paths; killing the returned process ends all that it started.
    pub fn command(&self, dir: &Path, program: &str) -> Command {
        let mut command = namespaces();
        command
            .args(["sh", "-c", ENTER, "sh"])
            .arg(&self.path)
            .arg(dir);
        command.args(&self.shown).arg("--").arg(program);
        command.env_clear();
        for name in KEPT_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let bindgen = self.cache.join(&self.bindgen).join("bin");
        command
            .env(
                "PATH",
                format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bindgen.display()),
            )
            .env("HOME", "/root")
            .env("LC_ALL", "C.UTF-8")
            .env("TMPDIR", "/tmp")
            .env("CARGO_HOME", self.cache.join("cargo"));
        command
    }

    /// bindgen, for `command`s; made first if the cache has none. Not in the tool root itself so
    /// that it can be built while the kernel source is fetched.
    pub fn ensure_bindgen(&self, env: &Env) -> Result<()> {
        if self.cache.join(&self.bindgen).exists() {
            return Ok(());
        }
        let _lock = env.lock("bindgen")?;
        env.make_dir(&self.bindgen, |dir| {
            let mut cargo = self.command(dir, "cargo");
            cargo
                .args(["install", "--locked", "--root"])
                .arg(dir)
                .arg(BINDGEN);
            cargo.env("CARGO_TARGET_DIR", dir.join("target"));
            proc::run(env, "build bindgen", cargo)?;
            Ok(fs::remove_dir_all(dir.join("target"))?)
        })?;
        Ok(())
    }
}

/// Mount, process and, for a user other than root, user namespaces. With --kill-child the end of
/// unshare is the end of all processes in them.
fn namespaces() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child"]);
    if !is_root() {
        command.args(["--user", "--map-auto", "--map-root-user"]);
    }
    command.arg("--");
    command
}

/// The backports suite is written after the pattern of the sources that mmdebstrap chose, so no
/// mirror is named here. /etc/resolv.conf and the certificates are places to mount the host's.
const HOOKS: &[&str] = &[
    r#"--setup-hook=sed -n "s/ $SUITE / $BACKPORTS /p" "$1/etc/apt/sources.list" > "$1/etc/apt/sources.list.d/backports.list""#,
    r#"--customize-hook=rm -f "$1/etc/resolv.conf"; : > "$1/etc/resolv.conf""#,
    r#"--customize-hook=mkdir -p "$1/etc/ssl/certs" "$1/usr/share/ca-certificates" "$1/usr/local/share/ca-certificates""#,
];

fn bootstrap(env: &Env, base: &Base, include: &str, dir: &Path) -> Result<()> {
    let mut command = namespaces();
    command
        .arg("mmdebstrap")
        .args(["--variant=minbase", "--mode=root"])
        .args(HOOKS);
    command
        .arg(format!("--include={include}"))
        .arg(&base.suite)
        .arg(dir);
    command
        .env("SUITE", &base.suite)
        .env("BACKPORTS", &base.backports)
        .env("LC_ALL", "C.UTF-8");
    proc::run(env, "make the tool root", command)
}

/// Checks that this user can make a tool root, and gets mmdebstrap where that is possible.
fn prepare_host() -> Result<()> {
    let mut try_it = namespaces();
    try_it.arg("true");
    if let Err(error) = proc::output(try_it) {
        bail!(
            "no permission for a tool root, run as root or let this user make user namespaces \
             (package uidmap, entries in /etc/subuid and /etc/subgid): {error:#}"
        );
    }
    if in_path("mmdebstrap") {
        return Ok(());
    }
    const INSTALL: &str = "apt-get install mmdebstrap debian-archive-keyring";
    if !is_root() || !Path::new("/etc/debian_version").exists() || !in_path("apt-get") {
        bail!("mmdebstrap is missing, the one tool that the host must have: {INSTALL}");
    }
    proc::say(&format!("mmdebstrap is missing, so: {INSTALL}"));
    let mut step = proc::Step::new("install mmdebstrap");
    let mut apt = Command::new("sh");
    apt.arg("-c").arg(
        "apt-get update && apt-get install -y --no-install-recommends mmdebstrap debian-archive-keyring",
    );
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    let status = proc::lines(apt, |line| step.at(line)).context("apt-get")?;
    if !status.success() || !in_path("mmdebstrap") {
        bail!("apt-get could not install mmdebstrap; try it by hand: {INSTALL}");
    }
    step.done();
    Ok(())
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
