// SPDX-License-Identifier: GPL-2.0-only
//! Reads in the console of a guest how a boot went.

use std::path::PathBuf;

use anyhow::{bail, Result};

use crate::guest::initramfs::EXIT_MARKER;
use crate::kernel::flavour::Bed;

/// How a boot went.
#[derive(Debug)]
pub struct Outcome {
    /// All that the guest wrote to its console.
    pub log: String,
    pub log_path: PathBuf,
    /// The exit status that /init reported. `None` if /init did not reach its end.
    pub exit: Option<i32>,
    pub timed_out: bool,
    /// Lines of the log by which the run has failed, whatever `exit` is. See [`splats`].
    pub splats: Vec<String>,
    pub seconds: f32,
}

impl Outcome {
    /// Returns an error unless init ended with status 0 and in time, and the log has no splat.
    pub fn verdict(&self) -> Result<()> {
        self.clean()?;
        match self.exit {
            Some(0) => Ok(()),
            Some(status) => bail!("the guest ended with status {status}{}", self.where_log()),
            None => bail!(
                "the guest ended without an exit status; read how{}",
                self.where_log()
            ),
        }
    }

    /// Returns an error if the log has a splat, or if the guest ran out of time.
    pub fn clean(&self) -> Result<()> {
        if !self.splats.is_empty() {
            bail!(
                "the kernel reports errors:\n  {}{}",
                self.splats.join("\n  "),
                self.where_log()
            );
        }
        if self.timed_out {
            bail!(
                "the guest did not end in time and was killed after {:.0} s{}",
                self.seconds,
                self.where_log()
            );
        }
        Ok(())
    }

    /// Returns the part of an error that names the log.
    fn where_log(&self) -> String {
        format!(" (log: {})", self.log_path.display())
    }
}

/// Returns the exit status that a line of the console reports, if it reports one.
pub fn exit_status(line: &str) -> Option<i32> {
    line.split_once(EXIT_MARKER)?
        .1
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// Marks of splats. A line is a splat if it contains all words of one of these entries.
const SPLATS: &[&[&str]] = &[
    &["WARNING:"],
    &["BUG:"],
    &["kernel BUG at"],
    &["KASAN:"],
    &["UBSAN:"],
    &["KFENCE:"],
    &["ODEBUG:"],
    &["Oops"],
    &["Kernel panic"],
    &["general protection fault"],
    &["Unable to handle kernel"],
    &["possible recursive locking"],
    &["possible circular locking"],
    &["inconsistent lock state"],
    &["lock order detected"],
    &["bad unlock balance"],
    &["held lock freed"],
    &["still held when returning to user space"],
    &["Invalid wait context"],
    &["suspicious RCU usage"],
    &["INFO: task", "blocked for more than"],
    &["INFO: trying to register non-static key"],
    &["rcu: INFO:"],
    &["soft lockup"],
    &["hard LOCKUP"],
    &["workqueue lockup"],
    // /init prints these from kmemleak. kmemleak's own count includes false reports from the boot.
    &["unreferenced object "],
    &["refcount_t:"],
    &["list_add corruption"],
    &["list_del corruption"],
    &["scheduling while atomic"],
    &["sleeping function called from invalid context"],
    &["rust_kernel: panicked"],
    &["rust_kernel: ", "panicked at"],
    &["lockdep switched itself off"],
];

/// Returns the splats of a console log: lines with warnings and errors of the kernel. A run whose
/// log has one has failed.
pub fn splats(log: &str, bed: Bed) -> Vec<String> {
    let mut found = Vec::new();
    let mut init_runs = false;
    for line in log.lines() {
        init_runs |= line.contains(" as init process");
        // On User-Mode Linux, lockdep reports an error of its own set-up and turns itself off.
        let um_lockdep = line.contains("bad unlock balance") && !init_runs
            || line.contains("lockdep switched itself off");
        if bed.is_um() && um_lockdep {
            continue;
        }
        if SPLATS
            .iter()
            .any(|words| words.iter().all(|word| line.contains(word)))
        {
            found.push(line.trim_end().to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_splat() {
        for line in [
            "WARNING: CPU: 1 PID: 7 at net/core/skmsg.c:12 sk_psock_put+0x1/0x2",
            "WARNING: possible circular locking dependency detected",
            "WARNING: possible recursive locking detected",
            "WARNING: inconsistent lock state",
            "WARNING: bad unlock balance detected!",
            "BUG: KASAN: slab-use-after-free in vsock_read_skb+0x1/0x2",
            "BUG: sleeping function called from invalid context at mm/x.c:1",
            "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [main:33]",
            "INFO: task main:33 blocked for more than 10 seconds.",
            "rcu: INFO: rcu_sched self-detected stall on CPU",
            "unreferenced object 0x62032ec0 (size 32):",
            "UBSAN: array-index-out-of-bounds in net/x.c:1:2",
            "Oops: general protection fault, probably for non-canonical address 0x1: 0000 [#1]",
            "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
            "kernel BUG at net/vmw_vsock/af_vsock.c:1!",
            "rust_kernel: panicked at net/vmw_vsock/rust/x.rs:1:2:",
            "ODEBUG: free active (active state 0) object",
        ] {
            let log = format!("[    0.1] Run /init as init process\n[    1.2] {line}\nok\n");
            for bed in [Bed::Um, Bed::Qemu] {
                assert_eq!(splats(&log, bed), [format!("[    1.2] {line}")], "{line}");
            }
        }
    }

    #[test]
    fn ordinary_lines_are_no_splats() {
        let log = "kasan: KernelAddressSanitizer initialized (generic)\n\
                   Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar\n\
                   kmemleak: Kernel memory leak detector initialized (mem pool available: 1)\n\
                   FAULT_INJECTION: forcing a failure.\nwarning: unused\n\
                   random: crng init done\nWARNING! nothing\n";
        assert!(splats(log, Bed::Qemu).is_empty());
    }

    #[test]
    fn lockdep_of_um_fails_only_in_its_own_set_up() {
        let log = "WARNING: bad unlock balance detected!\nRun /init as init process\n\
                   xtask: lockdep switched itself off\n";
        assert!(splats(log, Bed::Um).is_empty());
        assert_eq!(splats(log, Bed::Qemu).len(), 2);
        let late = "Run /init as init process\nWARNING: bad unlock balance detected!\n";
        assert_eq!(splats(late, Bed::Um).len(), 1);
    }

    #[test]
    fn exit_marker() {
        assert_eq!(exit_status(&format!("{EXIT_MARKER} 3")), Some(3));
        assert_eq!(exit_status("exit 3"), None);
    }

    fn outcome(exit: Option<i32>, timed_out: bool, splats: &[&str]) -> Outcome {
        Outcome {
            log: String::new(),
            log_path: PathBuf::from("x"),
            exit,
            timed_out,
            splats: splats.iter().map(|splat| splat.to_string()).collect(),
            seconds: 1.0,
        }
    }

    #[test]
    fn verdict_needs_all() {
        assert!(outcome(Some(0), false, &[]).verdict().is_ok());
        assert!(outcome(Some(1), false, &[]).verdict().is_err());
        assert!(outcome(None, false, &[]).verdict().is_err());
        assert!(outcome(None, true, &[]).verdict().is_err());
        assert!(outcome(Some(0), false, &["BUG: x"]).verdict().is_err());
    }
}
