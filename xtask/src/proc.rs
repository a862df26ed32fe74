// SPDX-License-Identifier: GPL-2.0-only
//! Running programs: progress, logs, and an end for every process that was started.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{bail, Context, Result};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rustix::process::{kill_process, set_parent_process_death_signal, Pid, Signal};

use crate::env::Env;

/// Process ids that a signal must end.
static RUNNING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Terminal settings to put back at the end.
static TERMINAL: Mutex<Option<rustix::termios::Termios>> = Mutex::new(None);

fn running() -> MutexGuard<'static, BTreeSet<i32>> {
    RUNNING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Ends every process that this run started when it is told to end (Ctrl-C, SIGTERM, SIGHUP).
pub fn handle_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Kept locked, so that nothing is started any more.
            let running = running();
            for pid in running.iter() {
                kill(*pid);
            }
            restore_terminal();
            let _ = bars().clear();
            eprintln!("xtask: interrupted");
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// SIGKILL, since a wedged User-Mode Linux ignores all others.
fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Remembers how the terminal is set, for `restore_terminal`: a guest's console changes it.
pub fn save_terminal() {
    if let Ok(settings) = rustix::termios::tcgetattr(std::io::stdin()) {
        *TERMINAL
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(settings);
    }
}

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

/// A process that is killed when this is dropped, when xtask gets a signal and when xtask dies.
pub struct Guarded {
    pub child: Child,
}

/// Starts a program as a [`Guarded`] process. The thread that calls must outlive the process.
pub fn spawn(mut command: Command) -> Result<Guarded> {
    // SAFETY: the closure only makes a system call, which is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            Ok(())
        });
    }
    // Under the lock, so that a signal either sees the process or prevents it.
    let mut running = running();
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "`{}` is not installed",
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
    pub fn kill(&mut self) {
        kill(self.child.id() as i32);
    }

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

fn bars() -> &'static MultiProgress {
    static BARS: OnceLock<MultiProgress> = OnceLock::new();
    BARS.get_or_init(MultiProgress::new)
}

/// Moving progress is for a person who looks at a terminal.
fn animated() -> bool {
    static ANIMATED: OnceLock<bool> = OnceLock::new();
    *ANIMATED.get_or_init(|| std::io::stderr().is_terminal() && std::env::var_os("CI").is_none())
}

/// A line for the user, on stderr, that does not disturb moving progress.
pub fn say(line: &str) {
    bars().suspend(|| eprintln!("xtask: {line}"));
}

/// A step of work: a spinner with elapsed time and the last line of output; in a log, a line when
/// it begins, one when it ends and a sign of life each half minute.
pub struct Step {
    name: String,
    started: Instant,
    show: Show,
}

enum Show {
    Spinner(ProgressBar),
    /// The last line, and what ends the thread that shows it when it is dropped.
    Lines(Arc<Mutex<String>>, mpsc::Sender<()>),
}

const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

impl Step {
    pub fn new(name: &str) -> Self {
        let started = Instant::now();
        let show = if animated() {
            let bar = bars().add(ProgressBar::new_spinner());
            let style =
                ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {wide_msg:.dim}")
                    .unwrap_or_else(|_| ProgressStyle::default_spinner());
            bar.set_style(style);
            bar.set_prefix(name.to_string());
            bar.enable_steady_tick(Duration::from_millis(200));
            Show::Spinner(bar)
        } else {
            say(&format!("{name} .."));
            let last = Arc::new(Mutex::new(String::new()));
            let (sender, receiver) = mpsc::channel();
            let (name, shown) = (name.to_string(), Arc::clone(&last));
            std::thread::spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = receiver.recv_timeout(SIGN_OF_LIFE) {
                    let line = shown.lock().map(|line| line.clone()).unwrap_or_default();
                    say(&format!(
                        "{name} .. {} s: {line}",
                        started.elapsed().as_secs()
                    ));
                }
            });
            Show::Lines(last, sender)
        };
        Step {
            name: name.to_string(),
            started,
            show,
        }
    }

    /// Shows what the step is at.
    pub fn at(&mut self, line: &str) {
        match &self.show {
            Show::Spinner(bar) => bar.set_message(line.trim().to_string()),
            Show::Lines(last, _) => {
                if let Ok(mut last) = last.lock() {
                    *last = line.trim().to_string();
                }
            }
        }
    }

    /// The step went well.
    pub fn done(self) {
        let (name, seconds) = (self.name.clone(), self.started.elapsed().as_secs_f32());
        drop(self);
        say(&format!("{name}: done in {seconds:.1} s"));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        match &self.show {
            Show::Spinner(bar) => {
                bar.finish_and_clear();
                bars().remove(bar);
            }
            Show::Lines(_, end) => {
                let _ = end.send(());
            }
        }
    }
}

