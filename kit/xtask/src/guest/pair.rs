// SPDX-License-Identifier: GPL-2.0-only
//! The test bed `pair`: a host and a guest inside it, with vsock between them.
//!
//! The host is a User-Mode Linux kernel, so this machine needs neither KVM nor vhost. The tool root
//! is its root file system. The host runs QEMU, whose guest boots the kernel of the test bed
//! `qemu`. The host's console also shows the guest's console, with [`MARK`] before each line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::guest::initramfs::EXIT_MARKER;
use crate::guest::machine::{command_line, emulated_clock, Boot, System};
use crate::guest::outcome::{splats, Outcome};
use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::Image;
use crate::kernel::flavour::Bed;

/// Comes before each line of the guest's console in the console of the host.
const MARK: &str = "guest| ";

/// The time in which host and guest have to boot.
const BOOT: Duration = Duration::from_secs(120);

/// The script that is the host's init. The caller's part of it, @SCRIPT@, can write to the guest's
/// console through /tmp/console, and read in /tmp/guest what the guest wrote.
const HOST: &str = r#"#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
end() {
    echo
    echo "@MARKER@ $1"
    busybox poweroff -f
}
mkfifo /tmp/console
: > /tmp/guest
exec 3<>/tmp/console
# The marker in the guest's last line is replaced, since the kit would take it for the host's.
qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 1 -m 512M \
    -nodefaults -display none -no-reboot \
    -chardev stdio,id=console,signal=off -serial chardev:console \
    -kernel '@KERNEL@' -initrd '@INITRAMFS@' \
    -append 'console=ttyS0 panic=-1 no_timer_check @ARGS@' \
    -device vhost-vsock-pci,guest-cid=3 <&3 2>&1 |
    tee /tmp/guest | sed -u 's/@MARKER@/ended with/; s/^/@MARK@/' &
guest=$!
@SCRIPT@
wait $guest
grep -q '@MARKER@ 0' /tmp/guest || end 1
end 0
"#;

/// Replaces each `@NAME@` in a template by its value.
pub fn fill(template: &str, values: &[(&str, &dyn std::fmt::Display)]) -> String {
    let mut text = template.to_string();
    for (name, value) in values {
        text = text.replace(&format!("@{name}@"), &value.to_string());
    }
    text
}

/// Returns a line of the host's console without the mark of the guest.
pub fn said(line: &str) -> &str {
    line.strip_prefix(MARK).unwrap_or(line)
}

/// A host and its guest. Call [`Pair::run`] to boot them.
pub struct Pair<'a> {
    pub env: &'a Env,
    pub root: &'a ToolRoot,
    pub host: &'a Image,
    pub guest: &'a Image,
    /// The initramfs of the guest.
    pub initramfs: &'a Path,
    /// The arguments of the guest's init.
    pub args: &'a [String],
    /// The part of the host's init that runs while the guest does. `$guest` is the process of QEMU.
    pub script: &'a str,
    /// The time that the script may take.
    pub limit: Duration,
}

impl Pair<'_> {
    /// Boots host and guest, and waits for the end. Returns the outcome of the host, and a list of
    /// the problems of both. Calls `each_line` for each line of the host's console.
    pub fn run(
        &self,
        name: &str,
        each_line: &mut dyn FnMut(&str),
    ) -> Result<(Outcome, Vec<String>)> {
        let init = self.env.logs.join(format!("{name}.init"));
        let script = fill(
            HOST,
            &[
                ("SCRIPT", &self.script),
                ("MARKER", &EXIT_MARKER),
                ("MARK", &MARK),
                ("KERNEL", &self.guest.kernel.display()),
                ("INITRAMFS", &self.initramfs.display()),
                ("ARGS", &command_line(emulated_clock(), self.args)?),
            ],
        );
        fs::write(&init, script).with_context(|| format!("cannot write {}", init.display()))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;

        let mut boot = Boot::new(self.host, System::ToolRoot { init: &init });
        boot.memory_mib = 3072;
        boot.timeout = Some(BOOT + self.limit);
        boot.each_line = Some(each_line);
        let outcome = boot.run(self.env, self.root, name)?;

        let mut problems = complaints(&outcome);
        // The list has the splats already.
        if outcome.splats.is_empty() {
            problems.extend(
                outcome
                    .verdict()
                    .err()
                    .map(|error| format!("host: {error}")),
            );
        }
        Ok((outcome, problems))
    }
}

/// Returns the splats of host and guest as problems.
fn complaints(outcome: &Outcome) -> Vec<String> {
    let (theirs, ours): (Vec<&str>, Vec<&str>) =
        outcome.log.lines().partition(|line| line.starts_with(MARK));
    let mut problems = Vec::new();
    for (whose, lines, bed) in [("host", ours, Bed::PairHost), ("guest", theirs, Bed::Qemu)] {
        let found = splats(&lines.join("\n"), bed);
        if !found.is_empty() {
            problems.push(format!(
                "the kernel of the {whose} reports errors:\n  {}",
                found.join("\n  ")
            ));
        }
    }
    problems
}
