// SPDX-License-Identifier: GPL-2.0-only
//! Decides whether an arm delivered every byte.

use super::arm::Arm;
use super::reports::Reports;

/// How an arm went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every byte arrived, once and in order.
    All,
    /// Every byte that was sent within the time limit arrived, once and in order.
    Slow,
    Failed(String),
}

/// Returns how an arm went that had `bytes` to move. Only the C sockmap may be too slow to move
/// them all.
pub fn outcome(arm: Arm, reports: &Reports, bytes: u64) -> Outcome {
    let failed = |what: String| {
        Outcome::Failed(if reports.said.is_empty() {
            what
        } else {
            format!("{what}; the redirector said: {}", reports.said)
        })
    };
    let (Some(sent), Some(served)) = (&reports.sent, &reports.served) else {
        let who = if reports.sent.is_none() {
            "sender"
        } else {
            "server"
        };
        return failed(format!("the {who} reported nothing"));
    };
    if let Some(error) = &served.error {
        return failed(format!("the server: {error}"));
    }
    if served.bytes != sent.bytes {
        return failed(format!(
            "{} bytes were sent, and {} arrived",
            sent.bytes, served.bytes
        ));
    }
    if served.hash != sent.hash {
        return failed("other bytes arrived than were sent".to_string());
    }
    if served.end != "eof" {
        return failed(format!("the connection did not end well: {}", served.end));
    }
    match &sent.error {
        None if sent.bytes == bytes => Outcome::All,
        Some(error) if error == "time limit" && arm == Arm::C => Outcome::Slow,
        error => failed(format!(
            "only {} bytes were sent ({})",
            sent.bytes,
            error.as_deref().unwrap_or("no reason given")
        )),
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use super::*;

    pub fn reports(
        sent: u64,
        sent_error: Option<&str>,
        arrived: u64,
        hash: &str,
        end: &str,
    ) -> Reports {
        let mut all = BTreeMap::new();
        let error = sent_error.map_or("null".to_string(), |error| format!("{error:?}"));
        Reports::read(
            &mut all,
            &format!(r#"guest| demo sender c {{"bytes":{sent},"hash":"h","error":{error}}}"#),
        );
        Reports::read(
            &mut all,
            &format!(
                r#"demo server c {{"bytes":{arrived},"seconds":2.0,"hash":"{hash}","end":"{end}","error":null}}"#
            ),
        );
        all.remove(&Arm::C).unwrap()
    }

    #[test]
    fn every_byte_or_a_failure() {
        let good = reports(100, None, 100, "h", "eof");
        for arm in [Arm::Socat, Arm::C, Arm::Rust] {
            assert_eq!(outcome(arm, &good, 100), Outcome::All);
            for bad in [
                reports(100, None, 99, "h", "eof"),
                reports(100, None, 101, "h", "too much"),
                reports(100, None, 100, "x", "eof"),
                reports(100, None, 100, "h", "timeout"),
                reports(50, None, 50, "h", "eof"),
                reports(50, Some("send: refused"), 50, "h", "eof"),
                reports(50, Some("time limit"), 40, "h", "eof"),
                Reports::default(),
            ] {
                assert!(
                    matches!(outcome(arm, &bad, 100), Outcome::Failed(_)),
                    "{bad:?}"
                );
            }
        }
    }

    #[test]
    fn only_the_c_sockmap_may_be_slow() {
        let slow = reports(50, Some("time limit"), 50, "h", "eof");
        assert_eq!(outcome(Arm::C, &slow, 100), Outcome::Slow);
        assert!(matches!(outcome(Arm::Rust, &slow, 100), Outcome::Failed(_)));
        assert!(matches!(
            outcome(Arm::Socat, &slow, 100),
            Outcome::Failed(_)
        ));
    }

    #[test]
    fn error_message_in_place_of_json() {
        let mut all = BTreeMap::new();
        Reports::read(
            &mut all,
            "guest| demo redirector rust vsock-redirect: no vsock",
        );
        Reports::read(&mut all, "guest| demo sender rust bed: cannot connect");
        let Outcome::Failed(what) = outcome(Arm::Rust, &all[&Arm::Rust], 1) else {
            panic!("no failure");
        };
        assert!(what.contains("vsock-redirect: no vsock"), "{what}");
    }
}
