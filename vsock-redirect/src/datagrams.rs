// SPDX-License-Identifier: GPL-2.0-only
//! `unix-recv`: sends all datagrams that arrive at a path over one vsock connection.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Context, Result};
use nix::sys::socket::{socket, AddressFamily, Shutdown, SockFlag, SockType};
use rustix::event::PollFlags;

use crate::address::Peer;
use crate::end::{End, Gone, Kind};
use crate::redirect::Redirect;
use crate::socket_file::SocketFile;
use crate::sys;
use crate::tool::Tool;
use crate::vsock;

pub fn run(tool: &mut Tool, path: &Path, peer: Peer) -> Result<()> {
    let vsock = End::new(vsock::connect(peer)?, Kind::Vsock);
    let source: OwnedFd = socket(
        AddressFamily::Unix,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;

    // No sender can find the socket before it has a name, so no datagram comes too early.
    let mut redirect = Redirect::new()?;
    redirect.set_target(&vsock.socket)?;
    redirect.set_source(&source)?;
    tool.to_vsock.enter(redirect.shared());
    let file = SocketFile::bind(&source, path)?;

    wait(tool, &vsock, &redirect, peer)?;

    // First no new sender finds the path, then no sender that has it open can send.
    drop(file);
    nix::sys::socket::shutdown(source.as_raw_fd(), Shutdown::Read)?;
    sys::barrier();
    if vsock.drain(&redirect, &tool.stop)?.is_err() {
        bail!("{peer} closed the connection before it had taken everything");
    }
    vsock.shutdown(Shutdown::Write);
    vsock.flush(Duration::from_secs(2));
    tool.print_stats();
    if redirect.shared().passed() != 0 {
        bail!(
            "{} bytes were not redirected, and are lost",
            redirect.shared().passed()
        );
    }
    Ok(())
}

/// Waits until a signal ends the tool. Fails if the tool cannot go on.
fn wait(tool: &mut Tool, vsock: &End, redirect: &Redirect, peer: Peer) -> Result<()> {
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
            // The peer sends nothing more, which does not matter to a redirect of one way.
            hangup = PollFlags::empty();
        }
        if redirect.shared().passed() != 0 {
            return Err(std::io::Error::other("a datagram found no target"))
                .context("internal error");
        }
    }
}
