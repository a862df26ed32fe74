// SPDX-License-Identifier: GPL-2.0-only
//! A single measurement, as the guest prints it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kernel::build::Sockmap;

/// A measurement as `guest bench` prints it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Line {
    /// The kinds of the source and the target: `vsock-to-tcp`.
    pub path: String,
    /// The way in which the bytes were moved: `direct`, `copy`, `socat` or `sockmap`.
    pub arm: String,
    pub round: u32,
    #[serde(flatten)]
    pub figure: Figure,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Figure {
    Throughput {
        size: usize,
        connections: usize,
        /// How many bytes arrived within the time limit.
        bytes: u64,
        /// How many bytes were sent.
        of: u64,
        mb_s: f64,
        /// None if nothing arrived.
        cpu_ms_mib: Option<f64>,
    },
    Trip {
        p50_us: f64,
        p99_us: f64,
    },
    Idle {
        idle_kib: f64,
    },
    /// Packets are counted at a vsock, so both are None where the counted end is another socket.
    Packets {
        size: usize,
        connections: usize,
        packets_mib: Option<f64>,
        updates_mib: Option<f64>,
    },
}

/// A measurement, and the kernel that it was made on.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measured {
    #[serde(
        serialize_with = "kernel_name",
        deserialize_with = "kernel_of_this_name"
    )]
    pub kernel: Sockmap,
    #[serde(flatten)]
    pub line: Line,
}

fn kernel_name<S: Serializer>(kernel: &Sockmap, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kernel.name())
}

fn kernel_of_this_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Sockmap, D::Error> {
    let name = String::deserialize(deserializer)?;
    [Sockmap::Rust, Sockmap::C, Sockmap::Pristine]
        .into_iter()
        .find(|kernel| kernel.name() == name)
        .ok_or_else(|| D::Error::custom(format!("there is no kernel `{name}`")))
}
