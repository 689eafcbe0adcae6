//! Index entries that loaders have passed in. The last loader builds the trees of the ordered indexes from these
//! entries.
//!
//! Invariant: the loader that finishes last gets all index entries, and no other loader gets any.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The entries of one index: leaf slots one after another.
pub(crate) type Run = Vec<u8>;

/// The index entries that loaders have passed in and that no index contains yet.
#[derive(Default)]
pub struct Loads(Mutex<Brought>);

#[derive(Default)]
struct Brought {
    finished: u32,
    runs: Vec<Run>,
}

impl Loads {
    fn brought(&self) -> MutexGuard<'_, Brought> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that one of `of` loaders has finished. Returns all entries to the last loader, which builds the
    /// indexes from these entries.
    pub(crate) fn bring(&self, runs: Vec<Run>, of: u32) -> Option<Vec<Run>> {
        let mut brought = self.brought();
        brought.finished += 1;
        let indexes = runs.len().max(brought.runs.len());
        brought.runs.resize_with(indexes, Run::new);
        for (all, run) in brought.runs.iter_mut().zip(runs) {
            match all.is_empty() {
                true => *all = run,
                false => all.extend_from_slice(&run),
            }
        }
        (brought.finished == of).then(|| std::mem::take(&mut *brought).runs)
    }
}
