//! Receives the progress of a run from the run itself.
//!
//! Invariant: the watch does not influence the work of the run. The run tells the watch of each step, and the watch
//! may ignore any step.

use super::phase::Now;
use std::time::Duration;

/// A watch receives the progress of a run.
pub trait Watch: Sync {
    /// The loading of tables goes on: `_done` of `_all` records are loaded.
    fn loading(&self, _done: u64, _all: u64) {}
    /// The loading of tables has ended after `_seconds`, with `_records` records loaded.
    fn loaded(&self, _records: u64, _seconds: f64) {}
    /// A phase in real time begins, and will take the time `_length`.
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
