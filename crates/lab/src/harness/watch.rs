//! Progress of a run, as its caller is told.
//!
//! Invariant: a run does the same with each watch. A watch hears of each step that concerns it and may leave out any.

use super::phase::Now;
use std::time::Duration;

/// Is told how far a run is.
pub trait Watch: Sync {
    /// Loading goes on: `_done` of `_all` records are there.
    fn loading(&self, _done: u64, _all: u64) {}
    /// Loading is over.
    fn loaded(&self, _records: u64, _seconds: f64) {}
    /// A phase in real time begins, and takes this long.
    fn phase(&self, _name: &str, _length: Duration) {}
    /// A phase in virtual time is so far.
    fn running(&self, _phase: &'static str, _now: Now) {}
    /// The memory is judged, which takes about as long as loading did.
    fn judging(&self, _about_seconds: f64) {}
    /// Something that a person may want to change.
    fn notice(&self, _text: &str) {}
}

/// Shows nothing.
pub struct Silent;

impl Watch for Silent {}
