// SPDX-License-Identifier: GPL-2.0-only
//! Captures vsock packets with a vsockmon device.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;
use std::{mem, thread};

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{
    recv, setsockopt, socket, sockopt, AddressFamily, MsgFlags, SockFlag, SockType,
};

/// Bytes of the buffer in which the kernel keeps the packets, with their overhead.
const BUFFER: usize = 256 << 20;
/// Time for the last packets to arrive, after all data has.
const SETTLE: Duration = Duration::from_millis(50);

// From include/uapi/linux/virtio_vsock.h.
const OP_RW: u16 = 5;
const OP_CREDIT_UPDATE: u16 = 6;

// Offsets in a captured packet: first the header of include/uapi/linux/vsockmon.h, then the header
// of the vsock packet.
const MON_HEADER: usize = 32;
const SRC_PORT: usize = MON_HEADER + 16;
const DST_PORT: usize = MON_HEADER + 20;
const OP: usize = MON_HEADER + 30;
const HEADERS: usize = MON_HEADER + 44;

/// A network device of the type vsockmon.
pub struct Monitor<'a>(&'a str);

/// A running capture.
pub struct Capture<'a> {
    monitor: &'a Monitor<'a>,
    fd: OwnedFd,
}

pub struct Packet {
    pub src_port: u32,
    pub dst_port: u32,
    op: u16,
}

impl Packet {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let port = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        Some(Packet {
            src_port: port(SRC_PORT)?,
            dst_port: port(DST_PORT)?,
            op: u16::from_le_bytes(bytes.get(OP..OP + 2)?.try_into().ok()?),
        })
    }

    pub fn is_data(&self) -> bool {
        self.op == OP_RW
    }

    pub fn is_credit_update(&self) -> bool {
        self.op == OP_CREDIT_UPDATE
    }
}

impl<'a> Monitor<'a> {
    pub fn new(device: &'a str) -> Self {
        Monitor(device)
    }

    fn set(&self, state: &str) -> Result<()> {
        let status = Command::new("ip")
            .args(["link", "set", self.0, state])
            .status()
            .context("cannot run ip")?;
        ensure!(status.success(), "ip link set {} {state}: {status}", self.0);
        Ok(())
    }

    /// Starts a capture. It slows the packets down.
    pub fn start(&self) -> Result<Capture<'_>> {
        let index = if_nametoindex(self.0).with_context(|| format!("no device {}", self.0))?;
        let fd = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            None,
        )
        .context("cannot open a packet socket: run as root or with CAP_NET_RAW")?;
        setsockopt(&fd, sockopt::RcvBufForce, &BUFFER)?;
        // SAFETY: All fields are integers, for which zero is valid.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        // SAFETY: `address` is valid and as long as the length says.
        let bound = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                mem::size_of_val(&address) as u32,
            )
        };
        Errno::result(bound).context("cannot bind to the vsockmon device")?;
        self.set("up")?;
        Ok(Capture { monitor: self, fd })
    }
}

impl Capture<'_> {
    /// Ends the capture and returns its packets.
    pub fn finish(self) -> Result<Vec<Packet>> {
        thread::sleep(SETTLE);
        self.monitor.set("down")?;
        let mut packets = Vec::new();
        loop {
            let mut buffer = [0; HEADERS];
            match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(count) => packets.extend(Packet::parse(&buffer[..count])),
                Err(Errno::EAGAIN) => break,
                // The device has just been set down.
                Err(Errno::ENETDOWN | Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("cannot receive from the vsockmon device"),
            }
        }
        ensure!(
            self.lost()? == 0,
            "the capture buffer was too small: packets were lost"
        );
        Ok(packets)
    }

    /// Returns how many packets did not fit into the buffer.
    fn lost(&self) -> Result<u32> {
        // SAFETY: All fields are integers, for which zero is valid.
        let mut stats: libc::tpacket_stats = unsafe { mem::zeroed() };
        let mut len = mem::size_of_val(&stats) as u32;
        // SAFETY: `stats` and `len` are valid for writes, and `len` is the size of `stats`.
        let got = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &mut len,
            )
        };
        Errno::result(got).context("cannot read the statistics of the packet socket")?;
        Ok(stats.tp_drops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_packet_behind_the_header_of_the_monitor() {
        let mut bytes = [0; HEADERS];
        bytes[SRC_PORT] = 7;
        bytes[DST_PORT + 1] = 1;
        bytes[OP] = 6;
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.src_port, packet.dst_port), (7, 256));
        assert!(packet.is_credit_update() && !packet.is_data());
        assert!(Packet::parse(&bytes[..HEADERS - 14]).is_none());
    }
}
