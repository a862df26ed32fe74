// SPDX-License-Identifier: GPL-2.0-only
//! Sends and checks data whose content both sides know.
//!
//! The content depends only on a seed ([`content`]). The receiver compares hashes, so it finds each
//! byte that is lost, repeated, changed or out of order.

mod content;
mod receive;
mod timed;

pub mod send;
pub mod serve;
