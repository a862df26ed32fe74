// SPDX-License-Identifier: GPL-2.0-only
//! A test case and its verdict, which all suites have in common.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail,
    Skip,
}

/// A test case: a subtest, or a test that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// `test/subtest`.
    pub name: String,
    pub verdict: Verdict,
    /// Reasons for the verdict, as the test printed them.
    pub why: Vec<String>,
}
