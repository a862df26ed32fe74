// SPDX-License-Identifier: GPL-2.0-only
//! The measurements that a boot makes.

use std::time::Duration;

use super::args::Args;
use crate::kernel::build::Bed;

/// How often each kernel boots; the rounds are shared out among the boots.
pub const BOOTS: u32 = 2;

/// The measurements of a boot.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    arms: &'static str,
    paths: Vec<String>,
    sizes: Vec<usize>,
    connections: Vec<usize>,
    pub rounds: u32,
    trips: usize,
    /// For how long the copy loop runs in a measurement, in milliseconds.
    pub time: u64,
    /// How long the boot may take.
    pub limit: Duration,
}

impl Work {
    /// Returns all the work that one boot of a kernel has.
    pub fn new(args: &Args) -> Self {
        Work {
            arms: "direct,copy,socat,sockmap",
            paths: args.paths.clone(),
            sizes: args.sizes.clone(),
            connections: args.connections.clone(),
            rounds: args.rounds.div_ceil(BOOTS),
            trips: args.trips,
            time: args.time.unwrap_or(match args.bed {
                Bed::Um => 200,
                Bed::Qemu | Bed::PairHost => 1000,
            }),
            limit: Duration::from_secs(3600),
        }
    }

    /// Returns the same work in pieces, one for each row of the tables. Each piece has its own
    /// boot.
    pub fn in_pieces(args: &Args) -> Vec<Self> {
        let all = Work::new(args);
        // The guest ends a measurement of throughput after some 10 s. A round trip takes at most
        // two jiffies.
        let round = Duration::from_secs(20 + all.trips as u64 / 20);
        let all = Work {
            arms: "copy,sockmap",
            limit: Duration::from_secs(60) + round * all.rounds,
            ..all
        };
        let mut pieces = Vec::new();
        for path in &all.paths {
            let piece = Work {
                paths: vec![path.clone()],
                ..all.clone()
            };
            for connections in &all.connections {
                pieces.extend(all.sizes.iter().map(|size| Work {
                    connections: vec![*connections],
                    sizes: vec![*size],
                    trips: 0,
                    ..piece.clone()
                }));
            }
            if all.trips > 0 {
                pieces.push(Work {
                    sizes: Vec::new(),
                    connections: Vec::new(),
                    ..piece
                });
            }
        }
        pieces
    }

    /// Returns the arguments of `guest bench`.
    pub fn guest_args(&self) -> Vec<String> {
        let list = |numbers: &[usize]| {
            let numbers: Vec<_> = numbers.iter().map(usize::to_string).collect();
            numbers.join(",")
        };
        [
            ("--paths", self.paths.join(",")),
            ("--arms", self.arms.to_string()),
            ("--sizes", list(&self.sizes)),
            ("--connections", list(&self.connections)),
            ("--rounds", self.rounds.to_string()),
            ("--trips", self.trips.to_string()),
            ("--time", self.time.to_string()),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .flat_map(|(option, value)| [option.to_string(), value])
        .collect()
    }

    /// Returns the name that the user sees for a piece.
    pub fn name(&self) -> String {
        let mut name = self.paths.join(",");
        if self.sizes.is_empty() {
            name += ", round trips";
        }
        for size in &self.sizes {
            name += &format!(", {size} bytes");
        }
        for many in self.connections.iter().filter(|many| **many > 1) {
            name += &format!(", {many} connections");
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Cli::parse_from(line.split_whitespace()).args
    }

    #[test]
    fn pieces_are_rows_of_the_tables() {
        let args = args("bench --paths a,b --sizes 64,512 --connections 1,16 --rounds 6");
        let pieces = Work::in_pieces(&args);
        let names: Vec<_> = pieces.iter().map(Work::name).collect();
        assert_eq!(
            names[..5],
            [
                "a, 64 bytes",
                "a, 512 bytes",
                "a, 64 bytes, 16 connections",
                "a, 512 bytes, 16 connections",
                "a, round trips"
            ]
        );
        assert_eq!(names.len(), 10);
        // Two boots.
        assert!(pieces.iter().all(|piece| piece.rounds == 3));
        let trips: Vec<_> = pieces.iter().map(|piece| piece.trips).collect();
        assert_eq!(trips[..5], [0, 0, 0, 0, 500]);
    }

    #[test]
    fn piece_of_round_trips_names_no_size() {
        let args = args("bench --paths a --trips 7 --sizes 64");
        let [size, trips] = &Work::in_pieces(&args)[..] else {
            panic!("two pieces");
        };
        assert!(size.guest_args().join(" ").contains("--sizes 64"));
        assert!(!trips.guest_args().join(" ").contains("--sizes"));
        assert!(trips.guest_args().join(" ").contains("--trips 7"));
    }

    #[test]
    fn without_round_trips_no_piece_of_them() {
        let args = args("bench --paths a --trips 0 --sizes 64");
        assert_eq!(Work::in_pieces(&args).len(), 1);
    }
}
