// SPDX-License-Identifier: GPL-2.0-only
//! The tool root: a Debian system in a folder, with compilers, QEMU and all other tools. So the
//! host needs no tools but mmdebstrap, which makes the folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, Context, Result};
use serde::Deserialize;

use crate::host::env::{is_root, Env};
use crate::host::files::Key;
use crate::host::{proc, progress, step};

/// The packages of the tool root. Those that end in `/backports` come from the backports suite.
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

/// The packages of the tool root for documentation. It is a folder of its own, so that a change
/// here leaves the key of the other one alone, and no kernel has to be built again.
const DOCS_PACKAGES: &[&str] = &[
    "python3-sphinx",
    "python3-yaml",
    // The kernel's Sphinx extension kfigure warns when there is no dot.
    "graphviz",
    "make",
    "ca-certificates",
];

/// The version of bindgen that cargo builds. Debian's is too old for this clang: it makes opaque
/// structs.
const BINDGEN: &str = "bindgen-cli@0.72.1";

/// The script that enters the tool root. It runs in new namespaces with these arguments: the tool
/// root, the working folder, the folders of the host to show in the tool root, `--`, and the
/// program.
const ENTER: &str = r#"
fail() { echo "xtask: cannot enter the tool root $root: $*" >&2; exit 125; }
root=$1 dir=$2; shift 2
[ -d "$root/usr" ] || fail "the folder is gone; run cargo xtask setup"
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

/// The environment variables of the user that a program in the tool root sees.
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

/// The Debian suites that the packages of the tool root come from.
#[derive(Clone, Debug, Deserialize)]
pub struct Suites {
    /// Debian suite of the tool root.
    pub suite: String,
    /// Suite with newer packages for it.
    pub backports: String,
}

/// The tool root. [`ToolRoot::command`] runs programs in it.
pub struct ToolRoot {
    pub path: PathBuf,
    /// Changes with the packages.
    pub key: String,
    /// The folder of bindgen in the cache. Its name changes with the version of bindgen.
    pub bindgen: String,
    cache: PathBuf,
    /// The folders of the host that programs see at their own paths.
    shown: Vec<PathBuf>,
}

impl ToolRoot {
    /// Returns the tool root of these suites. Makes it if the cache has none.
    pub fn ensure(env: &Env, suites: &Suites) -> Result<Self> {
        Self::ensure_packages(env, suites, "tools", PACKAGES, 12)
    }

    /// Returns the tool root for documentation. Makes it if the cache has none.
    pub fn ensure_docs(env: &Env, suites: &Suites) -> Result<Self> {
        Self::ensure_packages(env, suites, "docs-tools", DOCS_PACKAGES, 1)
    }

    /// Returns the tool root that has these packages. Makes it if the cache has none, which fails
    /// when less than `gib` GiB are free.
    fn ensure_packages(
        env: &Env,
        suites: &Suites,
        kind: &str,
        packages: &[&str],
        gib: u64,
    ) -> Result<Self> {
        let include = packages
            .join(",")
            .replace("/backports", &format!("/{}", suites.backports));
        let key = Key::new()
            .add(&suites.suite)
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
                env.make_dir(&name, |dir| bootstrap(env, suites, &include, dir))?;
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

    /// Returns a command that runs `program` inside the tool root, in folder `dir`. The program
    /// sees the cache, the checkout and `--source` at their own paths. Killing the process of the
    /// command ends all processes that it started.
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

    /// Builds bindgen if the cache has none. Each [`ToolRoot::command`] has it in its PATH. It is
    /// in a folder of its own, so that it can be built while the kernel source is fetched.
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
            step::run(env, "build bindgen", cargo)?;
            Ok(fs::remove_dir_all(dir.join("target"))?)
        })?;
        Ok(())
    }
}

/// Returns a command that runs a program, to be added, in new mount and process namespaces, and for
/// a user other than root in a new user namespace. With --kill-child the end of unshare ends all
/// processes in them.
fn namespaces() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child"]);
    if !is_root() {
        command.args(["--user", "--map-auto", "--map-root-user"]);
    }
    command.arg("--");
    command
}

/// The hooks of mmdebstrap. The first adds the backports suite from the mirror that mmdebstrap
/// chose, so that no mirror is named here. The others make places at which [`ENTER`] mounts the
/// host's /etc/resolv.conf and certificates.
const HOOKS: &[&str] = &[
    r#"--setup-hook=sed -n "s/ $SUITE / $BACKPORTS /p" "$1/etc/apt/sources.list" > "$1/etc/apt/sources.list.d/backports.list""#,
    r#"--customize-hook=rm -f "$1/etc/resolv.conf"; : > "$1/etc/resolv.conf""#,
    r#"--customize-hook=mkdir -p "$1/etc/ssl/certs" "$1/usr/share/ca-certificates" "$1/usr/local/share/ca-certificates""#,
];

/// Makes a tool root in folder `dir`.
fn bootstrap(env: &Env, suites: &Suites, include: &str, dir: &Path) -> Result<()> {
    let mut command = namespaces();
    command
        .arg("mmdebstrap")
        .args(["--variant=minbase", "--mode=root"])
        .args(HOOKS);
    command
        .arg(format!("--include={include}"))
        .arg(&suites.suite)
        .arg(dir);
    command
        .env("SUITE", &suites.suite)
        .env("BACKPORTS", &suites.backports)
        .env("LC_ALL", "C.UTF-8");
    step::run(env, "make the tool root", command)
}

/// Checks that this user can make a tool root. Installs mmdebstrap if it is missing and this user
/// is root on Debian.
fn prepare_host() -> Result<()> {
    let mut try_it = namespaces();
    try_it.arg("true");
    if let Err(error) = proc::output(try_it) {
        bail!(
            "this user may not make a tool root; run as root, or let the user make user namespaces \
             (package uidmap, and entries in /etc/subuid and /etc/subgid): {error:#}"
        );
    }
    if in_path("mmdebstrap") {
        return Ok(());
    }
    const INSTALL: &str = "apt-get install mmdebstrap debian-archive-keyring";
    if !is_root() || !Path::new("/etc/debian_version").exists() || !in_path("apt-get") {
        bail!("mmdebstrap is missing; install it: {INSTALL}");
    }
    progress::say(&format!("mmdebstrap is missing; running: {INSTALL}"));
    let mut step = progress::Step::new("install mmdebstrap");
    let mut apt = Command::new("sh");
    apt.arg("-c").arg(
        "apt-get update && apt-get install -y --no-install-recommends mmdebstrap debian-archive-keyring",
    );
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    let status = proc::lines(apt, |line| step.at(line)).context("apt-get")?;
    if !status.success() || !in_path("mmdebstrap") {
        bail!("apt-get could not install mmdebstrap; install it yourself: {INSTALL}");
    }
    step.done();
    Ok(())
}

/// Returns whether PATH has a program of this name.
fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}
