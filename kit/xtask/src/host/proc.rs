// SPDX-License-Identifier: GPL-2.0-only
//! Starts programs, and ends every started process when this run ends.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};

use anyhow::{bail, Context, Result};
use rustix::process::{kill_process, set_parent_process_death_signal, Pid, Signal};

use crate::host::progress;

/// The ids of the processes to end when this run gets a signal.
static RUNNING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The terminal settings to restore at the end.
static TERMINAL: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);

/// Locks the list of running processes.
fn running() -> MutexGuard<'static, BTreeSet<i32>> {
    RUNNING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Makes SIGINT (Ctrl-C), SIGTERM and SIGHUP end this run and every process that it started.
pub fn handle_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // The lock is held to the end, so that no thread starts another process.
            let running = running();
            for pid in running.iter() {
                kill(*pid);
            }
            restore_terminal();
            progress::clear();
            eprintln!("xtask: interrupted");
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Kills a process with SIGKILL, since a hung User-Mode Linux ignores all other signals.
fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // The process may have ended already.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Saves the terminal settings for [`restore_terminal`], since the console of a guest changes them.
pub fn save_terminal() {
    if let Ok(settings) = rustix::termios::tcgetattr(std::io::stdin()) {
        *TERMINAL
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(settings);
    }
}

/// Restores the terminal settings that [`save_terminal`] saved.
pub fn restore_terminal() {
    let settings = TERMINAL
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .take();
    if let Some(settings) = settings {
        let _ = rustix::termios::tcsetattr(
            std::io::stdin(),
            rustix::termios::OptionalActions::Now,
            &settings,
        );
    }
}

/// A process that is killed when this value is dropped, when xtask gets a signal and when xtask
/// dies.
pub struct Guarded {
    pub child: Child,
}

/// Starts a program as a [`Guarded`] process. The calling thread must outlive the process, since
/// the kernel kills the process when that thread ends.
pub fn spawn(mut command: Command) -> Result<Guarded> {
    // SAFETY: The closure only makes a system call, which is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            Ok(())
        });
    }
    // With the lock held, a signal comes either before the start, which it prevents, or after the
    // process is in the list.
    let mut running = running();
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "`{}` is not installed; install it and try again",
                command.get_program().to_string_lossy()
            )
        }
        Err(error) => {
            bail!(
                "cannot start {}: {error}",
                command.get_program().to_string_lossy()
            )
        }
    };
    running.insert(child.id() as i32);
    Ok(Guarded { child })
}

impl Guarded {
    /// Kills the process.
    pub fn kill(&mut self) {
        kill(self.child.id() as i32);
    }

    /// Waits for the process to end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let pid = self.child.id() as i32;
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill();
            let _ = self.child.wait();
        }
        running().remove(&pid);
    }
}

/// Runs a program and calls `each` for each line that it writes to stdout or stderr.
pub fn lines(mut command: Command, mut each: impl FnMut(&str)) -> Result<ExitStatus> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut process = spawn(command)?;
    let mut reader = BufReader::new(File::from(reader));
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? != 0 {
        let text = String::from_utf8_lossy(&line);
        // A progress meter overwrites its line; only the last text counts.
        let text = text.trim_end();
        each(text.rsplit('\r').next().unwrap_or(text));
        line.clear();
    }
    process.wait()
}

/// Runs a program and returns its stdout. If the program fails, the error has its stderr.
pub fn output(mut command: Command) -> Result<String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let program = command.get_program().to_string_lossy().into_owned();
    let mut process = spawn(command)?;
    let stderr = process.child.stderr.take().context("stderr is piped")?;
    let stderr = std::thread::spawn(move || std::io::read_to_string(stderr));
    let stdout = process.child.stdout.take().context("stdout is piped")?;
    let stdout = std::io::read_to_string(stdout)?;
    let status = process.wait()?;
    if !status.success() {
        let stderr = stderr.join().ok().and_then(Result::ok).unwrap_or_default();
        bail!("{program} failed ({status}): {}", stderr.trim());
    }
    Ok(stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_process_is_gone() {
        let mut sleep = Command::new("sleep");
        sleep.arg("100");
        let process = spawn(sleep).unwrap();
        let pid = process.child.id();
        drop(process);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn lines_come_one_by_one() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo one; echo two >&2; printf '10\\r20\\n'; exit 3"]);
        let mut seen = Vec::new();
        let status = lines(shell, |line| seen.push(line.to_string())).unwrap();
        assert_eq!(seen, ["one", "two", "20"]);
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn missing_program_is_named() {
        let error = output(Command::new("no-such-program-here")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`no-such-program-here` is not installed; install it and try again"
        );
    }
}
