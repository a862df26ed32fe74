// SPDX-License-Identifier: GPL-2.0-only
//! The subject of a measurement: which sockets, and what moves the bytes between them.

use clap::ValueEnum;

use super::peer::Peer;

/// The kinds of the socket that bytes come from and of the socket that they go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Path {
    UnixDgramToVsock,
    UnixStreamToVsock,
    TcpToVsock,
    UdpToVsock,
    VsockToUnixStream,
    VsockToTcp,
    VsockToVsock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    UnixDgram,
    UnixStream,
    Tcp,
    Udp,
    Vsock,
}

impl Path {
    pub fn kinds(self) -> (Kind, Kind) {
        match self {
            Path::UnixDgramToVsock => (Kind::UnixDgram, Kind::Vsock),
            Path::UnixStreamToVsock => (Kind::UnixStream, Kind::Vsock),
            Path::TcpToVsock => (Kind::Tcp, Kind::Vsock),
            Path::UdpToVsock => (Kind::Udp, Kind::Vsock),
            Path::VsockToUnixStream => (Kind::Vsock, Kind::UnixStream),
            Path::VsockToTcp => (Kind::Vsock, Kind::Tcp),
            Path::VsockToVsock => (Kind::Vsock, Kind::Vsock),
        }
    }

    /// Returns whether a write of `size` bytes is possible.
    pub fn takes(self, size: usize) -> bool {
        match self.kinds().0 {
            Kind::Udp => size <= 65_507,
            Kind::UnixDgram => size <= 131_072,
            _ => true,
        }
    }

    pub fn socat_can_read(self) -> bool {
        matches!(self.kinds().0, Kind::UnixDgram | Kind::UnixStream)
    }

    /// Returns the name on the command line and in the results.
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("each path has a name");
        value.get_name().to_string()
    }
}

/// What moves the bytes from the first socket to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arm {
    /// Nothing: the sending program writes to the second socket itself
    Direct,
    /// A process that receives and sends in a loop
    Copy,
    /// socat
    Socat,
    /// A redirect by a sockmap
    Sockmap,
}

/// The subject of a measurement.
#[derive(Clone, Copy)]
pub struct Setup {
    pub path: Path,
    pub arm: Arm,
    /// The machine that holds the remote ends of the vsocks; this one if `None`.
    pub peer: Option<Peer>,
}

impl Setup {
    /// Returns the name for errors.
    pub fn name(self) -> String {
        format!("{}, {}", self.path.name(), self.arm_name())
    }

    /// Returns the name of the arm in the results.
    pub fn arm_name(self) -> String {
        format!("{:?}", self.arm).to_lowercase()
    }

    /// Returns whether bytes may be lost. UDP has no flow control, so a copier that is too slow
    /// loses datagrams.
    pub fn is_lossy(self) -> bool {
        self.path.kinds().0 == Kind::Udp && self.arm != Arm::Direct
    }

    /// Returns whether round trips can be measured.
    pub fn has_round_trips(self) -> bool {
        let (from, to) = self.path.kinds();
        // Nobody sends a lost datagram again, and one end must be here to wait for the answer.
        from != Kind::Udp && !(self.peer.is_some() && from == Kind::Vsock && to == Kind::Vsock)
    }
}
