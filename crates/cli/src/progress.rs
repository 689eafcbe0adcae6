//! Shows the progress of a run on standard error: a bar on a terminal, plain lines elsewhere.
//!
//! Invariant: work that takes less than a second is not shown. While a measured phase runs in real time, nothing is
//! drawn, because drawing would take a core from the phase.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tarn_lab::explore;
use tarn_lab::harness::watch::Watch;
use tarn_lab::simulate::driver::Now;
use tarn_lab::sweep::{self, Point, pool::Done};

const PATIENCE: Duration = Duration::from_secs(1);
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Shows the user the current work.
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
    /// Creates the display. The clock of the display starts now.
    #[expect(clippy::disallowed_methods, reason = "the program's clock")]
    pub fn new() -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { terminal, start: Instant::now(), shown: Mutex::default() }
    }

    #[expect(clippy::disallowed_methods, reason = "the program's clock")]
    fn line(&self, shown: &mut Shown, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if shown.last_line.is_none_or(|last| now - last >= BETWEEN_LINES) {
            remark!("{}", text());
            shown.last_line = Some(now);
        }
    }
}

fn loading_line(done: u64, all: u64) -> String {
    format!("loading: {done} of {all} records ({} %)", done * 100 / all.max(1))
}

fn bar(what: &'static str, all: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:40} {human_pos}/{human_len} {eta}");
    ProgressBar::new(all).with_style(style.expect("a valid template")).with_message(what)
}

impl Watch for Progress {
    fn loading(&self, done: u64, all: u64) {
        if self.start.elapsed() < PATIENCE {
            return;
        }
        // If the bar is in use, another thread is drawing, and this thread returns without drawing.
        let Ok(mut shown) = self.shown.try_lock() else { return };
        match self.terminal {
            true => shown.bar.get_or_insert_with(|| bar("loading", all)).set_position(done),
            false => self.line(&mut shown, || loading_line(done, all)),
        }
    }

    fn loaded(&self, records: u64, seconds: f64) {
        if let Ok(mut shown) = self.shown.lock()
            && let Some(bar) = shown.bar.take()
        {
            bar.finish_and_clear();
        }
        if seconds > PATIENCE.as_secs_f64() {
            remark!("loaded {records} records in {seconds:.1} s");
        }
    }

    fn phase(&self, name: &str, length: Duration) {
        if length >= PATIENCE {
            remark!("{name}: {:.1} s …", length.as_secs_f64());
        }
    }

    /// Shows that a phase is running. The display shows no end time, because the real length of virtual time is
    /// unknown.
    fn running(&self, phase: &'static str, now: Now) {
        if self.start.elapsed() < PATIENCE {
            return;
        }
        let Ok(mut shown) = self.shown.try_lock() else { return };
        let (passed_us, of_us) = (now.passed.0 / 1_000, now.of.0 / 1_000);
        match self.terminal {
            true if passed_us >= of_us => {
                shown.bar.take().inspect(ProgressBar::finish_and_clear);
            }
            true => {
                let bar = shown.bar.get_or_insert_with(|| bar(phase, of_us));
                if bar.message() != phase {
                    // The previous phase ended early, so the bar gets the name of the new phase.
                    bar.set_message(phase);
                    bar.set_length(of_us);
                }
                bar.set_position(passed_us);
            }
            false => self.line(&mut shown, || {
                let ms = |us: u64| us as f64 / 1e3;
                format!("{phase}: {:.1} of {:.1} ms of virtual time", ms(passed_us), ms(of_us))
            }),
        }
    }

    fn judging(&self, about_seconds: f64) {
        if let Ok(mut shown) = self.shown.lock() {
            shown.bar.take().inspect(ProgressBar::finish_and_clear);
        }
        if about_seconds > PATIENCE.as_secs_f64() {
            remark!("judging the memory …");
        }
    }

    fn notice(&self, text: &str) {
        remark!("notice: {text}");
    }
}

impl Progress {
    /// Shows that `done` seeds have passed, of `all` seeds if their number is known.
    pub fn seeds(&self, done: u64, all: Option<u64>) {
        if self.start.elapsed() < PATIENCE {
            return;
        }
        let Ok(mut shown) = self.shown.try_lock() else { return };
        match all {
            Some(all) if self.terminal => {
                shown.bar.get_or_insert_with(|| bar("seeds", all)).set_position(done);
            }
            Some(all) => self.line(&mut shown, || format!("seeds: {done} of {all}")),
            None => self.line(&mut shown, || format!("seeds: {done}")),
        }
    }

    /// Shows the number of explored items, and the progress of the present item.
    pub fn exploring(&self, now: &explore::run::Now<'_>) {
        if self.start.elapsed() < PATIENCE {
            return;
        }
        let Ok(mut shown) = self.shown.try_lock() else { return };
        let (done, all) = (now.done as u64, now.all as u64);
        match self.terminal {
            true => shown.bar.get_or_insert_with(|| bar("litmuses", all)).set_position(done),
            false => self.line(&mut shown, || {
                let explore::order::Item { litmus, shape, fault } = now.item;
                let (name, states) = (&litmus.name, now.progress.states);
                format!("litmuses: {done} of {all}; {name} {shape} {fault}: {states} states")
            }),
        }
    }

    /// Removes the display of the progress.
    pub fn end(&self) {
        if let Ok(mut shown) = self.shown.lock() {
            shown.bar.take().inspect(ProgressBar::finish_and_clear);
        }
    }
}

/// Shows the progress of a sweep: a line for every point that has ended, and on a terminal a bar below these lines.
pub struct Sweeping {
    bar: Option<ProgressBar>,
}

impl Sweeping {
    /// Starts the display of a sweep of `points` points.
    pub fn new(points: usize) -> Sweeping {
        let bar = std::io::stderr().is_terminal().then(|| bar("points", points as u64));
        Sweeping { bar }
    }
}

impl sweep::pool::Watch for Sweeping {
    fn begins(&self, point: &Point) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("running {}", point.name()));
            bar.tick();
        }
    }

    fn ended(&self, point: &Point, done: &Done, finished: usize, of: usize) {
        let verdict = if done.passed { "" } else { ": checks failed" };
        let line = format!("{finished}/{of} {} in {:.1} s{verdict}", point.name(), done.seconds);
        let Some(bar) = &self.bar else { return remark!("{line}") };
        bar.println(line);
        bar.set_position(finished as u64);
        if finished == of {
            bar.finish_and_clear();
        }
    }
}
