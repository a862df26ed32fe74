// SPDX-License-Identifier: GPL-2.0-only
//! The reading end of a connection: its owner, which reads in all ways.

use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::Duration;

use anyhow::{bail, ensure, Result};
use fastrand::Rng;
use nix::errno::Errno;
use nix::sys::socket::{recv, MsgFlags, SockType};

use super::faults::Faults;
use super::words::{Words, WORD};

pub struct Reader<'a> {
    pub fd: &'a OwnedFd,
    pub kind: SockType,
    /// Whether programs may redirect. A redirect takes each packet without a verdict, also the
    /// rest of a packet that was read in part. So only whole words are read, and bytes that were
    /// peeked may be gone at the next read.
    pub redirects: bool,
    pub rng: Rng,
    pub faults: Faults,
}

/// The bytes that have arrived.
struct Arrived {
    words: Words,
    /// The bytes of the last peek, if no read came after it.
    peeked: Vec<u8>,
}

impl Reader<'_> {
    /// Reads until the end. Returns how many words came.
    pub fn run(mut self) -> Result<u64> {
        let mut arrived = Arrived {
            words: Words::new("owner"),
            peeked: Vec::new(),
        };
        let mut buffer = vec![0; 1 << 18];
        loop {
            let len = self.choose_length(buffer.len());
            let flags = self.choose_flags(len);
            match recv(self.fd.as_raw_fd(), &mut buffer[..len], flags) {
                Ok(count) => {
                    if self.take(&mut arrived, &buffer[..count], flags)? {
                        break;
                    }
                }
                Err(errno) => {
                    if self.is_end(errno, flags, &arrived.words)? {
                        break;
                    }
                }
            }
            if self.rng.u8(..) < 4 {
                thread::sleep(Duration::from_millis(self.rng.u64(..20)));
            }
        }
        ensure!(
            self.faults.0 || arrived.words.is_whole(),
            "owner: the last word is incomplete"
        );
        Ok(arrived.words.count())
    }

    fn choose_length(&mut self, most: usize) -> usize {
        let len = match self.rng.u8(..) {
            // A short buffer cuts a record off.
            _ if self.kind == SockType::SeqPacket => most,
            0..=99 => self.rng.usize(1..64),
            100..=199 => self.rng.usize(64..4096),
            _ => self.rng.usize(4096..1 << 16),
        };
        if self.redirects {
            len.next_multiple_of(WORD)
        } else {
            len
        }
    }

    fn choose_flags(&mut self, len: usize) -> MsgFlags {
        match self.rng.u8(..) {
            0..=40 => MsgFlags::MSG_DONTWAIT,
            41..=70 => MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT,
            71..=80 => MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT,
            81..=90 => MsgFlags::MSG_OOB | MsgFlags::MSG_DONTWAIT,
            91..=120 if len < 1 << 14 => MsgFlags::MSG_WAITALL,
            _ => MsgFlags::empty(),
        }
    }

    /// Checks the bytes of a read. Returns whether the stream has ended.
    fn take(&self, arrived: &mut Arrived, bytes: &[u8], flags: MsgFlags) -> Result<bool> {
        if flags.contains(MsgFlags::MSG_ERRQUEUE) {
            bail!("the error queue returned data");
        }
        if flags.contains(MsgFlags::MSG_OOB) {
            // After the end of the stream, such a read returns 0.
            ensure!(bytes.is_empty(), "a read of out-of-band data returned data");
            return Ok(false);
        }
        if flags.contains(MsgFlags::MSG_PEEK) {
            arrived.peeked.clear();
            arrived.peeked.extend_from_slice(bytes);
            return Ok(false);
        }
        if bytes.is_empty() {
            return Ok(true);
        }
        let both = if self.redirects {
            0
        } else {
            bytes.len().min(arrived.peeked.len())
        };
        ensure!(
            bytes[..both] == arrived.peeked[..both],
            "a read returned other bytes than the peek before it"
        );
        arrived.peeked.clear();
        arrived.words.take(bytes)?;
        Ok(false)
    }

    /// Returns whether an error ends the connection. Fails if nothing excuses the error.
    fn is_end(&mut self, errno: Errno, flags: MsgFlags, words: &Words) -> Result<bool> {
        match errno {
            Errno::EAGAIN if flags.contains(MsgFlags::MSG_DONTWAIT) => {
                if self.rng.u8(..) < 128 {
                    thread::yield_now();
                }
                Ok(false)
            }
            Errno::EOPNOTSUPP if flags.contains(MsgFlags::MSG_OOB) => Ok(false),
            errno if self.faults.excuse(errno) => Ok(false),
            errno if self.faults.excuse_end(errno) => Ok(true),
            errno => bail!("recv after word {}: {errno}", words.last()),
        }
    }
}
