// SPDX-License-Identifier: GPL-2.0-only
//! The table that compares the arms.

use std::fmt::Write as _;

use super::arm::Arm;
use super::outcome::{outcome, Outcome};
use super::reports::Reports;
use crate::kernel::build::Sockmap;

/// Returns the table, and a line for each arm that failed.
pub fn table(ran: &[(Arm, Sockmap, Reports)], bytes: u64) -> (String, Vec<String>) {
    let socat = ran
        .iter()
        .find(|(arm, ..)| *arm == Arm::Socat)
        .and_then(|(.., reports)| reports.speed());
    let mut table = format!(
        "{:<14}{:<14}{:>8}{:>9}{:>9}{:>10}  every byte arrived\n",
        "redirector", "guest kernel", "MiB", "seconds", "MB/s", "vs socat"
    );
    let mut failed = Vec::new();
    for (arm, sockmap, reports) in ran {
        let speed = reports.speed();
        let number = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
        };
        let ratio = speed.zip(socat).map(|(speed, socat)| speed / socat);
        let moved = reports.served.as_ref().map(|served| served.bytes);
        let word = match outcome(*arm, reports, bytes) {
            Outcome::All => "yes".to_string(),
            Outcome::Slow => "yes, of the bytes sent within the time limit".to_string(),
            Outcome::Failed(what) => {
                failed.push(format!("{}: {what}", arm.title()));
                "NO".to_string()
            }
        };
        let _ = writeln!(
            table,
            "{:<14}{:<14}{:>8}{:>9}{:>9}{:>10}  {word}",
            arm.title(),
            sockmap.name(),
            number(moved.map(|moved| moved as f64 / (1 << 20) as f64), 1),
            number(reports.served.as_ref().map(|served| served.seconds), 1),
            number(speed, 1),
            ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}x")),
        );
    }
    (table, failed)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::reports;
    use super::*;

    #[test]
    fn table_has_ratios() {
        let ran = [
            (
                Arm::Socat,
                Sockmap::Rust,
                reports(4_000_000, None, 4_000_000, "h", "eof"),
            ),
            (
                Arm::Rust,
                Sockmap::Rust,
                reports(8_000_000, None, 8_000_000, "h", "eof"),
            ),
        ];
        let (table, failed) = table(&ran, 8_000_000);
        assert!(table.contains("2.00x  yes"), "{table}");
        assert_eq!(failed.len(), 1);
    }
}
