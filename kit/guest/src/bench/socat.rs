// SPDX-License-Identifier: GPL-2.0-only
//! Opens a connection that socat serves.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use nix::sys::socket::{
    connect, setsockopt, sockopt, AddressFamily, SockType, UnixAddr, VsockAddr,
};

use super::blocking::{set_time_limit, BUFFER, LIMIT};
use super::connection::{Connection, Helper};
use super::end::{End, DATAGRAM_SNDBUF};
use super::peer::Peer;
use super::setup::Kind;
use crate::sockets::{accept, loopback_listener, open};

const PATH: &str = "/tmp/bench.sock";
const PAUSE: Duration = Duration::from_millis(1);

/// Starts socat and connects to both sides of it.
pub fn open_connection(kind: Kind, peer: Option<Peer>) -> Result<Connection> {
    let _ = fs::remove_file(PATH);
    let (waiting, to) = listen(peer)?;
    let helper = start(kind, &to)?;
    let writer = connect_writer(kind)?;
    let reader = match waiting {
        End::Local(listener) => {
            set_time_limit(&listener, LIMIT)?;
            let reader = accept(&listener).context("socat does not connect")?;
            set_time_limit(&reader, LIMIT)?;
            End::Local(reader)
        }
        remote => remote,
    };
    Ok(Connection {
        writer: End::Local(writer),
        middle: None,
        reader,
        _helper: helper,
    })
}

/// Returns an end that waits for a connection, and its address.
fn listen(peer: Option<Peer>) -> Result<(End, VsockAddr)> {
    Ok(match peer {
        None => {
            let (listener, address) = loopback_listener(SockType::Stream)?;
            (End::Local(listener), address)
        }
        Some(peer) => {
            let remote = peer.offer()?;
            let address = remote.address;
            (End::Remote(remote), address)
        }
    })
}

fn start(kind: Kind, to: &VsockAddr) -> Result<Helper> {
    let address = match kind {
        Kind::UnixDgram => format!("UNIX-RECV:{PATH}"),
        Kind::UnixStream => format!("UNIX-LISTEN:{PATH}"),
        _ => bail!("socat is not measured with {kind:?}"),
    };
    let child = Command::new("socat")
        .args(["-u", "-b", &BUFFER.to_string(), &address])
        .arg(format!("VSOCK-CONNECT:{}:{}", to.cid(), to.port()))
        .stdin(Stdio::null())
        .spawn()
        .context("cannot run socat")?;
    Ok(Helper::Socat(child))
}

/// Connects to the UNIX socket of socat.
fn connect_writer(kind: Kind) -> Result<OwnedFd> {
    let deadline = Instant::now() + LIMIT;
    // For a stream socat makes its socket first, for datagrams it connects to the vsock first.
    while !Path::new(PATH).exists() {
        ensure!(
            Instant::now() < deadline,
            "socat does not make its socket {PATH}"
        );
        thread::sleep(PAUSE);
    }
    let sotype = match kind {
        Kind::UnixDgram => SockType::Datagram,
        _ => SockType::Stream,
    };
    let writer = open(AddressFamily::Unix, sotype)?;
    if kind == Kind::UnixDgram {
        setsockopt(&writer, sockopt::SndBufForce, &DATAGRAM_SNDBUF)?;
    }
    while let Err(error) = connect(writer.as_raw_fd(), &UnixAddr::new(PATH)?) {
        ensure!(
            Instant::now() < deadline,
            "socat does not listen on {PATH}: {error}"
        );
        thread::sleep(PAUSE);
    }
    set_time_limit(&writer, LIMIT)?;
    Ok(writer)
}
