// SPDX-License-Identifier: GPL-2.0-only
//! Counts the vsock packets that carry one MiB of data, and the credit updates for it.

use anyhow::Result;

use super::end::vsock_port;
use super::monitor::{Monitor, Packet};
use super::open::open;
use super::setup::{Kind, Setup};
use super::throughput::measure_on;

/// How many bytes are sent.
const BYTES: usize = 1 << 20;

/// Packets per MiB.
pub struct Packets {
    /// Packets with data to the reader. `None` if the reader is no vsock.
    pub data: Option<f64>,
    /// Credit updates that the source sends. `None` if this process has no vsock as the source.
    pub updates: Option<f64>,
}

/// Sends bytes over a new connection and counts their packets.
pub fn count(setup: Setup, size: usize, monitor: &Monitor) -> Result<Packets> {
    let bytes = BYTES.next_multiple_of(size);
    let connections = [open(setup)?];
    let [connection] = &connections;
    let (from, to) = setup.path.kinds();
    let reader = (to == Kind::Vsock)
        .then(|| connection.reader.port())
        .transpose()?;
    let source = match &connection.middle {
        Some(middle) if from == Kind::Vsock => Some(vsock_port(&middle.source)?),
        _ => None,
    };
    let capture = monitor.start()?;
    let arrived = measure_on(&connections, setup, size, bytes)?.bytes;
    let packets = capture.finish()?;
    let per_mib = |port: Option<u32>, matches: &dyn Fn(&Packet, u32) -> bool| {
        let port = port.filter(|_| arrived > 0)?;
        let count = packets
            .iter()
            .filter(|packet| matches(packet, port))
            .count();
        Some(count as f64 / (arrived as f64 / f64::from(1 << 20)))
    };
    Ok(Packets {
        data: per_mib(reader, &|packet, port| {
            packet.is_data() && packet.dst_port == port
        }),
        updates: per_mib(source, &|packet, port| {
            packet.is_credit_update() && packet.src_port == port
        }),
    })
}
