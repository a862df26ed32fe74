// SPDX-License-Identifier: GPL-2.0-only
//! A redirect: one direction inside the kernel, with its BPF programs and maps.
//!
//! A sockmap does not know the end of a stream, and no event tells that the queue of a redirect is
//! empty. So each redirect has a pair of UNIX datagram sockets, the injector. One end of the pair
//! is in a map of its own, with a program that redirects to the target. Data that user space writes
//! to the other end goes to the target through the same queue as all other data.
//!
//! An empty datagram into the injector is an end marker. The kernel charges the datagram to the
//! socket that sent it (`SIOCOUTQ`) until the backlog has come to it. At that point, all data
//! before the marker has been handed to the target. Some kernels end a redirect at an empty packet,
//! and set EPIPE on the target. This too happens when the backlog has come to the marker, so EPIPE
//! then means that the target has all data.

mod error;
mod object;
mod shared;

pub use error::Unsupported;
pub use shared::Shared;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use aya::maps::{MapData, SockMap};
use aya::Ebpf;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, socketpair, sockopt, AddressFamily, SockFlag, SockType};
use rustix::event::PollFlags;

use crate::stop::Stop;
use crate::sys;
use error::{explain, ignore_present};

const BPF_NOEXIST: u64 = 1;

/// Value of `taken` that `passed` never reaches: nothing is redirected.
const HOLD: u64 = u64::MAX;

/// How far an end marker has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Marker {
    /// Data before the marker may still be in the queue.
    Underway,
    /// The target has all data before the marker.
    Passed,
    Failed(Errno),
}

pub struct Redirect {
    source: SockMap<MapData>,
    target: SockMap<MapData>,
    shared: Arc<Shared>,
    inject: OwnedFd,
    // These stay open for the kernel: the programs with their links, and the injector in its map.
    _ebpf: Ebpf,
    _injector: (SockMap<MapData>, OwnedFd),
}

impl Redirect {
    /// Loads the programs and attaches them to maps that are still empty.
    pub fn new() -> Result<Self> {
        let mut ebpf = object::load()?;
        let data = object::take_array(&mut ebpf, "shared")?;
        let shared = Shared::new(data.fd().as_fd()).context("cannot mmap() a BPF map")?;
        let source = object::take_sockmap(&mut ebpf, "source")?;
        let target = object::take_sockmap(&mut ebpf, "target")?;
        let mut injector = object::take_sockmap(&mut ebpf, "injector")?;
        object::attach(&mut ebpf, "forward", &source)?;
        object::attach(&mut ebpf, "inject", &injector)?;

        // Not earlier: until the programs are loaded, their code names this map by descriptor.
        drop(data);

        let (inject, end) = socketpair(
            AddressFamily::Unix,
            SockType::Datagram,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        injector.set(0, &end, 0).map_err(explain)?;
        // Room for all data that a client may have queued. Without CAP_NET_ADMIN this fails, and an
        // injection may have to wait.
        let _ = setsockopt(&inject, sockopt::SndBufForce, &(4 << 20));

        Ok(Redirect {
            source,
            target,
            shared: Arc::new(shared),
            inject,
            _ebpf: ebpf,
            _injector: (injector, end),
        })
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Puts the target into its map. This must come before [`Self::set_source`], because a packet
    /// that finds no target is not redirected.
    pub fn set_target(&mut self, socket: &OwnedFd) -> Result<()> {
        ignore_present(self.target.set(0, socket, BPF_NOEXIST)).map_err(explain)
    }

    /// Puts the source into its map, which starts the redirect.
    pub fn set_source(&mut self, socket: &OwnedFd) -> Result<()> {
        ignore_present(self.source.set(0, socket, BPF_NOEXIST)).map_err(explain)
    }

    /// Makes the program pass each packet from the next one on to the owner of the source.
    pub fn hold(&self) {
        self.shared.set_taken(HOLD);
        sys::barrier();
    }

    /// Makes the program redirect again, if it has passed no more than `passed` bytes so far.
    /// Returns whether it redirects.
    pub fn release(&self, passed: u64) -> bool {
        self.shared.set_taken(passed);
        sys::barrier();
        self.is_redirecting()
    }

    pub fn is_redirecting(&self) -> bool {
        self.shared.passed() == self.shared.taken()
    }

    /// Sends bytes to the target, behind all data redirected before. Returns false if there is no
    /// room at this moment.
    ///
    /// An empty slice sends an end marker. Before that, the caller must take the pending error of
    /// the target.
    pub fn inject(&self, bytes: &[u8]) -> nix::Result<bool> {
        Ok(sys::send(self.inject.as_fd(), bytes)?.is_some())
    }

    /// Waits for room to inject, for at most 20 ms.
    pub fn wait_room(&self, stop: &Stop) {
        let limit = Some(Duration::from_millis(20));
        let stop = (stop.flag.fd(), PollFlags::empty());
        sys::poll([(self.inject.as_fd(), PollFlags::OUT), stop], limit);
    }

    /// Returns how far the end marker has come. `error` is the pending error of the target, and
    /// `target_writes` tells whether the target would still accept data.
    pub fn marker(&self, error: Option<Errno>, target_writes: impl FnOnce() -> bool) -> Marker {
        match error {
            Some(Errno::EPIPE) if target_writes() => Marker::Passed,
            Some(error) => Marker::Failed(error),
            None => match sys::unsent(self.inject.as_fd()) {
                Ok(0) => Marker::Passed,
                Ok(_) => Marker::Underway,
                Err(error) => Marker::Failed(error),
            },
        }
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        // Explicitly, because the kernel frees a map with its entries only some time later.
        let _ = self.source.clear_index(&0);
        let _ = self.target.clear_index(&0);
    }
}
