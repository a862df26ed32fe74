// SPDX-License-Identifier: GPL-2.0-only
//! Cache keys, checksums, and files that are written whole or not at all.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// A cache key: hash of parts, in order; no part can run into the next.
#[derive(Clone, Default)]
pub struct Key(Sha256);

impl Key {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    pub fn finish(self) -> String {
        hex(&self.0.finalize()[..6])
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA256 of a file, in hex.
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

/// Writes a file that is either the old or the new one, never half of it.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<()> {
    let dir = path.parent().context("a file has a folder")?;
    fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(content)?;
    // A temporary file is only its owner's to read.
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
