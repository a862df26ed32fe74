// SPDX-License-Identifier: GPL-2.0-only
//! Builds kernels and keeps their images in the cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::host::env::Env;
use crate::host::files::Key;
use crate::host::step;
use crate::host::toolroot::ToolRoot;
use crate::kernel::config::{configure, wanted_config};
use crate::kernel::make;
use crate::kernel::tree::Tree;

// Callers of `build` name the kernel with these.
pub use crate::kernel::config::lost_options;
pub use crate::kernel::flavour::{Bed, Flavour, Sockmap};

/// A kernel that is ready to boot. Its files never change, so their users need no lock.
#[derive(Clone, Debug)]
pub struct Image {
    /// The folder of the image. It also has `config`, `gen_init_cpio`, and for QEMU `vmlinux` with
    /// BTF.
    pub dir: PathBuf,
    /// The file to boot, `linux` or `bzImage`.
    pub kernel: PathBuf,
    /// The folder lib/modules/VERSION, if the kernel has modules.
    pub modules: Option<PathBuf>,
    pub flavour: Flavour,
}

/// The version of the format of an image. Increment it when [`keep`] keeps other files.
const FORMAT: &str = "1";

/// Returns the build folder (O=) of a kernel. The Rust and the C version share one.
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

/// Returns the image of a kernel. Builds it if the cache has none.
pub fn build(env: &Env, root: &ToolRoot, tree: &Tree, flavour: Flavour) -> Result<Image> {
    let wanted = wanted_config(&env.repo, flavour)?;
    let key = Key::new()
        .add(FORMAT)
        .add(&root.key)
        .add(&root.bindgen)
        .add(&tree.kernel_key)
        .add(flavour.bed.name())
        .add(&wanted)
        .add(make::VARIABLES.join("\n"))
        .finish();
    let name = format!("image-{key}");
    if !env.cache.join(&name).exists() {
        root.ensure_bindgen(env)?;
        env.need_space(3, "a kernel build")?;
        let out = out_dir(env, tree, flavour);
        fs::create_dir_all(&out)?;
        configure(env, root, tree, &out, flavour, &wanted)?;
        make::forget_other_bindgen(root, &out)?;
        let targets: &[&str] = if flavour.bed.is_um() {
            &["all"]
        } else {
            &["bzImage", "modules"]
        };
        let mut all = make::command(root, &tree.path, &out, flavour.bed);
        all.args(targets);
        make::run(env, &format!("build kernel {}", flavour.name()), &out, all)?;
        env.make_dir(&name, |dir| keep(env, root, tree, &out, flavour.bed, dir))?;
    }
    image(&env.cache.join(name), flavour)
}

/// Copies the files that a boot and the tests need from the build folder to the image.
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
    let mut install = make::command(root, &tree.path, out, bed);
    // This strips debug information only; BTF stays.
    install.args(["INSTALL_MOD_STRIP=1", "modules_install"]);
    install.arg(format!("INSTALL_MOD_PATH={}", dir.display()));
    step::run(env, "install modules", install)
}

/// Returns the image in a folder.
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
