//! Progress of long work on stderr: a bar on a terminal, a plain line every few seconds elsewhere.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// Between two plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// The progress of one piece of work. Share it by reference; every method may be called from any thread.
pub struct Progress {
    what: String,
    total: Option<u64>,
    done: AtomicU64,
    bar: Option<ProgressBar>,
    started: Instant,
    /// When the next plain line is due; `None`: none ever.
    next_line: Mutex<Option<Instant>>,
}

impl Progress {
    /// Progress of `what` (such as `"importing SKUs"`) towards `total`, if that is known. With `quiet` nothing is shown.
    pub fn new(what: impl Into<String>, total: Option<u64>, quiet: bool) -> Self {
        let what = what.into();
        let terminal = std::io::stderr().is_terminal();
        let started = Instant::now();
        let bar = (terminal && !quiet).then(|| bar(&what, total));
        let next_line = Mutex::new((!terminal && !quiet).then(|| started + PLAIN_EVERY));
        Self { what, total, done: AtomicU64::new(0), bar, started, next_line }
    }

    /// `n` more are done.
    pub fn add(&self, n: u64) {
        self.show(self.done.fetch_add(n, Ordering::Relaxed) + n);
    }

    /// A word about the present step, shown behind the bar.
    pub fn message(&self, text: impl Into<String>) {
        if let Some(bar) = &self.bar {
            bar.set_message(text.into());
        }
    }

    /// Writes a line to stderr without tearing the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(text)),
            None => output::note(text),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        *self.next_line.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }

    fn show(&self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            return;
        }
        let Ok(mut next) = self.next_line.try_lock() else {
            return;
        };
        let now = Instant::now();
        if next.is_none_or(|at| now < at) {
            return;
        }
        *next = Some(now + PLAIN_EVERY);
        let of = self.total.map_or_else(String::new, |total| format!(" of {total}"));
        let rate = done as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        output::note(format!("{}: {done}{of}, {rate:.0}/s", self.what));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn bar(what: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{prefix} [{bar:30}] {human_pos}/{human_len} {per_sec} {eta} {msg}"),
        None => (ProgressBar::new_spinner(), "{prefix} {spinner} {human_pos} {per_sec} {msg}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("=> "));
    bar.set_prefix(what.to_owned());
    bar
}
