// SPDX-License-Identifier: GPL-2.0-only
//! `unix-listen`: makes a vsock connection for each accepted one, and redirects both directions.
//!
//! Each direction has a thread, which sleeps while the kernel moves the data:
//!
//! 1. It copies data that is there already, until nothing is queued ([`copy`]).
//! 2. It puts the sockets into the maps. Packets that arrive between these steps stay in the queue.
//!    For each later packet, the kernel takes one packet out of the queue, in order. If packets are
//!    still queued and nothing has moved for some milliseconds, the thread reads them and injects
//!    them behind the redirected data ([`catch_up`]).
//! 3. At the end of the stream it waits until the target has all redirected data, copies the rest
//!    for which no program ran, and shuts down the other side ([`run`]).
//!
//! Answers (vsock to UNIX) are copied until the client has shut down its sending side, unless
//! `--no-half-close` says that no client does that early. The reason: a shutdown() by the client
//! makes the kernel remove the other end of the client's connection from all maps, and drop the
//! data that a redirect has queued for it.

mod catch_up;
mod connection;
mod copy;
mod direction;
mod listen;

mod run;
mod service;
mod wait;

pub use listen::run;
