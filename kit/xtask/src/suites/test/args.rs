// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `test`.

use clap::ValueEnum;

/// A test bed, which is the kind of machine that the kernel boots on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TestBed {
    /// User-Mode Linux, with the Rust version: KUnit and the selftest of this series
    Um,
    /// x86_64 in QEMU, with both versions: Linux's sockmap selftests and that of this series
    Qemu,
}

#[derive(clap::Args)]
pub struct Args {
    /// Run only the tests of one test bed, for a quick answer
    ///
    /// This leaves out the kit's unit tests. It also leaves out vsock_test in a map, the selftests
    /// with allocations that fail and the stress program, unless FILTER names them.
    #[arg(long, value_enum, verbatim_doc_comment)]
    pub bed: Option<TestBed>,
    /// Run only the cases whose name contains this text, such as `sockmap_basic` or `redirect`
    ///
    /// The text is searched for in the names of the kit's unit tests, of KUnit cases and of
    /// selftests. If no selftest has it in its name, the names of all subtests are searched.
    /// These names are searched too:
    ///   vsock_test, vsock_perf, socat         vsock_test in a map, which runs all three
    ///   stress, stress with faults            the stress program
    ///   selftests with allocations that fail  the selftest of this series, in its error paths
    ///
    /// Two values are special, and run what no other `test` runs:
    ///   vmtest           upstream's vmtest.sh with our selftest; needs root and most of an hour
    ///   vsock_test_both  vsock_test in a map with both versions, each case in its own guest
    #[arg(verbatim_doc_comment)]
    pub filter: Option<String>,
}

impl Args {
    pub fn wants_bed(&self, bed: TestBed) -> bool {
        self.bed.is_none_or(|only| only == bed)
    }

    /// Decides whether tests with these names run on the test bed um. With `--bed` they are left
    /// out unless FILTER names one, as a single bed is for a quick answer.
    pub fn wants_any(&self, names: &[&str]) -> bool {
        match self.filter.as_deref() {
            Some(filter) => names.iter().any(|name| name.contains(filter)),
            None => self.bed.is_none(),
        }
    }
}
