// SPDX-License-Identifier: GPL-2.0-only
//! The lines of output, one for each case, and their number.

use anyhow::Result;

use crate::suites::case::{Case, Verdict};

/// Prints each case, and counts them.
#[derive(Default)]
pub struct Tally {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

impl Tally {
    /// Prints a case, and counts it.
    pub fn say(&mut self, verdict: Verdict, area: &str, name: &str, why: &str) {
        let word = match verdict {
            Verdict::Pass => {
                self.passed += 1;
                "ok  "
            }
            Verdict::Fail => {
                self.failed += 1;
                "FAIL"
            }
            Verdict::Skip => {
                self.skipped += 1;
                "skip"
            }
        };
        let why = if why.is_empty() {
            String::new()
        } else {
            format!("  ({why})")
        };
        println!("{word} {area}: {name}{why}");
    }

    /// Prints the closing line. Ends the program if a case failed, or if there was none.
    pub fn close(&self) -> Result<()> {
        let skipped = match self.skipped {
            0 => String::new(),
            skipped => format!(", {skipped} skipped"),
        };
        println!("{} passed, {} failed{skipped}", self.passed, self.failed);
        if self.failed > 0 || self.passed == 0 {
            // No error message is needed after the line above.
            std::process::exit(1);
        }
        Ok(())
    }

    /// Prints and counts a condition that must hold, or a suite without cases of its own.
    pub fn must(&mut self, area: &str, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.say(Verdict::Pass, area, name, ""),
            Err(error) => self.say(Verdict::Fail, area, name, &format!("{error:#}")),
        }
    }

    /// Prints and counts a case of our selftest with the Rust version, where no case may be
    /// skipped.
    pub fn say_ours(&mut self, area: &str, case: &Case) {
        match case.verdict {
            Verdict::Skip => self.say(Verdict::Fail, area, &case.name, "was skipped"),
            verdict => self.say(verdict, area, &case.name, &case.why.join("; ")),
        }
    }
}
