// SPDX-License-Identifier: GPL-2.0-only
//! Gets the pristine kernel source: the Debian package of kernel/base.toml, or the user's tree.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};

use crate::host::env::Env;
use crate::host::files::{sha256_file, write_atomic, Key};
use crate::host::toolroot::ToolRoot;
use crate::host::{proc, progress, step};
use crate::kernel::base::Base;

/// A kernel source.
#[derive(Clone)]
pub struct Source {
    /// The folder, to which nothing is written.
    pub path: PathBuf,
    /// The version that messages show: that of the Debian package, or that of the Makefile.
    pub version: String,
    /// Differs for each source.
    pub key: String,
    /// Whether it comes from `--source`, so that its files can change.
    pub of_user: bool,
}

/// Returns the source. Fetches it if the cache does not have it. `fits` returns an error for a
/// source to which the patches do not apply.
pub fn ensure(env: &Env, root: &ToolRoot, fits: impl Fn(&Path) -> Result<()>) -> Result<Source> {
    if let Some(dir) = &env.source {
        return of_user(dir);
    }
    let base = Base::read(&env.repo)?;
    if let Some(source) = cached(env, &base)? {
        return Ok(source);
    }
    let _lock = env.lock("source")?;
    if let Some(source) = cached(env, &base)? {
        return Ok(source);
    }
    env.need_space(8, "the kernel source")?;
    let mut update = root.command(Path::new("/"), "apt-get");
    // Without this option an unreachable server is only a warning.
    update
        .args(APT)
        .args(["-o", "APT::Update::Error-Mode=any", "update"]);
    step::run(env, "update the package lists", update)?;
    if versions(root, &base.package)?.contains(&base.version) {
        fetch(env, root, &base.package, &base.version, Some(&base.sha256))
    } else {
        newest_that_fits(env, root, &base, fits)
    }
}

/// The option that lets apt-get run in a user namespace, whose root cannot become apt's own user.
const APT: [&str; 2] = ["-o", "APT::Sandbox::User=root"];

/// Returns the key of a source that is fetched.
fn key(version: &str, sha256: &str) -> String {
    Key::new().add(version).add(sha256).finish()
}

/// Returns the file that names the source used instead of a base that the archive does not have.
fn stand_in(env: &Env, base: &Base) -> PathBuf {
    env.cache.join(format!(
        "source-{}.stand-in",
        key(&base.version, &base.sha256)
    ))
}

/// Returns the source if the cache has it.
fn cached(env: &Env, base: &Base) -> Result<Option<Source>> {
    let (mut key, mut version) = (key(&base.version, &base.sha256), base.version.clone());
    if let Ok(text) = fs::read_to_string(stand_in(env, base)) {
        let mut words = text.split_whitespace();
        if let (Some(other), Some(its_version)) = (words.next(), words.next()) {
            (key, version) = (other.to_string(), its_version.to_string());
        }
    }
    let path = env.cache.join(format!("source-{key}"));
    Ok(path.exists().then_some(Source {
        path,
        version,
        key,
        of_user: false,
    }))
}

/// Downloads a package, whose signature apt-get checks, and unpacks its tarball.
fn fetch(
    env: &Env,
    root: &ToolRoot,
    package: &str,
    version: &str,
    sha256: Option<&str>,
) -> Result<Source> {
    // base.toml has a checksum for the base only. Other packages are trusted by their signature.
    let key = match sha256 {
        Some(sha256) => key(version, sha256),
        None => key(version, "signed by the archive"),
    };
    let path = env.make_dir(&format!("source-{key}"), |dir| {
        let fetched = dir.join(".fetched");
        fs::create_dir(&fetched)?;
        let mut download = root.command(&fetched, "apt-get");
        download
            .args(APT)
            .arg("download")
            .arg(format!("{package}={version}"));
        step::run(env, &format!("download {package} {version}"), download)?;
        let mut unpack = root.command(&fetched, "sh");
        unpack.args(["-c", "exec dpkg-deb -x *.deb ."]);
        step::run(env, "unpack the package", unpack)?;
        let tarball = fetched.join("usr/src").join(format!("{package}.tar.xz"));
        let found = sha256_file(&tarball)?;
        if sha256.is_some_and(|wanted| wanted != found) {
            bail!(
                "the tarball of {package} {version} has SHA256 {found}, but kernel/base.toml has \
                 {}; correct base.toml if you trust the new file",
                sha256.unwrap_or_default()
            );
        }
        let mut tar = root.command(dir, "tar");
        tar.args(["--strip-components=1", "--no-same-owner", "-xf"])
            .arg(&tarball);
        step::run(env, "unpack the kernel source", tar)?;
        Ok(fs::remove_dir_all(&fetched)?)
    })?;
    Ok(Source {
        path,
        version: version.to_string(),
        key,
        of_user: false,
    })
}

