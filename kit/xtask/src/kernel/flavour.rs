// SPDX-License-Identifier: GPL-2.0-only
//! Which kernel to build: for which test bed, with which sockmap, with debugging options or not.

use clap::ValueEnum;

/// A test bed: a kind of machine that the kernel boots on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bed {
    /// User-Mode Linux, which boots in 0.2 s, with vsock built in
    Um,
    /// x86_64 in QEMU, with vsock as modules
    Qemu,
    /// User-Mode Linux with /dev/vhost-vsock, as the host of a QEMU guest
    #[value(name = "pair", alias = "pair-host")]
    PairHost,
}

impl Bed {
    /// Returns the name of the test bed, as for `--bed`.
    pub fn name(self) -> &'static str {
        match self {
            Bed::Um => "um",
            Bed::Qemu => "qemu",
            Bed::PairHost => "pair",
        }
    }

    /// Returns whether the kernel is User-Mode Linux.
    pub fn is_um(self) -> bool {
        self != Bed::Qemu
    }

    /// Returns the configuration fragments in kernel/. Later ones override earlier ones.
    pub fn fragments(self, debug: bool) -> Vec<&'static str> {
        let mut names = match self {
            Bed::Um => vec!["base.config", "um.config"],
            Bed::Qemu => vec!["base.config", "qemu.config"],
            Bed::PairHost => vec!["base.config", "um.config", "pair-host.config"],
        };
        if debug {
            names.push(if self.is_um() {
                "um-debug.config"
            } else {
                "qemu-debug.config"
            });
        }
        names
    }
}

/// An implementation of the vsock sockmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sockmap {
    /// The Rust version of this repository
    Rust,
    /// The C version, which Linux has
    C,
    /// The C version of Linux without the series, for comparison.
    #[value(skip)]
    Pristine,
}

impl Sockmap {
    /// Returns the name of the implementation, as for `--sockmap`.
    pub fn name(self) -> &'static str {
        match self {
            Sockmap::Rust => "rust",
            Sockmap::C => "c",
            Sockmap::Pristine => "pristine",
        }
    }
}

/// Names one of the kernels that can be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    pub bed: Bed,
    pub sockmap: Sockmap,
    pub debug: bool,
}

impl Flavour {
    /// Returns the name that messages show, such as `um-debug rust`.
    pub fn name(&self) -> String {
        let debug = if self.debug { "-debug" } else { "" };
        format!("{}{debug} {}", self.bed.name(), self.sockmap.name())
    }
}

/// The options of a verb that choose a kernel.
#[derive(clap::Args)]
pub struct FlavourArgs {
    /// Choose the test bed: a kind of machine that the kernel boots on
    #[arg(long, value_enum, default_value = "um")]
    pub bed: Bed,
    /// Choose the implementation of the vsock sockmap
    #[arg(long, value_enum, default_value = "rust")]
    pub sockmap: Sockmap,
    /// Turn on sanitizers, watchdogs and other debugging options of the kernel
    #[arg(long)]
    pub debug: bool,
}

impl FlavourArgs {
    /// Returns the chosen kernel.
    pub fn flavour(&self) -> Flavour {
        Flavour {
            bed: self.bed,
            sockmap: self.sockmap,
            debug: self.debug,
        }
    }
}
