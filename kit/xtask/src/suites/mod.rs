// SPDX-License-Identifier: GPL-2.0-only
//! The test suites, and the verbs `test` and `stress` that run them.
//!
//! Each module uses only those above it:
//!
//! | module | what is in it |
//! | --- | --- |
//! | [`case`] | a test case and its verdict |
//! | [`selftests`] | the kernel's bpf selftests: upstream's for sockmap, and ours |
//! | [`oracle`] | vsock_test in a map: the kernel's vsock tests with every socket in a sockmap |
//! | [`vmtest`] | our selftest by the kernel's own vmtest.sh |
//! | [`stress`] | sockets in and out of sockmaps at random, and allocations that fail |
//! | [`test`] | the verb that runs them all |

mod case;
mod oracle;
mod selftests;
pub mod stress;
pub mod test;
mod vmtest;