/// Returns the versions of a package that the archive has, newest first.
fn versions(root: &ToolRoot, package: &str) -> Result<Vec<String>> {
    let mut madison = root.command(Path::new("/"), "apt-cache");
    madison.args(["madison", package]);
    Ok(parse_madison(&proc::output(madison)?))
}

/// Reads the output of `apt-cache madison`, whose lines are `package | version | place`.
fn parse_madison(output: &str) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for line in output.lines() {
        if let Some(version) = line
            .split('|')
            .nth(1)
            .map(|version| version.trim().to_string())
        {
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
    }
    versions
}

/// Returns (7, 3) for `linux-source-7.3`, and `None` for a package that is no kernel source.
fn release(package: &str) -> Option<(u32, u32)> {
    let (major, minor) = package.strip_prefix("linux-source-")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the newest source to which the patches apply and that is not older than the base.
fn newest_that_fits(
    env: &Env,
    root: &ToolRoot,
    base: &Base,
    fits: impl Fn(&Path) -> Result<()>,
) -> Result<Source> {
    let mut search = root.command(Path::new("/"), "apt-cache");
    search.args(["search", "--names-only", "^linux-source-[0-9.]+$"]);
    let found = proc::output(search)?;
    let mut packages: Vec<(u32, u32)> = found
        .lines()
        .filter_map(|line| release(line.split_whitespace().next()?))
        .filter(|found| Some(*found) >= release(&base.package))
        .collect();
    packages.sort();
    let mut tried = Vec::new();
    for (major, minor) in packages.iter().rev() {
        let package = format!("linux-source-{major}.{minor}");
        for version in versions(root, &package)? {
            progress::say(&format!(
                "the archive does not have {} {}; trying {package} {version}",
                base.package, base.version
            ));
            let source = fetch(env, root, &package, &version, None)?;
            match fits(&source.path) {
                Ok(()) => {
                    progress::say(&format!(
                        "the patches apply to {package} {version}; using it"
                    ));
                    let line = format!("{} {}\n", source.key, source.version);
                    write_atomic(&stand_in(env, base), line.as_bytes())?;
                    return Ok(source);
                }
                Err(error) => {
                    tried.push(format!("{package} {version}: {error:#}"));
                    env.remove_dir(&source.path)?;
                }
            }
        }
    }
    bail!(
        "the archive has neither {} {} nor a newer source to which the patches apply; port them, \
         then change kernel/base.toml\n{}",
        base.package,
        base.version,
        tried.join("\n")
    )
}

/// Returns the user's tree as a source.
fn of_user(dir: &Path) -> Result<Source> {
    let makefile = fs::read_to_string(dir.join("Makefile")).unwrap_or_default();
    if !dir.join("net/vmw_vsock").is_dir() || !dir.join("Kconfig").exists() {
        bail!(
            "--source {}: this is not a kernel tree; give the top folder of one",
            dir.display()
        );
    }
    if dir.join(".config").exists() || dir.join("include/config").exists() {
        bail!(
            "--source {}: a kernel was built in this tree; run `make mrproper` there first",
            dir.display()
        );
    }
    let version = make_version(&makefile).with_context(|| {
        format!(
            "--source {}: its Makefile has no version; give a kernel tree",
            dir.display()
        )
    })?;
    let key = Key::new().add(dir.as_os_str().as_encoded_bytes()).finish();
    Ok(Source {
        path: dir.to_path_buf(),
        version,
        key,
        of_user: true,
    })
}

/// Returns the kernel version that a Makefile has.
fn make_version(makefile: &str) -> Option<String> {
    let get = |name: &str| {
        makefile.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().to_string())
        })
    };
    let sub = get("SUBLEVEL").unwrap_or_default();
    let extra = get("EXTRAVERSION").unwrap_or_default();
    Some(format!(
        "{}.{}.{sub}{extra}",
        get("VERSION")?,
        get("PATCHLEVEL")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn madison_lines() {
        let text = " linux-source-7.3 | 7.3.5-1 | http://x trixie/main amd64\n \
                     linux-source-7.3 | 7.3.5-1 | http://y trixie/main amd64\n \
                     linux-source-7.3 | 7.3.4-1~bpo13+1 | http://x trixie/main amd64\n";
        assert_eq!(parse_madison(text), ["7.3.5-1", "7.3.4-1~bpo13+1"]);
    }

    #[test]
    fn releases_compare_as_numbers() {
        assert!(release("linux-source-7.10") > release("linux-source-7.9"));
        assert_eq!(release("linux-source"), None);
    }

    #[test]
    fn version_of_a_makefile() {
        let text = "VERSION = 7\nPATCHLEVEL = 4\nSUBLEVEL = 0\nEXTRAVERSION = -rc2\n";
        assert_eq!(make_version(text).unwrap(), "7.4.0-rc2");
        assert_eq!(make_version(""), None);
    }
}
