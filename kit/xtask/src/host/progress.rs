// SPDX-License-Identifier: GPL-2.0-only
//! What the user sees on stderr: lines, and the progress of long steps.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

fn bars() -> &'static MultiProgress {
    static BARS: OnceLock<MultiProgress> = OnceLock::new();
    BARS.get_or_init(MultiProgress::new)
}

/// Removes moving progress from the terminal, before the process ends.
pub fn clear() {
    let _ = bars().clear();
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
