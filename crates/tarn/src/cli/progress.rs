//! How far a run is, on standard error: a bar on a terminal, plain lines elsewhere.
//!
//! Invariant: nothing is shown that takes less than a second, and nothing moves while the measured
//! phase runs: drawing would take a core from it.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tarn::bench::run::Watch;

const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Tells a person what is going on.
pub struct Progress {
    terminal: bool,
    start: Instant,
    shown: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl Progress {
    /// From now on.
    #[expect(clippy::disallowed_methods, reason = "the program's clock")]
    pub fn new() -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { terminal, start: Instant::now(), shown: Mutex::default() }
    }

    #[expect(clippy::disallowed_methods, reason = "the program's clock")]
    fn line(&self, shown: &mut Shown, done: u64, all: u64) {
        let now = Instant::now();
        if shown.last_line.is_none_or(|last| now - last >= BETWEEN_LINES) {
            eprintln!("loading: {} of {all} records ({} %)", done, done * 100 / all.max(1));
            shown.last_line = Some(now);
        }
    }
}

fn bar(all: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("loading {bar:40} {human_pos}/{human_len} {eta}");
    ProgressBar::new(all).with_style(style.expect("a valid template"))
}

impl Watch for Progress {
    fn loading(&self, done: u64, all: u64) {
        if self.start.elapsed() < PATIENCE {
            return;
        }
        // Whoever finds the bar in use leaves it: somebody else is drawing.
        let Ok(mut shown) = self.shown.try_lock() else { return };
        match self.terminal {
            true => shown.bar.get_or_insert_with(|| bar(all)).set_position(done),
            false => self.line(&mut shown, done, all),
        }
    }

    fn loaded(&self, records: u64, seconds: f64) {
        if let Ok(mut shown) = self.shown.lock()
            && let Some(bar) = shown.bar.take()
        {
            bar.finish_and_clear();
        }
        if seconds > PATIENCE.as_secs_f64() {
            eprintln!("loaded {records} records in {seconds:.1} s");
        }
    }

    fn phase(&self, name: &str, length: Duration) {
        if length >= PATIENCE {
            eprintln!("{name}: {:.1} s …", length.as_secs_f64());
        }
    }

    fn judging(&self, about_seconds: f64) {
        if about_seconds > PATIENCE.as_secs_f64() {
            eprintln!("judging the memory …");
        }
    }

    fn notice(&self, text: &str) {
        eprintln!("notice: {text}");
    }
}
