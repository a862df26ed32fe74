// SPDX-License-Identifier: GPL-2.0-only
//! Cache keys, checksums, and atomic writes of files.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// A cache key: a hash of parts in order. The length of each part is hashed too, so that "ab" + "c"
/// and "a" + "bc" differ.
#[derive(Clone, Default)]
pub struct Key(Sha256);

impl Key {
    /// Returns the key of no parts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part to the key.
    pub fn add(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// Returns the key as text for the name of a folder.
    pub fn finish(self) -> String {
        hex(&self.0.finalize()[..6])
    }
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the SHA256 of a file in hexadecimal digits.
pub fn sha256_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = std::io::Read::read(&mut file, &mut buffer)?;
        if count == 0 {
            return Ok(hex(&hash.finalize()));
        }
        hash.update(&buffer[..count]);
    }
}

/// Replaces the content of a file, or creates the file. Readers see the old or the new content,
/// never a part of it.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<()> {
    let dir = path.parent().context("a file has a folder")?;
    fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(content)?;
    // Only the owner can read a temporary file.
    file.as_file()
        .set_permissions(fs::Permissions::from_mode(0o644))?;
    file.persist(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_tells_where_a_part_ends() {
        let one = Key::new().add("ab").add("c").finish();
        let two = Key::new().add("a").add("bc").finish();
        assert_ne!(one, two);
        assert_eq!(one, Key::new().add("ab").add("c").finish());
        assert_ne!(one, Key::new().add("abc").finish());
    }
}
