// SPDX-License-Identifier: GPL-2.0-only
//! `unix-recv`: every datagram that arrives at a path goes to one vsock connection.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use nix::sys::socket::{socket, AddressFamily, Shutdown, SockFlag, SockType};
use rustix::event::PollFlags;

use crate::address::Peer;
use crate::end::{End, Gone, Kind};
use crate::redirect::Lane;
use crate::socket_file::SocketFile;
use crate::sys;
use crate::Tool;

pub fn run(tool: &mut Tool, path: &Path, peer: Peer) -> Result<()> {
    let vsock = End::new(sys::vsock_connect(peer)?, Kind::Vsock);
    let source: OwnedFd = socket(
        AddressFamily::Unix,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;

    // The socket is in the map before it has a name, so no datagram can come too early.
    let mut lane = Lane::new()?;
    lane.set_target(&vsock.socket)?;
    lane.set_source(&source)?;
    tool.to_vsock.enter(lane.shared());
    let file = SocketFile::bind(&source, path)?;

    wait(tool, &vsock, &lane, peer)?;

    // No new sender finds the path, then none that has it open can send any more.
    drop(file);
    nix::sys::socket::shutdown(source.as_raw_fd(), Shutdown::Read)?;
    sys::barrier();
    if vsock.drain(&lane, &tool.stop)?.is_err() {
        bail!("{peer} closed the connection before it had taken everything");
    }
    vsock.shutdown(Shutdown::Write);
    vsock.flush(Duration::from_secs(2));
    tool.print_stats();
    if lane.shared().passed() != 0 {
        bail!(
            "{} bytes were not redirected and are lost",
            lane.shared().passed()
        );
    }
    Ok(())
}

/// Until the tool is told to stop, or cannot go on.
fn wait(tool: &mut Tool, vsock: &End, lane: &Lane, peer: Peer) -> Result<()> {
    let mut hangup = PollFlags::RDHUP;
    loop {
        let [event, signal] = sys::poll(
            [(vsock.fd(), hangup), (tool.signals(), PollFlags::IN)],
            Some(tool.next_tick()),
        );
        tool.tick();
        if !signal.is_empty() && tool.take_signal() {
            return Ok(());
        }
        if let Err(Gone) = vsock.check_redirect(vsock.take_error())? {
            bail!("{peer} closed the connection");
        }
        if !vsock.writes() {
            bail!("{peer} closed the connection");
        }
        if event.contains(PollFlags::RDHUP) {
            // The peer will not send, which is no concern of a one-way redirect.
            hangup = PollFlags::empty();
        }
        if lane.shared().passed() != 0 {
            return Err(std::io::Error::other("a datagram found no target")).context("internal");
        }
    }
}
