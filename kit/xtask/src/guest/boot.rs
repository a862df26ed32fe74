// SPDX-License-Identifier: GPL-2.0-only
//! Boots: start a kernel, read its console, end it in time, judge its log.

use std::fs::{self, File};
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};

use crate::guest::initramfs::EXIT_MARKER;
use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::host::{proc, step};
use crate::kernel::build::{Bed, Image};

/// What the kernel starts from.
#[derive(Clone, Copy, Debug)]
pub enum System<'a> {
    Initramfs(&'a Path),
    /// Only User-Mode Linux: the tool root, as it is, and this program in it as init. The cache
    /// and the checkout are there at their own paths.
    ToolRoot {
        init: &'a Path,
    },
}

/// A boot, to be filled in and `run`.
pub struct Boot<'a> {
    pub image: &'a Image,
    pub system: System<'a>,
    /// Arguments of init.
    pub args: &'a [String],
    /// More for the kernel's command line.
    pub kernel_args: &'a [&'a str],
    /// More for QEMU's command line.
    pub qemu_args: &'a [String],
    pub memory_mib: u32,
    /// The guest is killed when it has not ended after this time.
    pub timeout: Option<Duration>,
    /// Show the console on stdout.
    pub echo: bool,
    /// Connect stdin to the console.
    pub input: bool,
    /// Is given each line of the console as it comes.
    pub each_line: Option<&'a mut dyn FnMut(&str)>,
}

/// How a boot went.
#[derive(Debug)]
pub struct Outcome {
    /// The whole console.
    pub log: String,
    pub log_path: PathBuf,
    /// What /init told; `None` if it did not come to its end.
    pub exit: Option<i32>,
    pub timed_out: bool,
    /// Lines of the log by which the run has failed, whatever `exit` is.
    pub splats: Vec<String>,
    pub seconds: f32,
}

impl Outcome {
    /// Fails unless init ended with 0, in time, and the log has no splat.
    pub fn verdict(&self) -> Result<()> {
        self.clean()?;
        match self.exit {
            Some(0) => Ok(()),
            Some(status) => bail!("the guest ended with status {status}{}", self.where_log()),
            None => bail!("the guest ended without a word{}", self.where_log()),
        }
    }

    /// Fails if the log has a splat or the time limit ended the guest.
    pub fn clean(&self) -> Result<()> {
        if !self.splats.is_empty() {
            bail!(
                "the kernel complains:\n  {}{}",
                self.splats.join("\n  "),
                self.where_log()
            );
        }
        if self.timed_out {
            bail!(
                "the guest was killed after {:.0} s{}",
                self.seconds,
                self.where_log()
            );
        }
        Ok(())
    }

    fn where_log(&self) -> String {
        format!(" (log: {})", self.log_path.display())
    }
}

/// A guest that told its exit status, or that it panics, has this long to power off.
const POWER_OFF: Duration = Duration::from_secs(10);

impl<'a> Boot<'a> {
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

