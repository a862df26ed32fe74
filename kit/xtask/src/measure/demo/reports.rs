// SPDX-License-Identifier: GPL-2.0-only
//! The reports of the programs, as they come over the consoles.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::Deserialize;

use super::arm::Arm;
use crate::guest::pair::said;

/// The report of `guest send-unix-dgram`.
#[derive(Clone, Debug, Deserialize)]
pub struct Sent {
    pub bytes: u64,
    pub hash: String,
    pub error: Option<String>,
}

/// The report of `guest serve-vsock`.
#[derive(Clone, Debug, Deserialize)]
pub struct Served {
    pub bytes: u64,
    /// The time from the first to the last byte.
    pub seconds: f64,
    pub hash: String,
    pub end: String,
    pub error: Option<String>,
}

/// The reports of the programs of an arm.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    pub sent: Option<Sent>,
    pub served: Option<Served>,
    /// The last output of the redirector, or an error message of the sender or the server.
    pub said: String,
}

impl Reports {
    /// Adds a line of the host's console to the reports of its arm.
    pub fn read(all: &mut BTreeMap<Arm, Reports>, line: &str) {
        let Some(rest) = said(line).strip_prefix("demo ") else {
            return;
        };
        let mut words = rest.splitn(3, ' ');
        let (Some(who), Some(name), text) = (words.next(), words.next(), words.next()) else {
            return;
        };
        let Ok(arm) = Arm::from_str(name, false) else {
            return;
        };
        let (reports, text) = (all.entry(arm).or_default(), text.unwrap_or_default());
        // A text that is not JSON is an error message. Without the JSON the arm counts as failed.
        match who {
            "sender" => reports.sent = serde_json::from_str(text).ok(),
            "server" => reports.served = serde_json::from_str(text).ok(),
            "redirector" => reports.said = text.trim().to_string(),
            _ => return,
        }
        if reports.said.is_empty() && !text.starts_with('{') {
            reports.said = text.to_string();
        }
    }

    /// Returns the speed in MB/s, if bytes arrived.
    pub fn speed(&self) -> Option<f64> {
        let served = self.served.as_ref()?;
        (served.seconds > 0.0).then(|| served.bytes as f64 / served.seconds / 1e6)
    }
}
