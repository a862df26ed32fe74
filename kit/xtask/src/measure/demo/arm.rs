// SPDX-License-Identifier: GPL-2.0-only
//! The arms, and the kernel that each runs on.

use clap::ValueEnum;

use crate::kernel::build::Sockmap;

/// An arm: a way from the UNIX socket to the vsock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Arm {
    Direct,
    Socat,
    C,
    Rust,
}

impl Arm {
    /// Returns the name as in `--arms`.
    pub fn name(self) -> &'static str {
        match self {
            Arm::Direct => "direct",
            Arm::Socat => "socat",
            Arm::C => "c",
            Arm::Rust => "rust",
        }
    }

    /// Returns the redirector's name in the table.
    pub fn title(self) -> &'static str {
        match self {
            Arm::Direct => "none",
            Arm::Socat => "socat",
            Arm::C => "C sockmap",
            Arm::Rust => "Rust sockmap",
        }
    }
}

/// Returns the kernels that a guest boots, and the arms that run on each. Arms without a sockmap
/// run on the same kernel as the Rust arm, in the same boot.
pub fn guests(arms: &[Arm]) -> Vec<(Sockmap, Vec<Arm>)> {
    let with_socat = if arms.contains(&Arm::C) && !arms.contains(&Arm::Rust) {
        Sockmap::C
    } else {
        Sockmap::Rust
    };
    let mut guests = Vec::new();
    for sockmap in [Sockmap::Rust, Sockmap::C] {
        let mut here: Vec<Arm> = arms
            .iter()
            .copied()
            .filter(|arm| match arm {
                Arm::Direct | Arm::Socat => sockmap == with_socat,
                Arm::C => sockmap == Sockmap::C,
                Arm::Rust => sockmap == Sockmap::Rust,
            })
            .collect();
        here.sort();
        here.dedup();
        if !here.is_empty() {
            guests.push((sockmap, here));
        }
    }
    guests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_without_a_sockmap_run_with_the_rust_arm() {
        use Arm::{Direct, Socat, C};
        assert_eq!(
            guests(&[Direct, Socat, C, Arm::Rust]),
            [
                (Sockmap::Rust, vec![Direct, Socat, Arm::Rust]),
                (Sockmap::C, vec![C])
            ]
        );
        assert_eq!(guests(&[C, Socat]), [(Sockmap::C, vec![Socat, C])]);
        assert_eq!(guests(&[Socat]), [(Sockmap::Rust, vec![Socat])]);
        assert_eq!(guests(&[C, C]), [(Sockmap::C, vec![C])]);
    }
}
