//! Progress of a run, as the run reports it to its caller.
//!
//! Invariant: a run does the same work with each watch. A watch is told of each step of the run,
//! and may ignore any step.

use super::phase::Now;
use std::time::Duration;

/// A watch is told the progress of a run.
pub trait Watch: Sync {
    /// Loading goes on: `_done` of `_all` records are loaded.
    fn loading(&self, _done: u64, _all: u64) {}
    /// Loading has ended after `_seconds`, with `_records` records loaded.
    fn loaded(&self, _records: u64, _seconds: f64) {}
    /// A phase in real time begins, and takes the time `_length`.
    fn phase(&self, _name: &str, _length: Duration) {}
    /// A phase in virtual time has made the progress `_now`.
    fn running(&self, _phase: &'static str, _now: Now) {}
    /// The check of the memory begins, which takes about as long as loading did.
    fn judging(&self, _about_seconds: f64) {}
    /// A hint about a setting that the user may want to change.
    fn notice(&self, _text: &str) {}
}

/// A watch that shows no progress.
pub struct Silent;

impl Watch for Silent {}
