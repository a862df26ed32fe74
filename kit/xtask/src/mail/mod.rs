// SPDX-License-Identifier: GPL-2.0-only
//! The series as mails, and the checks of the repository.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`message`] | reads and checks commit messages and cover letters |
//! | [`manifest`] | reads series/: which files belong to which patch |
//! | [`git`] | names the sender, and writes commits for git |
//! | [`mails`] | writes the series as mails |
//! | [`bisect`] | builds and boots a kernel at each patch |
//! | [`series`] | the verb `series`: mails or bisect |
//! | [`checks`] | the checks by subject |
//! | [`check`] | the verb `check`: runs the checks |

pub mod bisect;
pub mod check;
pub mod checks;
pub mod git;
pub mod mails;
pub mod manifest;
pub mod message;
pub mod series;
