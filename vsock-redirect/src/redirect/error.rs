// SPDX-License-Identifier: GPL-2.0-only
//! Explains why the kernel refused a BPF call, and what helps.

use std::error::Error;
use std::{fmt, io};

use anyhow::anyhow;
use aya::maps::MapError;

/// The kernel does not accept the socket in a sockmap. If the socket is connected, the kernel will
/// not accept any later connection either.
#[derive(Debug)]
pub struct Unsupported;

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "this kernel cannot put the socket into a sockmap: use Linux 6.4 or later, and one of \
             the vsock transports virtio, vhost and loopback",
        )
    }
}

impl Error for Unsupported {}

/// Accepts that a socket is in the map already. For that the kernel returns EBUSY for a source,
/// which has a program, and EEXIST for a target.
pub fn ignore_present(result: Result<(), MapError>) -> Result<(), MapError> {
    match result {
        Err(error) if matches!(errno(&error), Some(libc::EBUSY | libc::EEXIST)) => Ok(()),
        other => other,
    }
}

/// Returns the error number of the system in a chain of errors.
fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.raw_os_error();
        }
        cause = error.source();
    }
    None
}

/// Returns an error of one line that says what to do.
pub fn explain<E: Error + Send + Sync + 'static>(error: E) -> anyhow::Error {
    match errno(&error) {
        Some(libc::EPERM | libc::EACCES) => {
            anyhow!("no permission for bpf(2): run as root, or with CAP_BPF and CAP_NET_ADMIN")
        }
        Some(libc::ENOSYS) => {
            anyhow!("this kernel has no bpf(2): build it with CONFIG_BPF_SYSCALL")
        }
        Some(libc::EOPNOTSUPP) => Unsupported.into(),
        Some(libc::EINVAL) => anyhow!(
            "this kernel has no sockmap with verdict programs: use Linux 6.4 or later, built with \
             CONFIG_BPF_SYSCALL and CONFIG_INET"
        ),
        _ => {
            let cause = error.source().map(|cause| format!(": {cause}"));
            let line = format!("BPF: {error}{}", cause.unwrap_or_default());
            anyhow!("{}", line.replace('\n', " "))
        }
    }
}