/// How much of a log an error shows.
const TAIL: usize = 25;

/// Runs a program as a step. Its output goes to a log in the cache; an error shows the tail and
/// says where the log is.
pub fn run(env: &Env, step: &str, command: Command) -> Result<()> {
    let mut log = String::new();
    for c in step.chars() {
        log.push(if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        });
    }
    let path = env.logs.join(format!("{log}.log"));
    let mut file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    writeln!(file, "$ {}", describe(&command))?;
    let mut progress = Step::new(step);
    let mut tail = VecDeque::new();
    let status = lines(command, |line| {
        let _ = writeln!(file, "{line}");
        progress.at(line);
        if tail.len() == TAIL {
            tail.pop_front();
        }
        tail.push_back(line.to_string());
    })?;
    if status.success() {
        progress.done();
        return Ok(());
    }
    drop(progress);
    let tail: Vec<_> = tail.into();
    if let Some(cause) = explain(&tail) {
        bail!("{step}: {cause} (log: {})", path.display());
    }
    bail!(
        "{step} failed ({status}):\n{}\nwhole log: {}",
        tail.join("\n"),
        path.display()
    )
}

/// A command for the head of a log: without the environment, and for one that runs in the tool root
/// without how it gets there.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    // The script that enters the tool root, its arguments, `--`, and the program.
    let script = words.iter().position(|word| word.contains('\n'));
    let program = script.and_then(|script| {
        Some(script + words[script..].iter().position(|word| word == "--")? + 1)
    });
    words[program.unwrap_or(0)..].join(" ")
}

/// The plain cause of a failure, where the output of a program tells it.
fn explain(output: &[String]) -> Option<&'static str> {
    const CAUSES: [(&str, &[&str]); 2] = [
        (
            "the disk is full",
            &["No space left on device", "not enough free space"],
        ),
        (
            "no network, or the server does not answer",
            &[
                "Temporary failure resolving",
                "Could not resolve",
                "Unable to connect to",
                "Could not connect to",
                "Network is unreachable",
                "spurious network error",
                "failed to download from",
            ],
        ),
    ];
    let said = |texts: &[&str]| {
        output
            .iter()
            .any(|line| texts.iter().any(|t| line.contains(t)))
    };
    CAUSES
        .iter()
        .find(|(_, texts)| said(texts))
        .map(|(cause, _)| *cause)
}

/// Runs a program and gives each line of its output, both streams in one, to `each`.
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
        // What a progress meter wrote over counts no more.
        let text = text.trim_end();
        each(text.rsplit('\r').next().unwrap_or(text));
        line.clear();
    }
    process.wait()
}

/// Runs a program and returns its stdout; when it fails, the error is its stderr.
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
    fn failure_is_explained() {
        let told = |line: &str| explain(&["x".to_string(), line.to_string()]);
        assert_eq!(
            told("cp: write error: No space left on device"),
            Some("the disk is full")
        );
        assert!(told("Err:1 Temporary failure resolving 'host'")
            .unwrap()
            .contains("network"));
        assert_eq!(told("make: *** [Makefile:1] Error 2"), None);
    }

    #[test]
    fn command_is_described_by_its_program() {
        let mut plain = Command::new("make");
        plain.args(["-j2", "--", "all"]);
        assert_eq!(describe(&plain), "make -j2 -- all");
        let mut inside = Command::new("unshare");
        inside.args([
            "--", "sh", "-c", "a\nb", "sh", "/root", "/dir", "--", "make", "--", "x",
        ]);
        assert_eq!(describe(&inside), "make -- x");
    }

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
        assert_eq!(error.to_string(), "`no-such-program-here` is not installed");
    }
}