    /// Boots; the console goes to the log `name`.console among this run's logs.
    pub fn run(mut self, env: &Env, root: &ToolRoot, name: &str) -> Result<Outcome> {
        let mut command = match self.image.flavour.bed {
            Bed::Qemu => self.qemu(env, root)?,
            Bed::Um | Bed::PairHost => self.um(env, root)?,
        };
        let log_path = env.logs.join(format!("{name}.console"));
        let mut log_file = File::create(&log_path)
            .with_context(|| format!("cannot write {}", log_path.display()))?;
        writeln!(log_file, "$ {}", step::describe(&command))?;
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        command.stdin(if self.input {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
        command.stdout(writer.try_clone()?).stderr(writer);

        let started = Instant::now();
        let mut deadline = self.timeout.map(|timeout| started + timeout);
        if self.input {
            proc::save_terminal();
        }
        let mut guest = proc::spawn(command)?;
        let (sender, chunks) = mpsc::channel::<Vec<u8>>();
        std::thread::spawn(move || {
            let mut reader = File::from(reader);
            let mut buffer = vec![0; 1 << 14];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });

        let mut log = Vec::new();
        let mut line_start = 0;
        let mut exit = None;
        let mut timed_out = false;
        loop {
            let left = deadline.map_or(Duration::from_secs(3600), |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            match chunks.recv_timeout(left) {
                Ok(chunk) => {
                    log_file.write_all(&chunk)?;
                    if self.echo {
                        let mut stdout = std::io::stdout().lock();
                        stdout.write_all(&chunk)?;
                        stdout.flush()?;
                    }
                    log.extend_from_slice(&chunk);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            while let Some(length) = log[line_start..].iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&log[line_start..line_start + length]);
                let line = line.trim_end();
                // User-Mode Linux can hang in a panic.
                let mut ends = line.contains("Kernel panic");
                if exit.is_none() {
                    exit = exit_status(line);
                    ends |= exit.is_some();
                }
                if ends {
                    let off = Instant::now() + POWER_OFF;
                    deadline = Some(deadline.map_or(off, |deadline| deadline.min(off)));
                }
                if let Some(each_line) = &mut self.each_line {
                    each_line(line);
                }
                line_start += length + 1;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                timed_out = exit.is_none();
                guest.kill();
                deadline = None;
            }
        }
        drop(guest);
        proc::restore_terminal();
        let log = String::from_utf8_lossy(&log).into_owned();
        let splats = splats(&log, self.image.flavour.bed);
        let seconds = started.elapsed().as_secs_f32();
        Ok(Outcome {
            log,
            log_path,
            exit,
            timed_out,
            splats,
            seconds,
        })
    }

    fn um(&self, env: &Env, root: &ToolRoot) -> Result<Command> {
        let mut command = root.command(&env.logs, &self.image.kernel.display().to_string());
        command.arg(format!("mem={}M", self.memory_mib));
        match self.system {
            System::Initramfs(path) => {
                // Without a root= and a console= it adds its own after the arguments of init.
                command
                    .arg(format!("initrd={}", path.display()))
                    .arg("root=/dev/ram0");
            }
            System::ToolRoot { init } => {
                command.args(["rootfstype=hostfs", "root=/dev/root", "rw"]);
                command.arg(format!("init={}", init.display()));
            }
        }
        // SMP needs seccomp; con0 is what a guest's program writes to.
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

    fn qemu(&self, env: &Env, root: &ToolRoot) -> Result<Command> {
        let System::Initramfs(initramfs) = self.system else {
            bail!("QEMU boots only with an initramfs");
        };
        let mut command = root.command(&env.logs, "qemu-system-x86_64");
        let mut line = vec!["console=ttyS0".to_string(), "panic=-1".to_string()];
        if kvm_works() {
            command.args(["-accel", "kvm", "-cpu", "host"]);
        } else {
            command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
            line.extend(emulated_clock());
        }
        // The table of processors has one for each socket.
        command.args(["-smp", "2,sockets=2", "-nodefaults", "-display", "none"]);
        command.arg("-no-reboot");
        // With signal=off Ctrl-C is the guest's.
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

/// /dev/kvm can be there where the processor has no vmx or svm; it then runs no ordinary guest.
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

/// What an emulated x86_64 is told of its clock: to use the time stamp counter, which is that of this
/// machine, and how fast that counts. It has no other clock by which it could tell, but jiffies.
#[cfg(target_arch = "x86_64")]
pub fn emulated_clock() -> Vec<String> {
    // SAFETY: The processor has the instruction, as all have.
    let ticks = || unsafe { std::arch::x86_64::_rdtsc() };
    let (start, first) = (Instant::now(), ticks());
    std::thread::sleep(Duration::from_millis(200));
    let (time, last) = (start.elapsed(), ticks());
    let khz = (last - first) * 1_000_000 / time.as_nanos() as u64;
    vec!["tsc=reliable".to_string(), format!("tsc_early_khz={khz}")]
}

#[cfg(not(target_arch = "x86_64"))]
pub fn emulated_clock() -> Vec<String> {
    Vec::new()
}

/// A kernel's command line, with arguments of init.
pub fn command_line(mut line: Vec<String>, args: &[String]) -> Result<String> {
    if !args.is_empty() {
        line.push("--".to_string());
    }
    for arg in args {
        line.push(quote(arg)?);
    }
    Ok(line.join(" "))
}

/// An argument of init as the kernel's command line wants it.
fn quote(arg: &str) -> Result<String> {
    if arg.contains('"') || arg.contains('\n') {
        bail!("a kernel command line cannot hold this argument: {arg}");
    }
    if arg.is_empty() || arg.contains(char::is_whitespace) {
        return Ok(format!("\"{arg}\""));
    }
    Ok(arg.to_string())
}

fn exit_status(line: &str) -> Option<i32> {
    line.split_once(EXIT_MARKER)?
        .1
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// A line of a log with all of one of these is a splat.
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
    // What /init shows of kmemleak; its own count has the false ones of the boot in it.
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

/// The lines of a console log by which a run has failed.
pub fn splats(log: &str, bed: Bed) -> Vec<String> {
    let mut found = Vec::new();
    let mut init_runs = false;
    for line in log.lines() {
        init_runs |= line.contains(" as init process");
        // On UML lockdep complains about its own set-up and switches itself off.
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

    #[test]
    fn arguments_keep_their_spaces() {
        assert_eq!(quote("a").unwrap(), "a");
        assert_eq!(quote("a b").unwrap(), "\"a b\"");
        assert!(quote("a\"b").is_err());
    }
}
