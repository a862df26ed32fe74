// SPDX-License-Identifier: GPL-2.0-only
//! Guests that run test_progs.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::guest::boot::{Boot, Outcome, System};
use crate::guest::initramfs::Initramfs;
use crate::host::env::Env;
use crate::host::progress::Step;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::{Bed, Flavour, Image, Sockmap};
use crate::suites::case::Case;
use crate::suites::selftests::{guest, results};

/// How long a guest may take. User-Mode Linux runs at native speed, an emulated machine does not.
const UM_TIMEOUT: Duration = Duration::from_secs(180);
const QEMU_TIMEOUT: Duration = Duration::from_secs(900);

/// Returns the flavour of a debug kernel.
pub fn debug(bed: Bed, sockmap: Sockmap) -> Flavour {
    Flavour {
        bed,
        sockmap,
        debug: true,
    }
}

/// Returns the argument for `test_progs -a`: the tests whose name contains the filter, or else the
/// subtests.
pub fn select(tests: &[&str], filter: Option<&str>) -> String {
    let Some(filter) = filter else {
        return tests.join(",");
    };
    let named: Vec<&str> = tests
        .iter()
        .copied()
        .filter(|test| test.contains(filter))
        .collect();
    if !named.is_empty() {
        return named.join(",");
    }
    let subtests = tests.iter().map(|test| format!("{test}/*{filter}*"));
    subtests.collect::<Vec<_>>().join(",")
}

/// A kernel, and the tests that run on it.
pub struct Guest {
    pub image: Image,
    pub test_progs: PathBuf,
}

/// Boots a kernel with test_progs, and returns the boot's outcome and the cases.
pub fn boot(
    env: &Env,
    root: &ToolRoot,
    tested: &Guest,
    tests: &str,
) -> Result<(Outcome, Result<Vec<Case>>)> {
    let Guest { image, test_progs } = tested;
    let mut initramfs = Initramfs::new(env, root, guest::GUEST_MAIN);
    guest::add_to(&mut initramfs, test_progs)?;
    initramfs.modules(image)?.leak_check();
    let archive = initramfs.build(image)?;

    let args = [tests.to_string()];
    let mut boot = Boot::new(image, System::Initramfs(&archive));
    boot.args = &args;
    boot.timeout = Some(match image.flavour.bed {
        Bed::Qemu => QEMU_TIMEOUT,
        Bed::Um | Bed::PairHost => UM_TIMEOUT,
    });
    let name = image.flavour.name().replace(' ', "-");
    let step = Step::new(&format!("test on {}", image.flavour.name()));
    let outcome = boot.run(env, root, &name)?;
    step.done();
    let cases = results::parse(&outcome.log);
    Ok((outcome, cases))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_selects_tests_or_subtests() {
        let tests = ["sockmap_basic", "vsock_sockmap_recv"];
        assert_eq!(select(&tests, None), "sockmap_basic,vsock_sockmap_recv");
        assert_eq!(select(&tests, Some("basic")), "sockmap_basic");
        assert_eq!(
            select(&tests, Some("EOF")),
            "sockmap_basic/*EOF*,vsock_sockmap_recv/*EOF*"
        );
    }
}
