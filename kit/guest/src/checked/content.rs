// SPDX-License-Identifier: GPL-2.0-only
//! Makes the bytes to send: the same for the same seed, different at every position, and cheap.

use xxhash_rust::xxh3::Xxh3;

/// Bytes of a block. Not a multiple of usual packet and page sizes, so that a shifted packet shows.
const BLOCK: usize = (1 << 20) + 8 * 7;

/// An endless stream: one pseudo-random block repeated, each time with its number in the first
/// eight bytes.
pub struct Content {
    block: Vec<u8>,
    position: u64,
}

impl Content {
    /// Makes the stream of a seed, at its start.
    pub fn new(seed: u64) -> Self {
        // SplitMix64 is good enough to make any two positions differ.
        let mut state = seed;
        let block = (0..BLOCK / 8)
            .flat_map(|_| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut word = state;
                word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (word ^ (word >> 31)).to_le_bytes()
            })
            .collect();
        let mut content = Content { block, position: 0 };
        content.number();
        content
    }

    /// Returns the next bytes, at most `limit` and not beyond the end of the block.
    pub fn next(&mut self, limit: usize) -> &[u8] {
        let start = (self.position % BLOCK as u64) as usize;
        if start == 0 {
            self.number();
        }
        let length = limit.min(BLOCK - start);
        self.position += length as u64;
        &self.block[start..start + length]
    }

    /// Returns whether [`Self::next`] can return the next `length` bytes in one piece.
    pub fn is_whole(&self, length: usize) -> bool {
        let start = (self.position % BLOCK as u64) as usize;
        length <= BLOCK - start
    }

    /// Fills `buffer` with the next bytes.
    pub fn fill(&mut self, mut buffer: &mut [u8]) {
        while !buffer.is_empty() {
            let bytes = self.next(buffer.len());
            let (now, later) = buffer.split_at_mut(bytes.len());
            now.copy_from_slice(bytes);
            buffer = later;
        }
    }

    /// Writes the number of the block into it.
    fn number(&mut self) {
        let number = self.position / BLOCK as u64;
        self.block[..8].copy_from_slice(&number.to_le_bytes());
    }
}

/// The hash of a stream.
pub struct Hash(Xxh3);

impl Hash {
    pub fn new() -> Self {
        Hash(Xxh3::new())
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all bytes so far, in hexadecimal.
    pub fn text(&self) -> String {
        format!("{:016x}", self.0.digest())
    }

    /// Returns the hash of the first `bytes` bytes of the content of `seed`.
    pub fn expected(seed: u64, mut bytes: u64) -> String {
        let mut content = Content::new(seed);
        let mut hash = Hash::new();
        while bytes > 0 {
            let part = content.next(bytes.min(BLOCK as u64) as usize);
            hash.update(part);
            bytes -= part.len() as u64;
        }
        hash.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_matter() {
        let total = 3 * BLOCK + 12345;
        let mut whole = vec![0; total];
        Content::new(7).fill(&mut whole);
        let mut content = Content::new(7);
        let mut pieces = vec![0; total];
        for piece in pieces.chunks_mut(65536) {
            content.fill(piece);
        }
        assert!(whole == pieces);

        let mut hash = Hash::new();
        hash.update(&whole);
        assert_eq!(hash.text(), Hash::expected(7, total as u64));
    }

    #[test]
    fn every_fault_changes_the_hash() {
        let bytes = 2 * BLOCK;
        let good = Hash::expected(1, bytes as u64);
        assert_ne!(good, Hash::expected(2, bytes as u64));
        assert_ne!(good, Hash::expected(1, bytes as u64 - 1));

        // Two blocks in the wrong order: only the number in the block shows it.
        let mut whole = vec![0; bytes];
        Content::new(1).fill(&mut whole);
        whole.rotate_left(BLOCK);
        let mut hash = Hash::new();
        hash.update(&whole);
        assert_ne!(good, hash.text());
    }
}
