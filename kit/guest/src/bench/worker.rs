// SPDX-License-Identifier: GPL-2.0-only
//! Work in processes of its own, as the ends of a connection are. Threads would not do: on User-Mode
//! Linux those of one process take turns.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{close, fork, pipe2, read, write, ForkResult, Pid};

/// Two numbers.
const ANSWER: usize = 16;

/// Processes that begin at the same time.
pub struct Crew {
    /// Readable when they begin, which is when nobody has the other end any more.
    gate: OwnedFd,
    closed: OwnedFd,
}

/// A process. Dropped, it is killed.
pub struct Worker {
    pid: Pid,
    answer: OwnedFd,
}

/// Reads until the buffer is full or the other end closed; returns how much.
fn read_all(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize> {
    let mut had = 0;
    while had < buffer.len() {
        match read(fd, &mut buffer[had..]) {
            Ok(0) => break,
            Ok(count) => had += count,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(had)
}

impl Crew {
    pub fn new() -> Result<Self> {
        let (gate, closed) = pipe2(OFlag::O_CLOEXEC)?;
        Ok(Crew { gate, closed })
    }

    /// A process that will do this.
    pub fn add(&self, work: impl FnOnce() -> Result<[u64; 2]>) -> Result<Worker> {
        let (answer, told) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: This process has one thread, so that no lock is held by another.
        match unsafe { fork() }.context("fork")? {
            ForkResult::Parent { child } => Ok(Worker { pid: child, answer }),
            ForkResult::Child => {
                // Not dropped, as nothing is, here.
                let _ = close(self.closed.as_raw_fd());
                let told = read_all(&self.gate, &mut [0])
                    .and_then(|_| work())
                    .and_then(|words| {
                        let words = words.map(u64::to_le_bytes);
                        write(&told, words.as_flattened()).context("tell the result")
                    });
                if let Err(error) = &told {
                    eprintln!("guest: {error:#}");
                }
                // SAFETY: What this process shares with its parent is the parent's to drop.
                unsafe { libc::_exit(told.is_err().into()) }
            }
        }
    }

    /// Lets all begin.
    pub fn begin(self) {}
}

impl Worker {
    /// Waits until it is done.
    pub fn join(self) -> Result<[u64; 2]> {
        let mut answer = [0; ANSWER];
        let had = read_all(&self.answer, &mut answer)?;
        ensure!(had == ANSWER, "a process failed");
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| answer[at + i]));
        Ok([word(0), word(8)])
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The test harness has threads, of which these processes use no locks.
    #[test]
    fn answers_come_back_and_failures_show() {
        let crew = Crew::new().unwrap();
        let good = crew.add(|| Ok([1, 1 << 40])).unwrap();
        let bad = crew.add(|| anyhow::bail!("as expected")).unwrap();
        crew.begin();
        assert_eq!(good.join().unwrap(), [1, 1 << 40]);
        assert!(bad.join().is_err());
    }

    #[test]
    fn dropped_before_it_began() {
        let crew = Crew::new().unwrap();
        let worker = crew.add(|| Ok([0, 0])).unwrap();
        let pid = worker.pid;
        drop(worker);
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    }
}
