// SPDX-License-Identifier: GPL-2.0-only
//! Accepts clients, and starts a thread for each.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{bail, Result};
use nix::errno::Errno;
use nix::sys::socket::{accept4, listen, socket, AddressFamily, Backlog, SockFlag, SockType};
use rustix::event::PollFlags;

use super::connection;
use super::service::{Service, STACK};
use crate::address::Peer;
use crate::redirect::Redirect;
use crate::socket_file::SocketFile;
use crate::tool::Tool;
use crate::{sys, vsock};

/// The threads of the clients. A thread returns false if data may be lost.
type Threads = Vec<JoinHandle<bool>>;

/// Serves clients until a signal or a fatal error.
pub fn run(tool: &mut Tool, path: &Path, peer: Peer) -> Result<()> {
    // If the machine lacks something, the tool fails here, not at the first client.
    drop(vsock::open()?);
    drop(Redirect::new()?);

    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let file = SocketFile::bind(&listener, path)?;
    listen(&listener, Backlog::new(128)?)?;

    let service = Arc::new(Service::new(tool, peer)?);
    let threads = accept_clients(tool, &listener, &service);

    drop(file);
    drop(listener);
    tool.stop.raise();
    let mut clean = true;
    for thread in threads {
        clean &= thread.join().unwrap_or(false);
    }
    tool.print_stats();
    match service.take_fatal() {
        Some(error) => Err(error),
        None if !clean => bail!("not all accepted data could be delivered before the end"),
        None => Ok(()),
    }
}

/// Accepts clients until a signal or a fatal error. Returns the threads that still run.
fn accept_clients(tool: &mut Tool, listener: &OwnedFd, service: &Arc<Service>) -> Threads {
    let mut threads = Threads::new();
    let mut number = 0;
    loop {
        let [event, signal, fatal] = sys::poll(
            [
                (listener.as_fd(), PollFlags::IN),
                (tool.signals(), PollFlags::IN),
                (service.fatal_flag.fd(), PollFlags::IN),
            ],
            Some(tool.next_tick()),
        );
        tool.tick();
        threads.retain(|thread| !thread.is_finished());
        if (!signal.is_empty() && tool.take_signal()) || !fatal.is_empty() {
            return threads;
        }
        if event.is_empty() {
            continue;
        }
        match accept4(listener, SockFlag::SOCK_CLOEXEC) {
            Ok(unix) => {
                number += 1;
                threads.extend(start(service, number, unix));
            }
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ECONNABORTED) => {}
            Err(error) => {
                // Most likely, all descriptors are in use. The client waits in the queue.
                eprintln!("cannot accept a connection: {}", error.desc());
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Starts the thread of a client.
fn start(service: &Arc<Service>, id: u64, unix: OwnedFd) -> Option<JoinHandle<bool>> {
    let service = Arc::clone(service);
    let work = move || connection::serve(&service, id, unix);
    match thread::Builder::new().stack_size(STACK).spawn(work) {
        Ok(thread) => Some(thread),
        Err(error) => {
            eprintln!("connection {id}: cannot start a thread: {error}");
            None
        }
    }
}
