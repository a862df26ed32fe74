// SPDX-License-Identifier: GPL-2.0-only
//! Allocations that fail on purpose, and which errors they excuse.

use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

use anyhow::Result;
use nix::errno::Errno;
use nix::sys::socket::{shutdown, Shutdown};

/// Whether allocations are made to fail.
#[derive(Clone, Copy)]
pub struct Faults(pub bool);

impl Faults {
    /// Lets allocations of the calling thread fail. Other threads are spared, because a new thread
    /// must always start.
    pub fn request(self) -> Result<()> {
        if self.0 {
            std::fs::write("/proc/thread-self/make-it-fail", "1")?;
        }
        Ok(())
    }

    /// Returns whether `errno` tells that a call lacked memory.
    pub fn excuse(self, errno: Errno) -> bool {
        self.0 && matches!(errno, Errno::ENOMEM | Errno::ENOBUFS)
    }

    /// Returns whether `errno` tells that the connection ended early.
    ///
    /// It ends when the kernel has no memory for a packet that carries a credit update or the end
    /// of the stream: vsock does not send such a packet again.
    pub fn excuse_end(self, errno: Errno) -> bool {
        self.0 && matches!(errno, Errno::EAGAIN | Errno::EPIPE | Errno::ECONNRESET)
    }

    /// Shuts a connection down. With faults, it may have ended before.
    pub fn shut(self, fd: &OwnedFd, how: Shutdown) -> Result<()> {
        match shutdown(fd.as_raw_fd(), how) {
            Err(Errno::ENOTCONN) if self.0 => Ok(()),
            result => Ok(result?),
        }
    }

    /// Tries again until it works, since each try may lack memory.
    pub fn retry<T>(self, make: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match make() {
                Err(_) if self.0 => thread::yield_now(),
                result => return result,
            }
        }
    }
}
