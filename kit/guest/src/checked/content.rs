// SPDX-License-Identifier: GPL-2.0-only
//! The bytes that are sent: the same for the same seed, different at every position, and cheap.

use xxhash_rust::xxh3::Xxh3;

/// Odd, so that the block does not line up with packets or pages.
const BLOCK: usize = (1 << 20) + 8 * 7;

/// An endless stream: a pseudo-random block again and again, each time with its number in it.
pub struct Content {
    block: Vec<u8>,
    position: u64,
}

impl Content {
    pub fn new(seed: u64) -> Self {
        // SplitMix64, which is enough to make any two places differ.
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

    /// The next bytes, at most `limit`.
    pub fn next(&mut self, limit: usize) -> &[u8] {
        let start = (self.position % BLOCK as u64) as usize;
        if start == 0 {
            self.number();
        }
        let length = limit.min(BLOCK - start);
        self.position += length as u64;
        &self.block[start..start + length]
    }

    /// Whether the next `length` bytes are in one piece, as [`Self::next`] gives them.
    pub fn is_whole(&self, length: usize) -> bool {
        let start = (self.position % BLOCK as u64) as usize;
        length <= BLOCK - start
    }

    /// Fills a buffer with what comes next.
    pub fn fill(&mut self, mut buffer: &mut [u8]) {
        while !buffer.is_empty() {
            let bytes = self.next(buffer.len());
            let (now, later) = buffer.split_at_mut(bytes.len());
            now.copy_from_slice(bytes);
            buffer = later;
        }
    }

    fn number(&mut self) {
        let number = self.position / BLOCK as u64;
        self.block[..8].copy_from_slice(&number.to_le_bytes());
    }
}

/// The hash of a stream, as text.
pub struct Hash(Xxh3);

impl Hash {
    pub fn new() -> Self {
        Hash(Xxh3::new())
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn text(&self) -> String {
        format!("{:016x}", self.0.digest())
    }

    /// Of the first `bytes` of the content of `seed`.
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

        // Two blocks in the wrong order, which a block without its number would not show.
        let mut whole = vec![0; bytes];
        Content::new(1).fill(&mut whole);
        whole.rotate_left(BLOCK);
        let mut hash = Hash::new();
        hash.update(&whole);
        assert_ne!(good, hash.text());
    }
}
