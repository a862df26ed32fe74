// SPDX-License-Identifier: GPL-2.0-only
//! Runs the ends of a connection in processes of their own.
//!
//! Threads would not do: on User-Mode Linux the threads of one process take turns.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{ensure, Context, Result};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{close, fork, pipe2, read, write, ForkResult, Pid};

/// Bytes of the answer of a process: two numbers of 64 bits.
const ANSWER: usize = 16;

/// Processes that begin to work at the same time.
pub struct Crew {
    /// Each process waits until this end of a pipe reads end of file.
    gate: OwnedFd,
    /// The only other end. Closing it lets all processes begin.
    holds_gate: OwnedFd,
}

/// A process. It is killed when this is dropped.
pub struct Worker {
    pid: Pid,
    answer: OwnedFd,
}

/// Reads until the buffer is full or the other end is closed. Returns the number of bytes.
fn read_all(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize> {
    let mut count_read = 0;
    while count_read < buffer.len() {
        match read(fd, &mut buffer[count_read..]) {
            Ok(0) => break,
            Ok(count) => count_read += count,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(count_read)
}

impl Crew {
    /// Makes an empty crew.
    pub fn new() -> Result<Self> {
        let (gate, holds_gate) = pipe2(OFlag::O_CLOEXEC)?;
        Ok(Crew { gate, holds_gate })
    }

    /// Makes a process that will do `work` and answer with its result.
    pub fn add(&self, work: impl FnOnce() -> Result<[u64; 2]>) -> Result<Worker> {
        let (answer, told) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: This process has one thread, so no other thread can hold a lock in the child.
        match unsafe { fork() }.context("fork")? {
            ForkResult::Parent { child } => Ok(Worker { pid: child, answer }),
            ForkResult::Child => {
                // The child never returns, so nothing drops the copy that it inherited.
                let _ = close(self.holds_gate.as_raw_fd());
                let told = read_all(&self.gate, &mut [0])
                    .and_then(|_| work())
                    .and_then(|words| {
                        let words = words.map(u64::to_le_bytes);
                        write(&told, words.as_flattened()).context("cannot write the result")
                    });
                if let Err(error) = &told {
                    eprintln!("guest: {error:#}");
                }
                // SAFETY: No destructor needs to run: the parent owns everything that the child
                // inherited.
                unsafe { libc::_exit(told.is_err().into()) }
            }
        }
    }

    /// Lets all processes begin, by closing the gate.
    pub fn begin(self) {}
}

impl Worker {
    /// Waits until the process is done and returns its answer.
    pub fn join(self) -> Result<[u64; 2]> {
        let mut answer = [0; ANSWER];
        let count_read = read_all(&self.answer, &mut answer)?;
        ensure!(
            count_read == ANSWER,
            "a worker process failed; its error is on stderr"
        );
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

    // The test harness has threads, but these processes use none of their locks.
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
    fn is_killed_when_dropped() {
        let crew = Crew::new().unwrap();
        let worker = crew.add(|| Ok([0, 0])).unwrap();
        let pid = worker.pid;
        drop(worker);
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    }
}
