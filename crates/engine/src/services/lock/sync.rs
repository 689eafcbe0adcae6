//! Atomics of the lock table, and of the counts of readers, so that their synchronisation can be modelled.
//!
//! Invariant: in an ordinary build this is the standard library and nothing else. Built with `--cfg loom` the same code
//! runs on loom's types. They try every interleaving and every value that a weaker machine may show (Norris and Demsky,
//! "CDSChecker", OOPSLA 2013, whose method loom has). A [`Site`] names each ordering between threads. So a model can
//! take it away and prove that it would have noticed. `crates/fabric/src/local/sync.rs` works the same way.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// The purpose of an ordering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// A thread that takes a bucket's bit sees all that the last holder of the bit did under it.
    BitTaken,
    /// All that a thread does under a bucket's bit comes before it gives the bit back.
    BitReleased,
    /// All that a holder did comes before its lock is free.
    SlotReleased,
    /// A thread that is granted a lock sees all that its last holders did.
    SlotTaken,
    /// A reader that joins others sees, through the first of them, all that the last writer did.
    ClaimPublished,
    /// A thread that finds a set of cached versions even sees all that was written before.
    EntryRead,
    /// A thread that has seen any part of a change sees, when it looks again, that there was a change.
    EntryReadAgain,
    /// A thread that changes a set sees all that the thread before did to it.
    EntryTaken,
    /// A set is odd before any part of it changes.
    EntryChanging,
    /// All that a set's writer did comes before the set is even again.
    EntryWritten,
    /// A reader is counted before it reads anything (`crates/engine/src/services/readers.rs`).
    ReadingTold,
    /// A writer has its locks before it looks for readers.
    ReadingAsked,
    /// All that a reader did comes before it is no longer counted.
    ReadingEnded,
    /// A writer that finds a reader no longer counted writes after all of that reader's reads.
    ReadingSeenEnded,
}

#[cfg(loom)]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Site>> = const { std::cell::Cell::new(None) };
}

/// A planted bug: from now on this site orders nothing, in models that this thread runs.
#[cfg(loom)]
pub fn plant(site: Option<Site>) {
    PLANTED.set(site);
}

/// The ordering of a site.
#[inline(always)]
pub(crate) fn order(_site: Site, right: Ordering) -> Ordering {
    #[cfg(loom)]
    if PLANTED.get() == Some(_site) {
        return Ordering::Relaxed;
    }
    right
}

/// A fence of a site.
#[inline(always)]
pub(crate) fn fence(_site: Site, right: Ordering) {
    #[cfg(loom)]
    if PLANTED.get() != Some(_site) {
        loom::sync::atomic::fence(right);
    }
    #[cfg(not(loom))]
    std::sync::atomic::fence(right);
}

/// Waits a moment for another thread.
#[inline]
pub(crate) fn pause() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Many words.
#[cfg(not(loom))]
pub(crate) use tarn_fabric::local::Words;
#[cfg(loom)]
pub(crate) type Words = Box<[AtomicU64]>;

/// Words that are all zero. Their memory is touched only when it is used.
pub(crate) fn zeroed(count: usize) -> Words {
    #[cfg(not(loom))]
    let words = Words::zeroed(count);
    #[cfg(loom)]
    let words = (0..count).map(|_| AtomicU64::new(0)).collect();
    words
}

/// A hint that the line of this word will be written soon.
#[inline(always)]
pub(crate) fn fetch_to_write(_word: &AtomicU64) {
    #[cfg(not(loom))]
    tarn_fabric::local::fetch_to_write(_word);
}
