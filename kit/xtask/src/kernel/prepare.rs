// SPDX-License-Identifier: GPL-2.0-only
//! The steps that verbs begin with: make the tool root, fetch the source, make the work tree, build
//! an image.

use anyhow::{anyhow, Result};

use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::kernel::base::Base;
use crate::kernel::build::{build, Image};
use crate::kernel::changes;
use crate::kernel::flavour::Flavour;
use crate::kernel::source::{self, Source};
use crate::kernel::tree::{self, Tree};

/// Returns the tool root with bindgen, and the source. Makes those that the cache does not have.
pub fn prepare(env: &Env) -> Result<(ToolRoot, Source)> {
    let root = tool_root(env)?;
    let source = beside_bindgen(env, &root, || source(env, &root))?;
    Ok((root, source))
}

/// Returns the tool root with bindgen, and the work tree of the checkout.
pub fn prepare_tree(env: &Env) -> Result<(ToolRoot, Tree)> {
    let root = tool_root(env)?;
    let tree = beside_bindgen(env, &root, || tree::apply(env, &root, source(env, &root)?))?;
    Ok((root, tree))
}

/// Returns the tool root, without bindgen.
fn tool_root(env: &Env) -> Result<ToolRoot> {
    ToolRoot::ensure(env, &Base::read(&env.repo)?.suites)
}

/// Returns the base. If the archive does not have it, returns the newest source to which the
/// patches apply.
fn source(env: &Env, root: &ToolRoot) -> Result<Source> {
    source::ensure(env, root, |source| {
        changes::content(&env.repo, source).map(|_| ())
    })
}

/// Does `work` and builds bindgen, both at once.
fn beside_bindgen<T>(env: &Env, root: &ToolRoot, work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::thread::scope(|scope| {
        let bindgen = scope.spawn(|| root.ensure_bindgen(env));
        let done = work();
        let bindgen = bindgen
            .join()
            .map_err(|_| anyhow!("the thread that builds bindgen panicked; try again"))?;
        let done = done?;
        bindgen?;
        Ok(done)
    })
}

/// Returns the tool root with bindgen, and the image of a kernel.
pub fn prepare_image(env: &Env, flavour: Flavour) -> Result<(ToolRoot, Image)> {
    let (root, tree) = prepare_tree(env)?;
    let image = build(env, &root, &tree, flavour)?;
    Ok((root, image))
}
