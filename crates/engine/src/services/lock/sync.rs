//! Atomics of the lock table and of the counts of readers, in a form that loom can model.
//!
//! Invariant: in an ordinary build these types are the types of the standard library. Built with `--cfg loom`, the
//! same code runs on loom's types. Loom tries every interleaving and, for each load, every value that a weak memory
//! model may return (Norris and Demsky, "CDSChecker", OOPSLA 2013; loom uses its method). A [`Site`] names each
//! ordering between threads. So a model can remove one ordering and prove that it detects the removal.
//! `crates/fabric/src/local/sync.rs` works the same way.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// The place and purpose of a memory ordering between threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// A thread that takes a bucket's bit sees all changes that the previous holder of the bit made while it held the
    /// bit.
    BitTaken,
    /// All changes that a thread makes while it holds a bucket's bit come before it gives the bit back.
    BitReleased,
    /// All actions of a lock's holder come before the lock is free.
    SlotReleased,
    /// A thread that is granted a lock sees all actions of the lock's previous holders.
    SlotTaken,
    /// A reader that joins another reader sees, through that reader, all actions of the last writer.
    ClaimPublished,
    /// A thread that reads an even sequence number of a set of cached versions sees all earlier writes to the set.
    EntryRead,
    /// A thread may have seen a part of a change to a set of cached versions. When it reads the sequence number
    /// again, it sees that the set has changed.
    EntryReadAgain,
    /// A thread that changes a set of cached versions sees all changes that the previous thread made to the set.
    EntryTaken,
    /// The sequence number of a set of cached versions is odd before any part of the set changes.
    EntryChanging,
    /// All changes that a thread makes to a set of cached versions come before the set's sequence number is even
    /// again.
    EntryWritten,
    /// A reader is counted before it reads anything (`crates/engine/src/services/readers.rs`).
    ReadingTold,
    /// A writer holds all its locks before it checks the counts of readers.
    ReadingAsked,
    /// All actions of a reader come before it is no longer counted.
    ReadingEnded,
    /// If a writer sees that a reader is no longer counted, the writer's data come after all of that reader's reads.
    ReadingSeenEnded,
}

#[cfg(loom)]
std::thread_local! {
    static PLANTED: std::cell::Cell<Option<Site>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug: from now on this site orders no memory accesses, in models that this thread runs.
#[cfg(loom)]
pub fn plant(site: Option<Site>) {
    PLANTED.set(site);
}

/// Returns the memory ordering of a site: `right`, unless a bug is planted at this site.
#[inline(always)]
pub(crate) fn order(_site: Site, right: Ordering) -> Ordering {
    #[cfg(loom)]
    if PLANTED.get() == Some(_site) {
        return Ordering::Relaxed;
    }
    right
}

/// Executes the memory fence of a site, unless a bug is planted at this site.
#[inline(always)]
pub(crate) fn fence(_site: Site, right: Ordering) {
    #[cfg(loom)]
    if PLANTED.get() != Some(_site) {
        loom::sync::atomic::fence(right);
    }
    #[cfg(not(loom))]
    std::sync::atomic::fence(right);
}

/// Spins for a moment while another thread works.
#[inline]
pub(crate) fn pause() {
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// A large array of atomic words.
#[cfg(not(loom))]
pub(crate) use tarn_fabric::local::Words;
#[cfg(loom)]
pub(crate) type Words = Box<[AtomicU64]>;

/// Allocates words that are all zero. The operating system supplies a page of this memory only when code uses the
/// page.
pub(crate) fn zeroed(count: usize) -> Words {
    #[cfg(not(loom))]
    let words = Words::zeroed(count);
    #[cfg(loom)]
    let words = (0..count).map(|_| AtomicU64::new(0)).collect();
    words
}

/// Tells the processor that the cache line of this word will be written soon.
#[inline(always)]
pub(crate) fn fetch_to_write(_word: &AtomicU64) {
    #[cfg(not(loom))]
    tarn_fabric::local::fetch_to_write(_word);
}
