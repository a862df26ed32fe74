// SPDX-License-Identifier: GPL-2.0-only
//! A host and its guest, virtio on one side and vhost on the other.
//!
//! No KVM, and no vhost of this machine, is needed: a User-Mode Linux kernel is the host. It has
//! the tool root as its root file system and runs QEMU, whose guest is the kernel of the `qemu`
//! bed. The guest's console comes out of the host's with a mark before each line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::guest::boot::{command_line, emulated_clock, splats, Boot, Outcome, System};
use crate::guest::initramfs::EXIT_MARKER;
use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::{Bed, Image};

/// Before each line of the guest's console in that of the host.
const MARK: &str = "guest| ";

/// How long host and guest may take to boot.
const BOOT: Duration = Duration::from_secs(120);

/// The host's init. Its script can write to the guest's console, /tmp/console, and read all that
/// came from there in /tmp/guest.
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
# The guest's own last line must not be taken for that of the host.
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

/// Replaces `@NAME@` by its value.
pub fn fill(template: &str, values: &[(&str, &dyn std::fmt::Display)]) -> String {
    let mut text = template.to_string();
    for (name, value) in values {
        text = text.replace(&format!("@{name}@"), &value.to_string());
    }
    text
}

/// What the guest said in this line of the host's console, or else the host.
pub fn said(line: &str) -> &str {
    line.strip_prefix(MARK).unwrap_or(line)
}

/// A pair, to be booted.
pub struct Pair<'a> {
    pub env: &'a Env,
    pub root: &'a ToolRoot,
    pub host: &'a Image,
    pub guest: &'a Image,
    /// The guest's.
    pub initramfs: &'a Path,
    /// Of the guest's init.
    pub args: &'a [String],
    /// What the host does while the guest, `$guest`, runs.
    pub script: &'a str,
    /// How long that may take.
    pub limit: Duration,
}

impl Pair<'_> {
    /// Boots; returns also what is wrong with the run as such.
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
        // The splats are in there already, by whose they are.
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

/// Splats of host and guest.
fn complaints(outcome: &Outcome) -> Vec<String> {
    let (theirs, ours): (Vec<&str>, Vec<&str>) =
        outcome.log.lines().partition(|line| line.starts_with(MARK));
    let mut problems = Vec::new();
    for (whose, lines, bed) in [("host", ours, Bed::PairHost), ("guest", theirs, Bed::Qemu)] {
        let found = splats(&lines.join("\n"), bed);
        if !found.is_empty() {
            problems.push(format!(
                "the kernel of the {whose} complains:\n  {}",
                found.join("\n  ")
            ));
        }
    }
    problems
}
