// SPDX-License-Identifier: GPL-2.0-only
//! `demo`: the experiment that the vsock sockmap began with. A guest sends UNIX datagrams to a
//! vsock server on its host, through socat, through the C sockmap and through the Rust sockmap.
//!
//! An arm is one of these ways to move the bytes. The host leads: it starts a server, tells the
//! guest over its serial console which arm to run, and waits until the server has received
//! everything or the time is over.

mod args;
mod arm;
mod outcome;
mod reports;
mod run;
mod scripts;
mod table;

pub use self::args::Args;
pub use self::run::run;
