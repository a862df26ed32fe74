// SPDX-License-Identifier: GPL-2.0-only
//! Checks the words of a connection: numbers of 64 bits that count up.

use anyhow::{ensure, Result};

/// Bytes of a word.
pub const WORD: usize = 8;

/// The words that one receiver has got. Each is larger than the one before. There are gaps where
/// another receiver got the words.
pub struct Words {
    /// Who receives, for errors.
    receiver: &'static str,
    /// The bytes of an incomplete word at the end.
    part: Vec<u8>,
    /// The smallest number that the next word may have.
    next: u64,
    count: u64,
}

impl Words {
    pub fn new(receiver: &'static str) -> Self {
        Words {
            receiver,
            part: Vec::new(),
            next: 0,
            count: 0,
        }
    }

    /// Adds bytes. Fails if a word is out of order or came before.
    pub fn take(&mut self, bytes: &[u8]) -> Result<()> {
        self.part.extend_from_slice(bytes);
        let whole = self.part.len() / WORD * WORD;
        for chunk in self.part[..whole].chunks_exact(WORD) {
            let word = u64::from_le_bytes(chunk.try_into()?);
            ensure!(
                word >= self.next,
                "{}: word {word} came after {}",
                self.receiver,
                self.next.wrapping_sub(1)
            );
            self.next = word + 1;
            self.count += 1;
        }
        self.part.drain(..whole);
        Ok(())
    }

    /// Returns how many words came.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the last word, and `u64::MAX` if none came.
    pub fn last(&self) -> u64 {
        self.next.wrapping_sub(1)
    }

    /// Returns whether the last word is complete.
    pub fn is_whole(&self) -> bool {
        self.part.is_empty()
    }
}
