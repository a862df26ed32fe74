// SPDX-License-Identifier: GPL-2.0-only
//! The socket file: the name of a UNIX socket in the file system.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    bind, connect, getsockopt, socket, sockopt, AddressFamily, SockFlag, SockType, UnixAddr,
};

/// A socket file that this process made. It is removed when this is dropped.
pub struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    /// Binds a socket to a path, which makes the socket file.
    pub fn bind(socket: &OwnedFd, path: &Path) -> Result<Self> {
        let address = UnixAddr::new(path)?;
        bind(socket.as_raw_fd(), &address).map_err(|error| match error {
            Errno::EADDRINUSE => busy(socket, path, &address),
            error => anyhow!(
                "cannot make the socket {}: {}",
                path.display(),
                error.desc()
            ),
        })?;
        let inode = inode(path).with_context(|| {
            format!(
                "{}: another program has removed the socket file",
                path.display()
            )
        })?;
        Ok(SocketFile {
            path: path.to_owned(),
            inode,
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another program may have put another file there since then.
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> std::io::Result<(u64, u64)> {
    let meta = fs::symlink_metadata(path)?;
    Ok((meta.dev(), meta.ino()))
}

/// Returns an error that says whether the file in the way is in use.
fn busy(own: &OwnedFd, path: &Path, address: &UnixAddr) -> anyhow::Error {
    let kind = getsockopt(own, sockopt::SockType).unwrap_or(SockType::Stream);
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let probe = socket(AddressFamily::Unix, kind, flags, None)
        .and_then(|probe| connect(probe.as_raw_fd(), address));
    let path = path.display();
    match probe {
        Err(Errno::ECONNREFUSED) => anyhow!(
            "{path} exists and no program listens there: remove the file if it is an old socket"
        ),
        _ => {
            anyhow!("{path} is in use by another program: end that program or choose another path")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> OwnedFd {
        socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        )
        .unwrap()
    }

    #[test]
    fn removes_only_its_own_file() {
        let folder = std::env::temp_dir().join(format!("vsock-redirect-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("a");

        let file = SocketFile::bind(&stream(), &path).unwrap();
        let error = SocketFile::bind(&stream(), &path)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("remove the file"), "{error}");
        drop(file);
        assert!(!path.exists());

        let file = SocketFile::bind(&stream(), &path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        drop(file);
        assert!(path.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
