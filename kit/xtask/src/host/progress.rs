// SPDX-License-Identifier: GPL-2.0-only
//! Messages and the progress of long steps, on stderr.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Returns the spinners that the terminal shows.
fn bars() -> &'static MultiProgress {
    static BARS: OnceLock<MultiProgress> = OnceLock::new();
    BARS.get_or_init(MultiProgress::new)
}

/// Removes the spinners from the terminal. Call it before the process ends.
pub fn clear() {
    let _ = bars().clear();
}

/// Returns whether stderr is a terminal that a person looks at, and so can show spinners.
fn animated() -> bool {
    static ANIMATED: OnceLock<bool> = OnceLock::new();
    *ANIMATED.get_or_init(|| std::io::stderr().is_terminal() && std::env::var_os("CI").is_none())
}

/// Writes a line to stderr without disturbing the spinners.
pub fn say(line: &str) {
    bars().suspend(|| eprintln!("xtask: {line}"));
}

/// Shows the progress of a step of work.
///
/// On a terminal that is a spinner with the elapsed time and the last line of output. In a log it
/// is a line at the start, a line at the end, and a line each half minute in between.
pub struct Step {
    name: String,
    started: Instant,
    show: Show,
}

enum Show {
    Spinner(ProgressBar),
    /// The last line of output, and a channel to the thread that shows it. The thread ends when the
    /// channel is closed.
    Lines(Arc<Mutex<String>>, mpsc::Sender<()>),
}

/// The time between two lines of a step in a log.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

impl Step {
    /// Begins a step.
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

    /// Shows the last line of output of the step.
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

    /// Ends a step that succeeded. Dropping the step ends it without a message.
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
