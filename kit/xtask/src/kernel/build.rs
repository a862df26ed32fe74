// SPDX-License-Identifier: GPL-2.0-only
//! Kernels: configure, check the configuration, build, keep the image.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{bail, Context, Result};
use clap::ValueEnum;
use walkdir::WalkDir;

use crate::host::env::Env;
use crate::host::files::{write_atomic, Key};
use crate::host::step;
use crate::host::toolroot::ToolRoot;
use crate::kernel::tree::Tree;

/// What kind of machine a kernel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bed {
    /// User-Mode Linux: boots in a fifth of a second, vsock built in.
    Um,
    /// x86_64 in QEMU, vsock as modules.
    Qemu,
    /// User-Mode Linux with /dev/vhost-vsock, to be the host of a QEMU guest.
    #[value(name = "pair", alias = "pair-host")]
    PairHost,
}

impl Bed {
    pub fn name(self) -> &'static str {
        match self {
            Bed::Um => "um",
            Bed::Qemu => "qemu",
            Bed::PairHost => "pair",
        }
    }

    pub fn is_um(self) -> bool {
        self != Bed::Qemu
    }

    /// Files in kernel/, the later ones win.
    fn fragments(self, debug: bool) -> Vec<&'static str> {
        let mut names = match self {
            Bed::Um => vec!["base.config", "um.config"],
            Bed::Qemu => vec!["base.config", "qemu.config"],
            Bed::PairHost => vec!["base.config", "um.config", "pair-host.config"],
        };
        if debug {
            names.push(if self.is_um() {
                "um-debug.config"
            } else {
                "qemu-debug.config"
            });
        }
        names
    }
}

/// Which implementation of the vsock sockmap the kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sockmap {
    Rust,
    C,
    /// The C version of the source without the series, for comparison.
    #[value(skip)]
    Pristine,
}

impl Sockmap {
    pub fn name(self) -> &'static str {
        match self {
            Sockmap::Rust => "rust",
            Sockmap::C => "c",
            Sockmap::Pristine => "pristine",
        }
    }
}

/// What to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    pub bed: Bed,
    pub sockmap: Sockmap,
    pub debug: bool,
}

impl Flavour {
    /// For people: `um-debug, Rust sockmap`.
    pub fn name(&self) -> String {
        let debug = if self.debug { "-debug" } else { "" };
        format!("{}{debug} {}", self.bed.name(), self.sockmap.name())
    }
}

/// A kernel that is ready to boot; its files stay as they are, so no lock is needed to use them.
#[derive(Clone, Debug)]
pub struct Image {
    /// Holds also `config`, `vmlinux` (with BTF, qemu) and `gen_init_cpio`.
    pub dir: PathBuf,
    /// `linux` or `bzImage`.
    pub kernel: PathBuf,
    /// lib/modules/VERSION, where the kernel has modules.
    pub modules: Option<PathBuf>,
    pub flavour: Flavour,
}

/// What every make of the kernel is told.
const MAKE: &[&str] = &[
    "LLVM=-22",
    // Without the time of day a link gives the same file again.
    "KBUILD_BUILD_TIMESTAMP=Thu Jan  1 00:00:00 UTC 1970",
    "KBUILD_BUILD_USER=vsock",
    "KBUILD_BUILD_HOST=sockmap",
];

/// Goes up when what is kept in an image changes.
const FORMAT: &str = "1";

/// In the O= folder while make is at work.
const BUSY: &str = ".make-is-running";

/// In the O= folder: what its .config was made from.
const CONFIGURED: &str = ".configured-from";

/// In the O= folder: which bindgen made its bindings.
const BINDGEN: &str = ".bindgen";

/// `make O=out` for a bed, in the work tree; targets and variables are to be added.
pub fn make(root: &ToolRoot, tree: &Path, out: &Path, bed: Bed) -> Command {
    let mut make = root.command(tree, "make");
    make.arg(format!("O={}", out.display())).args(MAKE);
    if bed.is_um() {
        make.arg("ARCH=um");
    }
    let jobs = std::thread::available_parallelism().map_or(2, |count| count.get());
    make.arg(format!("-j{jobs}"));
    make
}

