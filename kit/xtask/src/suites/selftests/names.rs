// SPDX-License-Identifier: GPL-2.0-only
//! The names of the tests.

/// Upstream's sockmap tests: what passes with the C version must pass with the Rust one.
pub const UPSTREAM: &[&str] = &[
    "sockmap_basic",
    "sockmap_listen",
    "sockmap_redir",
    "sockmap_strp",
];

/// The names of this series' tests begin with this.
pub const OURS: &str = "vsock_sockmap";

/// The tests of this series.
pub const OUR_TESTS: &[&str] = &[
    "vsock_sockmap_eof",
    "vsock_sockmap_example",
    "vsock_sockmap_monitor",
    "vsock_sockmap_outside",
    "vsock_sockmap_recv",
    "vsock_sockmap_redir",
    "vsock_sockmap_stall",
    "vsock_sockmap_verdict",
];

/// The helpers that these tests share: a file beside them without a test of its own.
pub const OUR_HELPERS: &str = "vsock_sockmap_helpers";

/// The folder of the bpf selftests in the kernel tree.
pub const SELFTESTS: &str = "tools/testing/selftests/bpf";
