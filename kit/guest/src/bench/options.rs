// SPDX-License-Identifier: GPL-2.0-only
//! The options of `guest bench`, and the setups that they ask for.

use std::time::Duration;

use super::peer::Peer;
use super::setup::{Arm, Path, Setup};

#[derive(clap::Args)]
pub struct Args {
    /// Kinds of the two sockets, comma-separated
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    pub paths: Vec<Path>,
    /// What moves the bytes, comma-separated
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    pub arms: Vec<Arm>,
    /// Bytes of each write, comma-separated; without this option only round trips are measured
    #[arg(long, value_delimiter = ',')]
    pub sizes: Vec<usize>,
    /// Number of measurements of each kind; all arms are measured once in each round
    #[arg(long, default_value_t = 5)]
    pub rounds: u32,
    /// Numbers of connections at the same time, comma-separated
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub connections: Vec<usize>,
    /// Duration of a measurement of the copy loop; the other arms move as many bytes
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 300)]
    time: u64,
    /// Number of round trips of 64 bytes; 0 measures none
    #[arg(long, default_value_t = 0)]
    pub trips: usize,
    /// Address of a `guest bench-peer` that holds the remote ends of the vsocks; without it they
    /// are on this machine
    #[arg(long, value_name = "CID:PORT")]
    peer: Option<Peer>,
    /// A vsockmon device, to count packets
    #[arg(long, value_name = "DEVICE")]
    pub monitor: Option<String>,
}

impl Args {
    pub fn time(&self) -> Duration {
        Duration::from_millis(self.time)
    }

    /// Returns the setups for a path, one for each arm that can serve it.
    pub fn setups(&self, path: Path) -> Vec<Setup> {
        let arms = self.arms.iter().copied();
        arms.filter(|arm| *arm != Arm::Socat || path.socat_can_read())
            .map(|arm| Setup {
                path,
                arm,
                peer: self.peer,
            })
            .collect()
    }
}