/// The O= folder of a flavour; both versions of the sockmap are built in the same one.
fn out_dir(env: &Env, tree: &Tree, flavour: Flavour) -> PathBuf {
    let debug = if flavour.debug { "-debug" } else { "" };
    let pristine = match flavour.sockmap {
        Sockmap::Pristine => "-pristine",
        Sockmap::Rust | Sockmap::C => "",
    };
    env.cache.join(format!(
        "build-{}{debug}{pristine}-{}",
        flavour.bed.name(),
        tree.source.key
    ))
}

/// The kernel of this flavour, built if the cache has none.
pub fn build(env: &Env, root: &ToolRoot, tree: &Tree, flavour: Flavour) -> Result<Image> {
    let wanted = wanted_config(&env.repo, flavour)?;
    let key = Key::new()
        .add(FORMAT)
        .add(&root.key)
        .add(&root.bindgen)
        .add(&tree.kernel_key)
        .add(flavour.bed.name())
        .add(&wanted)
        .add(MAKE.join("\n"))
        .finish();
    let name = format!("image-{key}");
    if !env.cache.join(&name).exists() {
        root.ensure_bindgen(env)?;
        env.need_space(3, "a kernel build")?;
        let out = out_dir(env, tree, flavour);
        fs::create_dir_all(&out)?;
        configure(env, root, tree, &out, flavour, &wanted)?;
        forget_other_bindgen(root, &out)?;
        let targets: &[&str] = if flavour.bed.is_um() {
            &["all"]
        } else {
            &["bzImage", "modules"]
        };
        let mut all = make(root, &tree.path, &out, flavour.bed);
        all.args(targets);
        run_make(env, &format!("build kernel {}", flavour.name()), &out, all)?;
        env.make_dir(&name, |dir| keep(env, root, tree, &out, flavour.bed, dir))?;
    }
    image(&env.cache.join(name), flavour)
}

/// Runs a make that builds in an O= folder, so that the next one knows if it was interrupted.
pub fn run_make(env: &Env, step: &str, out: &Path, make: Command) -> Result<()> {
    clean_interrupted(out)?;
    fs::write(out.join(BUSY), "")?;
    let built = step::run(env, step, make);
    // A make that failed by itself cleaned up by itself.
    fs::remove_file(out.join(BUSY))?;
    built
}

/// The configuration that is asked for: fragments and which sockmap.
pub fn wanted_config(repo: &Path, flavour: Flavour) -> Result<String> {
    let mut wanted = String::new();
    for name in flavour.bed.fragments(flavour.debug) {
        let path = repo.join("kernel").join(name);
        wanted += &fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        wanted.push('\n');
    }
    // The pristine source has no such option; a "not set" holds there too.
    wanted += match flavour.sockmap {
        Sockmap::Rust => "CONFIG_VSOCKETS_SOCKMAP_RUST=y\n",
        Sockmap::C | Sockmap::Pristine => "# CONFIG_VSOCKETS_SOCKMAP_RUST is not set\n",
    };
    if flavour.sockmap == Sockmap::Pristine {
        wanted = without_rust(&wanted);
    }
    Ok(wanted)
}

