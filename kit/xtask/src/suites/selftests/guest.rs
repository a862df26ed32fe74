// SPDX-License-Identifier: GPL-2.0-only
//! The guest that runs the selftests.

use std::path::Path;

use anyhow::Result;

use crate::guest::initramfs::Initramfs;

/// The folder of test_progs in a guest. test_progs looks for its files in its working folder.
const GUEST_DIR: &str = "/selftests";

/// The main program of a guest. Its first argument is a list of tests, as in `test_progs -a`. The
/// results go through a file, so that no lines of the kernel come in between.
pub const GUEST_MAIN: &str = r#"#!/bin/sh
for i in vsock vsock_loopback vsockmon; do modprobe -q $i; done
cd /selftests
# TCP's cache of metrics looks like a leak.
echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save
./test_progs --no-error-summary -a "$1" > /tmp/results
status=$?
cat /tmp/results
# A socket holds a reference to the module of its transport. So a module that cannot be removed shows
# that a socket leaked. A closed socket waits for the answer of its peer, at most 8 s.
if grep -q '^vsock ' /proc/modules; then
    for i in $(seq 12); do
        for module in vsockmon vsock_diag vsock_loopback vmw_vsock_virtio_transport_common vsock; do
            rmmod $module 2>/dev/null
        done
        grep -q '^vsock ' /proc/modules || break
        sleep 1
    done
    if grep '^vsock ' /proc/modules; then echo "BUG: a vsock socket is left"; fi
fi
exit $status
"#;

/// Adds test_progs to an initramfs, where [`GUEST_MAIN`] runs it.
pub fn add_to(initramfs: &mut Initramfs, test_progs: &Path) -> Result<()> {
    initramfs.program(&format!("{GUEST_DIR}/test_progs"), test_progs)?;
    Ok(())
}
