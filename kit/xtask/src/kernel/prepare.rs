// SPDX-License-Identifier: GPL-2.0-only
//! Puts the steps together that each verb begins with: tools, source, work tree, image.

use anyhow::{anyhow, Result};

use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::kernel::base::Base;
use crate::kernel::build::{build, Bed, Flavour, Image, Sockmap};
use crate::kernel::source::{self, Source};
use crate::kernel::tree::{self, Tree};

#[derive(clap::Args)]
pub struct FlavourArgs {
    /// What kind of machine
    #[arg(long, value_enum, default_value = "um")]
    pub bed: Bed,
    /// Which implementation of the vsock sockmap
    #[arg(long, value_enum, default_value = "rust")]
    pub sockmap: Sockmap,
    /// With sanitizers, watchdogs and the other debugging options
    #[arg(long)]
    pub debug: bool,
}

impl FlavourArgs {
    pub fn flavour(&self) -> Flavour {
        Flavour {
            bed: self.bed,
            sockmap: self.sockmap,
            debug: self.debug,
        }
    }
}

/// The tool root with bindgen, and the source. Building bindgen and fetching the source are
/// independent, so they run side by side; likewise in `prepare_tree`.
pub fn prepare(env: &Env) -> Result<(ToolRoot, Source)> {
    let root = tool_root(env)?;
    let source = beside_bindgen(env, &root, || source(env, &root))?;
    Ok((root, source))
}

/// The tool root with bindgen, and the work tree as the checkout has it now.
pub fn prepare_tree(env: &Env) -> Result<(ToolRoot, Tree)> {
    let root = tool_root(env)?;
    let tree = beside_bindgen(env, &root, || tree::apply(env, &root, source(env, &root)?))?;
    Ok((root, tree))
}

fn tool_root(env: &Env) -> Result<ToolRoot> {
    ToolRoot::ensure(env, &Base::read(&env.repo)?.suites)
}

/// The base, or the newest source to which the patches apply if the archive has the base no more.
fn source(env: &Env, root: &ToolRoot) -> Result<Source> {
    source::ensure(env, root, |source| {
        tree::content(&env.repo, source).map(|_| ())
    })
}

fn beside_bindgen<T>(env: &Env, root: &ToolRoot, work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::thread::scope(|scope| {
        let bindgen = scope.spawn(|| root.ensure_bindgen(env));
        let done = work();
        let bindgen = bindgen
            .join()
            .map_err(|_| anyhow!("building bindgen panicked"))?;
        let done = done?;
        bindgen?;
        Ok(done)
    })
}

/// All the way to a kernel image.
pub fn prepare_image(env: &Env, flavour: Flavour) -> Result<(ToolRoot, Image)> {
    let (root, tree) = prepare_tree(env)?;
    let image = build(env, &root, &tree, flavour)?;
    Ok((root, image))
}