/// Without the options of the language, which only the series needs.
fn without_rust(wanted: &str) -> String {
    wanted
        .lines()
        .filter(|line| !line.starts_with("CONFIG_RUST"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Makes the .config of an O= folder what is wanted.
pub fn configure(
    env: &Env,
    root: &ToolRoot,
    tree: &Tree,
    out: &Path,
    flavour: Flavour,
    wanted: &str,
) -> Result<()> {
    // Other changes in the tree reach the configuration by make itself.
    let from = Key::new()
        .add(wanted)
        .add(kconfig_key(tree)?)
        .add(&root.key)
        .finish();
    let stamp = out.join(CONFIGURED);
    if fs::read_to_string(&stamp).is_ok_and(|was| was == from) && out.join(".config").exists() {
        return Ok(());
    }
    let fragment = out.join(".wanted.config");
    let new = out.join(".new.config");
    fs::write(&fragment, wanted)?;
    // No to all that kernel/ does not name. Made beside .config, so that an unchanged one keeps its
    // time and make does nothing.
    let mut make = make(root, &tree.path, out, flavour.bed);
    make.arg(format!("KCONFIG_CONFIG={}", new.display()))
        .arg(format!("KCONFIG_ALLCONFIG={}", fragment.display()))
        .arg("allnoconfig");
    let step = format!("configure kernel {}", flavour.name());
    step::run(env, &step, make)?;
    let got = fs::read_to_string(&new)?;
    let lost = lost_options(wanted, &got);
    if !lost.is_empty() {
        bail!(
            "kernel {}: the configuration lost what kernel/ asks for (a missing dependency, \
             or no such option):\n  {}",
            flavour.name(),
            lost.join("\n  ")
        );
    }
    let config = out.join(".config");
    if fs::read_to_string(&config).ok().as_ref() != Some(&got) {
        write_atomic(&config, got.as_bytes())?;
    }
    fs::remove_file(&new)?;
    write_atomic(&stamp, from.as_bytes())
}

/// Changes when a Kconfig file of the repository does.
fn kconfig_key(tree: &Tree) -> Result<String> {
    let mut key = Key::new().add(&tree.source.key).add(&tree.source.version);
    if tree.source.of_user {
        return Ok(key.add(&tree.kernel_key).finish());
    }
    for file in &tree.files {
        if file
            .rsplit('/')
            .next()
            .is_some_and(|name| name.starts_with("Kconfig"))
        {
            key = key
                .add(file)
                .add(fs::read(tree.path.join(file)).unwrap_or_default());
        }
    }
    Ok(key.finish())
}

/// Lines of `wanted` that are not so in `got`; a later line of `wanted` wins over an earlier one.
pub fn lost_options(wanted: &str, got: &str) -> Vec<String> {
    let got = options(got);
    let mut lost = Vec::new();
    for (name, value) in options(wanted) {
        let is = got.get(name).copied().unwrap_or("n");
        if is != value {
            let how = if is == "n" {
                "is not set".to_string()
            } else {
                format!("is {is}")
            };
            lost.push(format!("{name}={value} ({how})"));
        }
    }
    lost
}

/// Options and their values; "is not set" is `n`.
fn options(config: &str) -> BTreeMap<&str, &str> {
    let mut options = BTreeMap::new();
    for line in config.lines().map(str::trim) {
        let unset = line
            .strip_prefix("# ")
            .and_then(|line| line.strip_suffix(" is not set"));
        if let Some(name) = unset.filter(|name| name.starts_with("CONFIG_")) {
            options.insert(name, "n");
        } else if let Some((name, value)) = line.split_once('=') {
            if name.starts_with("CONFIG_") {
                options.insert(name, value);
            }
        }
    }
    options
}

/// Make trusts the time of a file that it was writing when it was killed, so what was written last
/// is built again.
fn clean_interrupted(out: &Path) -> Result<()> {
    let Ok(busy) = fs::metadata(out.join(BUSY)) else {
        return Ok(());
    };
    let since = busy.modified()?;
    const BUILT: &[&str] = &[
        "o", "a", "so", "rmeta", "rs", "ko", "s", "bc", "order", "elf",
    ];
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in WalkDir::new(out) {
        let entry = entry?;
        let path = entry.path();
        let built = path
            .extension()
            .is_some_and(|ext| BUILT.iter().any(|built| ext == *built));
        let kernel = entry.file_name() == "linux"
            || entry.file_name().to_string_lossy().starts_with("vmlinux");
        if entry.file_type().is_file() && (built || kernel) {
            let time = entry.metadata()?.modified()?;
            if time >= since {
                files.push((time, path.to_path_buf()));
            }
        }
    }
    let Some(last) = files.iter().map(|(time, _)| *time).max() else {
        return Ok(());
    };
    for (time, path) in files {
        if last.duration_since(time).unwrap_or_default() < Duration::from_secs(60) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Make does not see that bindgen is another one, so the bindings of an earlier one go.
fn forget_other_bindgen(root: &ToolRoot, out: &Path) -> Result<()> {
    let stamp = out.join(BINDGEN);
    let was = fs::read_to_string(&stamp).unwrap_or_default();
    if was == root.bindgen {
        return Ok(());
    }
    if let Ok(entries) = fs::read_dir(out.join("rust/bindings")) {
        for entry in entries {
            let path = entry?.path();
            if !was.is_empty() && path.to_string_lossy().ends_with("_generated.rs") {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(fs::write(stamp, &root.bindgen)?)
}

/// Copies what a boot and the tests need out of the O= folder.
fn keep(env: &Env, root: &ToolRoot, tree: &Tree, out: &Path, bed: Bed, dir: &Path) -> Result<()> {
    let copy = |from: &str, to: &str| {
        fs::copy(out.join(from), dir.join(to)).with_context(|| format!("cannot copy {from}"))
    };
    copy(".config", "config")?;
    copy("usr/gen_init_cpio", "gen_init_cpio")?;
    if bed.is_um() {
        copy("linux", "linux")?;
        return Ok(());
    }
    copy("arch/x86/boot/bzImage", "bzImage")?;
    copy("vmlinux", "vmlinux")?;
    let mut install = make(root, &tree.path, out, bed);
    // Strips debug information only; BTF stays.
    install.args(["INSTALL_MOD_STRIP=1", "modules_install"]);
    install.arg(format!("INSTALL_MOD_PATH={}", dir.display()));
    step::run(env, "install modules", install)
}

fn image(dir: &Path, flavour: Flavour) -> Result<Image> {
    let kernel = dir.join(if flavour.bed.is_um() {
        "linux"
    } else {
        "bzImage"
    });
    let mut modules = None;
    if let Ok(entries) = fs::read_dir(dir.join("lib/modules")) {
        for entry in entries {
            modules = Some(entry?.path());
        }
    }
    Ok(Image {
        dir: dir.to_path_buf(),
        kernel,
        modules,
        flavour,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_options_are_named() {
        let wanted = "# a comment\nCONFIG_A=y\nCONFIG_B=m\nCONFIG_C=\"x\"\n# CONFIG_D is not set\n\
                      CONFIG_E=y\nCONFIG_F=17\n";
        let got = "CONFIG_A=y\nCONFIG_B=y\nCONFIG_C=\"x\"\nCONFIG_D=y\n# CONFIG_E is not set\n";
        assert_eq!(
            lost_options(wanted, got),
            [
                "CONFIG_B=m (is y)",
                "CONFIG_D=n (is y)",
                "CONFIG_E=y (is not set)",
                "CONFIG_F=17 (is not set)"
            ]
        );
    }

    #[test]
    fn nothing_is_lost() {
        let wanted = "CONFIG_A=y\n# CONFIG_NOT_KNOWN_AT_ALL is not set\nCONFIG_A=m\nCONFIG_B=n\n";
        assert!(lost_options(wanted, "CONFIG_A=m\n").is_empty());
    }

    #[test]
    fn pristine_kernel_needs_no_rust() {
        let wanted =
            "CONFIG_NET=y\nCONFIG_RUST=y\nCONFIG_RUST_OVERFLOW_CHECKS=y\nCONFIG_TRUSTED=y\n";
        assert_eq!(without_rust(wanted), "CONFIG_NET=y\nCONFIG_TRUSTED=y\n");
    }

    #[test]
    fn interrupted_build_loses_its_last_files() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("old.o");
        for name in ["old.o", "new.o", "new.rs", "keep.h", ".config"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        fs::File::open(&old)
            .unwrap()
            .set_modified(hour_ago)
            .unwrap();
        clean_interrupted(dir.path()).unwrap();
        assert!(dir.path().join("new.o").exists());
        let busy = fs::File::create(dir.path().join(BUSY)).unwrap();
        busy.set_modified(SystemTime::now() - Duration::from_secs(60))
            .unwrap();
        clean_interrupted(dir.path()).unwrap();
        for (name, left) in [
            ("old.o", true),
            ("new.o", false),
            ("new.rs", false),
            ("keep.h", true),
            (".config", true),
        ] {
            assert_eq!(dir.path().join(name).exists(), left, "{name}");
        }
    }
}
