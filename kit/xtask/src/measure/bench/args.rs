// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `bench`.

use std::path::PathBuf;

use crate::kernel::build::Bed;

#[derive(clap::Args)]
pub struct Args {
    /// The test bed, which is the kind of machine that the kernel boots on
    #[arg(long, value_enum, default_value = "um")]
    pub bed: Bed,
    /// From which kind of socket to which
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "unix-dgram-to-vsock,unix-stream-to-vsock,tcp-to-vsock,udp-to-vsock,\
                         vsock-to-unix-stream,vsock-to-tcp,vsock-to-vsock"
    )]
    pub paths: Vec<String>,
    /// How many bytes each write has
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "64,512,4096,65536,262144"
    )]
    pub sizes: Vec<usize>,
    /// How many connections move bytes at the same time
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub connections: Vec<usize>,
    /// How many measurements each median is of
    #[arg(long, default_value_t = 6)]
    pub rounds: u32,
    /// How many round trips of 64 bytes each round has; 0 leaves them out
    #[arg(long, default_value_t = 500)]
    pub trips: usize,
    /// How long the copy loop runs in a measurement; the other arms move as many bytes [default:
    /// 200, or 1000 on an emulated machine]
    #[arg(long, value_name = "MS")]
    pub time: Option<u64>,
    /// Leave out the pristine kernel, which is the source without the series
    #[arg(long)]
    pub no_pristine: bool,
    /// Measure nothing, but write the report FILE (docs/benchmarks.md) and its plots from the JSON
    /// files of earlier runs; of each test bed it takes the newer file of those in build/bench/ and
    /// in the folder of the report (docs/benchmarks/)
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = [
            "bed", "paths", "sizes", "connections", "rounds", "trips", "time", "no_pristine"
        ]
    )]
    pub report: Option<PathBuf>,
}
