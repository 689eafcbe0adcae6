//! Atomics of the lock table, and of the counts of readers, so that their synchronisation can be modelled.
//!
//! Invariant: in an ordinary build this is the standard library and nothing else. Built with `--cfg loom`
//! the same code runs on loom's types, which try every interleaving and every value that a weaker machine
//! may show (Norris and Demsky, "CDSChecker", OOPSLA 2013, whose method loom has). What orders one
//! thread's accesses for another is named by a [`Site`], so that a model can take it away and prove that
//! it would have noticed. It is the way of `crates/fabric/src/local/sync.rs`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// What an ordering is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// Whoever has a bucket's bit sees what the one before did under it.
    BitTaken,
    /// What is done under a bucket's bit comes before it is given back.
    BitReleased,
    /// What a holder did comes before its lock is free.
    SlotReleased,
    /// Whoever is granted a lock sees what its last holders did.
    SlotTaken,
    /// Whoever joins readers sees, through the first of them, what the last writer did.
    ClaimPublished,
    /// Whoever finds a set of cached versions even sees what was written before.
    EntryRead,
    /// Whoever has seen anything of a change sees, looking again, that there was one.
    EntryReadAgain,
    /// Whoever changes a set sees what the one before did.
    EntryTaken,
    /// A set is odd before anything of it changes.
    EntryChanging,
    /// What a set's writer did comes before the set is even again.
    EntryWritten,
    /// A reader is counted before he reads anything (`crates/engine/src/services/readers.rs`).
    ReadingTold,
    /// A writer has his locks before he looks who reads.
    ReadingAsked,
    /// What a reader did comes before he is counted no more.
    ReadingEnded,
    /// Whoever finds that a reader is counted no more writes behind what he read.
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

/// Words that are all zero, in memory that is touched when it is used.
pub(crate) fn zeroed(count: usize) -> Words {
    #[cfg(not(loom))]
    let words = Words::zeroed(count);
    #[cfg(loom)]
    let words = (0..count).map(|_| AtomicU64::new(0)).collect();
    words
}

/// The line of a word will be written soon: a hint.
#[inline(always)]
pub(crate) fn fetch_to_write(_word: &AtomicU64) {
    #[cfg(not(loom))]
    tarn_fabric::local::fetch_to_write(_word);
}
