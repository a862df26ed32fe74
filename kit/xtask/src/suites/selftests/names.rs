// SPDX-License-Identifier: GPL-2.0-only
//! The names of the tests.

/// Upstream's sockmap tests: what passes with the C version must pass with the Rust one.
pub const UPSTREAM: &[&str] = &[
    "sockmap_basic",
    "sockmap_listen",
    "sockmap_redir",
    "sockmap_strp",
];

/// The test of this series.
pub const OURS: &str = "vsock_sockmap";

/// The folder of the bpf selftests in the kernel tree.
pub const SELFTESTS: &str = "tools/testing/selftests/bpf";
