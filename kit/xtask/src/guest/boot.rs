// SPDX-License-Identifier: GPL-2.0-only
//! Boots a kernel: reads its console, and ends it in time.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::guest::outcome::exit_status;
use crate::host::env::Env;
use crate::host::proc::{self, Guarded};
use crate::host::step;
use crate::host::toolroot::ToolRoot;

// Callers of `boot` need these too.
pub use crate::guest::machine::{Boot, System};
pub use crate::guest::outcome::{splats, Outcome};

/// The time in which a guest has to power off, after it reported its exit status or began to panic.
const POWER_OFF: Duration = Duration::from_secs(10);

/// The time to wait for output of a guest that has no time limit, before waiting again.
const NO_LIMIT: Duration = Duration::from_secs(3600);

impl Boot<'_> {
    /// Boots, and waits for the end. Writes the console to `name`.console in the logs of this run.
    pub fn run(mut self, env: &Env, root: &ToolRoot, name: &str) -> Result<Outcome> {
        let command = self.command(env, root)?;
        let log_path = env.logs.join(format!("{name}.console"));
        let mut log_file = File::create(&log_path)
            .with_context(|| format!("cannot write {}", log_path.display()))?;
        writeln!(log_file, "$ {}", step::describe(&command))?;

        let started = Instant::now();
        let mut console = Console {
            deadline: self.timeout.map(|timeout| started + timeout),
            log: Vec::new(),
            line_start: 0,
            exit: None,
        };
        if self.input {
            proc::save_terminal();
        }
        let (mut guest, chunks) = start(command, self.input)?;
        let mut timed_out = false;
        loop {
            match chunks.recv_timeout(console.time_left()) {
                Ok(chunk) => {
                    log_file.write_all(&chunk)?;
                    if self.echo {
                        let mut stdout = std::io::stdout().lock();
                        stdout.write_all(&chunk)?;
                        stdout.flush()?;
                    }
                    console.read(&chunk, &mut self.each_line);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if console.time_left().is_zero() {
                timed_out = console.exit.is_none();
                guest.kill();
                console.deadline = None;
            }
        }
        drop(guest);
        proc::restore_terminal();
        let log = String::from_utf8_lossy(&console.log).into_owned();
        let splats = splats(&log, self.image.flavour.bed);
        Ok(Outcome {
            log,
            log_path,
            exit: console.exit,
            timed_out,
            splats,
            seconds: started.elapsed().as_secs_f32(),
        })
    }
}

/// Starts a guest. Returns its process, and a channel that gets what the guest writes to its
/// console.
fn start(mut command: Command, input: bool) -> Result<(Guarded, Receiver<Vec<u8>>)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    command.stdin(if input {
        Stdio::inherit()
    } else {
        Stdio::null()
    });
    command.stdout(writer.try_clone()?).stderr(writer);
    let guest = proc::spawn(command)?;
    let (sender, chunks) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = File::from(reader);
        let mut buffer = vec![0; 1 << 14];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            if sender.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    Ok((guest, chunks))
}

/// The console of a guest that runs.
struct Console {
    /// When to kill the guest.
    deadline: Option<Instant>,
    /// All that the guest has written.
    log: Vec<u8>,
    /// Where the first line begins that is not complete.
    line_start: usize,
    /// The exit status that /init reported.
    exit: Option<i32>,
}

impl Console {
    /// Returns the time until the guest is to be killed.
    fn time_left(&self) -> Duration {
        self.deadline.map_or(NO_LIMIT, |deadline| {
            deadline.saturating_duration_since(Instant::now())
        })
    }

    /// Takes in output of the guest, and calls `each_line` for each line that is complete.
    fn read(&mut self, chunk: &[u8], each_line: &mut Option<&mut dyn FnMut(&str)>) {
        self.log.extend_from_slice(chunk);
        while let Some(length) = self.log[self.line_start..]
            .iter()
            .position(|byte| *byte == b'\n')
        {
            let line = &self.log[self.line_start..self.line_start + length];
            let line = String::from_utf8_lossy(line);
            let line = line.trim_end();
            // User-Mode Linux can hang in a panic, so a panic also limits the time.
            let mut ends = line.contains("Kernel panic");
            if self.exit.is_none() {
                self.exit = exit_status(line);
                ends |= self.exit.is_some();
            }
            if ends {
                let off = Instant::now() + POWER_OFF;
                self.deadline = Some(self.deadline.map_or(off, |deadline| deadline.min(off)));
            }
            if let Some(each_line) = each_line {
                each_line(line);
            }
            self.line_start += length + 1;
        }
    }
}
