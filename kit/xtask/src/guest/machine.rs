// SPDX-License-Identifier: GPL-2.0-only
//! The machine that a kernel boots on: how User-Mode Linux and QEMU are started.

use std::fs::{self, File};
use std::io::IsTerminal;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{bail, Result};

use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::Image;
use crate::kernel::flavour::Bed;

/// The root file system of a guest.
#[derive(Clone, Copy, Debug)]
pub enum System<'a> {
    /// An initramfs archive.
    Initramfs(&'a Path),
    /// The tool root, with program `init` in it as init. The guest sees the cache and the checkout
    /// at their own paths. Only User-Mode Linux can do this.
    ToolRoot { init: &'a Path },
}

/// A boot: fill in the fields, then call `run`.
pub struct Boot<'a> {
    pub image: &'a Image,
    pub system: System<'a>,
    /// The arguments of init.
    pub args: &'a [String],
    /// Further words for the kernel's command line.
    pub kernel_args: &'a [&'a str],
    /// Further arguments of QEMU.
    pub qemu_args: &'a [String],
    pub memory_mib: u32,
    /// Kill the guest if it has not ended after this time.
    pub timeout: Option<Duration>,
    /// Show the console on stdout.
    pub echo: bool,
    /// Connect stdin to the console.
    pub input: bool,
    /// Call this for each line of the console.
    pub each_line: Option<&'a mut dyn FnMut(&str)>,
}

impl<'a> Boot<'a> {
    /// Returns a boot with default settings.
    pub fn new(image: &'a Image, system: System<'a>) -> Self {
        Boot {
            image,
            system,
            args: &[],
            kernel_args: &[],
            qemu_args: &[],
            memory_mib: if image.flavour.debug { 3072 } else { 2048 },
            timeout: Some(Duration::from_secs(300)),
            echo: false,
            input: false,
            each_line: None,
        }
    }

    /// Returns the command that starts the machine.
    pub fn command(&self, env: &Env, root: &ToolRoot) -> Result<Command> {
        match self.image.flavour.bed {
            Bed::Qemu => self.qemu(env, root),
            Bed::Um | Bed::PairHost => self.um(env, root),
        }
    }

    /// Returns the command that starts User-Mode Linux.
    fn um(&self, env: &Env, root: &ToolRoot) -> Result<Command> {
        let mut command = root.command(&env.logs, &self.image.kernel.display().to_string());
        command.arg(format!("mem={}M", self.memory_mib));
        match self.system {
            System::Initramfs(path) => {
                // Without root= and console=, User-Mode Linux appends its own after init's
                // arguments, and init would get them.
                command
                    .arg(format!("initrd={}", path.display()))
                    .arg("root=/dev/ram0");
            }
            System::ToolRoot { init } => {
                command.args(["rootfstype=hostfs", "root=/dev/root", "rw"]);
                command.arg(format!("init={}", init.display()));
            }
        }
        // SMP needs seccomp. Programs of the guest write to con0.
        command.args([
            "seccomp=on",
            "ncpus=2",
            "uml_dir=/tmp",
            "console=tty0",
            "con=null",
            "panic=-1",
        ]);
        command.arg(if self.input {
            "con0=fd:0,fd:1"
        } else {
            "con0=null,fd:1"
        });
        command.args(self.kernel_args);
        if !self.args.is_empty() {
            command.arg("--");
        }
        for arg in self.args {
            command.arg(quote(arg)?);
        }
        Ok(command)
    }

    /// Returns the command that starts QEMU.
    fn qemu(&self, env: &Env, root: &ToolRoot) -> Result<Command> {
        let System::Initramfs(initramfs) = self.system else {
            bail!(
                "QEMU boots only from an initramfs; use the test bed um or pair for the tool root"
            );
        };
        let mut command = root.command(&env.logs, "qemu-system-x86_64");
        let mut line = vec!["console=ttyS0".to_string(), "panic=-1".to_string()];
        if kvm_works() {
            command.args(["-accel", "kvm", "-cpu", "host"]);
        } else {
            command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
            line.extend(emulated_clock());
        }
        // The BIOS table of processors lists one processor per socket.
        command.args(["-smp", "2,sockets=2", "-nodefaults", "-display", "none"]);
        command.arg("-no-reboot");
        // With signal=off, Ctrl-C goes to the guest.
        let signal = if self.input && std::io::stdin().is_terminal() {
            "off"
        } else {
            "on"
        };
        command.args(["-chardev", &format!("stdio,id=console,signal={signal}")]);
        command.args(["-serial", "chardev:console"]);
        command.args(["-m", &format!("{}M", self.memory_mib)]);
        command
            .arg("-kernel")
            .arg(&self.image.kernel)
            .arg("-initrd")
            .arg(initramfs);
        line.extend(self.kernel_args.iter().map(|arg| arg.to_string()));
        command
            .args(["-append", &command_line(line, self.args)?])
            .args(self.qemu_args);
        Ok(command)
    }
}

/// Returns whether KVM can run a guest. /dev/kvm alone is not enough: it can exist where the
/// processor has neither vmx nor svm.
pub fn kvm_works() -> bool {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    let virtual_machines = flags.is_some_and(|line| {
        line.split_whitespace()
            .any(|flag| flag == "vmx" || flag == "svm")
    });
    virtual_machines
        && File::options()
            .read(true)
            .write(true)
            .open("/dev/kvm")
            .is_ok()
}

/// Returns the kernel arguments that give an emulated x86_64 a precise clock. QEMU passes the time
/// stamp counter of this machine through, so the guest can use it, but has no other precise clock
/// to measure its frequency with. So the frequency is measured here.
#[cfg(target_arch = "x86_64")]
pub fn emulated_clock() -> Vec<String> {
    // SAFETY: Every x86_64 processor has this instruction, and it touches no memory.
    let ticks = || unsafe { std::arch::x86_64::_rdtsc() };
    let (start, first) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(200));
    let (time, last) = (start.elapsed(), ticks());
    let khz = (last - first) * 1_000_000 / time.as_nanos() as u64;
    vec!["tsc=reliable".to_string(), format!("tsc_early_khz={khz}")]
}

/// Returns no arguments, since this machine has no time stamp counter.
#[cfg(not(target_arch = "x86_64"))]
pub fn emulated_clock() -> Vec<String> {
    Vec::new()
}

/// Returns a kernel's command line: `line`, then the arguments of init.
pub fn command_line(mut line: Vec<String>, args: &[String]) -> Result<String> {
    if !args.is_empty() {
        line.push("--".to_string());
    }
    for arg in args {
        line.push(quote(arg)?);
    }
    Ok(line.join(" "))
}

/// Quotes an argument of init for the kernel's command line.
fn quote(arg: &str) -> Result<String> {
    if arg.contains('"') || arg.contains('\n') {
        bail!("change the argument {arg:?}: a kernel command line has no quotes or line breaks");
    }
    if arg.is_empty() || arg.contains(char::is_whitespace) {
        return Ok(format!("\"{arg}\""));
    }
    Ok(arg.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_keep_their_spaces() {
        assert_eq!(quote("a").unwrap(), "a");
        assert_eq!(quote("a b").unwrap(), "\"a b\"");
        assert!(quote("a\"b").is_err());
    }
}
