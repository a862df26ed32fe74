// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `bench`.

use std::path::PathBuf;

use crate::kernel::build::Bed;

#[derive(clap::Args)]
pub struct Args {
    /// Choose the test bed: a kind of machine that the kernel boots on
    #[arg(long, value_enum, default_value = "um")]
    pub bed: Bed,
    /// Measure these paths, each from one kind of socket to another
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "unix-dgram-to-vsock,unix-stream-to-vsock,tcp-to-vsock,udp-to-vsock,\
                         vsock-to-unix-stream,vsock-to-tcp,vsock-to-vsock"
    )]
    pub paths: Vec<String>,
    /// Measure writes of these sizes, in bytes
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "64,512,4096,65536,262144"
    )]
    pub sizes: Vec<usize>,
    /// Move bytes over this many connections at the same time
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub connections: Vec<usize>,
    /// Measure each value this many times; the report shows the median
    #[arg(long, default_value_t = 6)]
    pub rounds: u32,
    /// Measure this many round trips of 64 bytes in each round; 0 leaves them out
    #[arg(long, default_value_t = 500)]
    pub trips: usize,
    /// Run the copy loop for MS milliseconds in each measurement [default: 200, or 1000 on an
    /// emulated machine]
    ///
    /// The other arms move as many bytes as the copy loop does in that time.
    #[arg(long, value_name = "MS", verbatim_doc_comment)]
    pub time: Option<u64>,
    /// Leave out the pristine kernel, which is the source without the series
    #[arg(long)]
    pub no_pristine: bool,
    /// Write the report FILE from the results of earlier runs, and measure nothing
    ///
    /// The report of this repository is docs/benchmarks.md. It is made from a JSON file for each
    /// test bed: the newer one of build/bench/BED.json and docs/benchmarks/BED.json. The JSON files
    /// and plots are copied to docs/benchmarks/, and README.md gets the table of results.
    #[arg(
        long,
        value_name = "FILE",
        verbatim_doc_comment,
        conflicts_with_all = [
            "bed", "paths", "sizes", "connections", "rounds", "trips", "time", "no_pristine"
        ]
    )]
    pub report: Option<PathBuf>,
}
