// SPDX-License-Identifier: GPL-2.0-only
//! Configures a kernel from the fragments in kernel/.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{bail, Context, Result};

use crate::host::env::Env;
use crate::host::files::{write_atomic, Key};
use crate::host::step;
use crate::host::toolroot::ToolRoot;
use crate::kernel::flavour::{Flavour, Sockmap};
use crate::kernel::make;
use crate::kernel::tree::Tree;

/// A file of the build folder (O=) that has a key of the inputs of its .config.
const CONFIGURED: &str = ".configured-from";

/// Returns the options that a kernel must have: the fragments, and the option for the sockmap.
pub fn wanted_config(repo: &Path, flavour: Flavour) -> Result<String> {
    let mut wanted = String::new();
    for name in flavour.bed.fragments(flavour.debug) {
        let path = repo.join("kernel").join(name);
        wanted += &fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        wanted.push('\n');
    }
    // The pristine source does not have this option, so there it counts as not set.
    wanted += match flavour.sockmap {
        Sockmap::Rust => "CONFIG_VSOCKETS_SOCKMAP_RUST=y\n",
        Sockmap::C | Sockmap::Pristine => "# CONFIG_VSOCKETS_SOCKMAP_RUST is not set\n",
    };
    if flavour.sockmap == Sockmap::Pristine {
        wanted = without_rust(&wanted);
    }
    Ok(wanted)
}

/// Removes the options for Rust, which only the series needs.
fn without_rust(wanted: &str) -> String {
    wanted
        .lines()
        .filter(|line| !line.starts_with("CONFIG_RUST"))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Makes the .config of the build folder `out` from the options in `wanted`. Returns an error if
/// one of them does not hold in the end.
pub fn configure(
    env: &Env,
    root: &ToolRoot,
    tree: &Tree,
    out: &Path,
    flavour: Flavour,
    wanted: &str,
) -> Result<()> {
    // When other files of the tree change, make itself updates the configuration.
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
    // allnoconfig turns off all options that the fragments do not name. The result goes to another
    // file first: an unchanged .config keeps its time, and make then builds nothing.
    let mut make = make::command(root, &tree.path, out, flavour.bed);
    make.arg(format!("KCONFIG_CONFIG={}", new.display()))
        .arg(format!("KCONFIG_ALLCONFIG={}", fragment.display()))
        .arg("allnoconfig");
    let step = format!("configure kernel {}", flavour.name());
    step::run(env, &step, make)?;
    let got = fs::read_to_string(&new)?;
    let lost = lost_options(wanted, &got);
    if !lost.is_empty() {
        bail!(
            "kernel {}: these options of the fragments in kernel/ do not hold; correct them or \
             add the options that they depend on:\n  {}",
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

/// Returns a key that changes with any Kconfig file that the repository adds or changes.
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

/// Returns the options of `wanted` that have another value in `got`. Of two lines of `wanted` for
/// one option the later one counts.
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

/// Returns the options of a configuration and their values. "is not set" is `n`.
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
}
