//! A count that tells a thread whether another one began to write while it looked at near memory:
//! writers raise it, readers compare it.
//!
//! Invariant: a writer raises the count after it has taken its locks and before it writes under
//! them. Suppose that the count is the same before and behind a reader's looks. Then nothing that
//! the reader saw was written by a writer that raised the count in between. Of a writer that raised
//! it before, the reader sees the locks, or the values written under them and all later ones.
//!
//! This is the idea of the sequence lock, with one count for all (Lameter, "Effective
//! synchronization on Linux/NUMA systems", 2005). A reader in one process pays two loads of a line
//! that changes with each writer. The count is memory of the process, as the threads are that reach
//! these nodes by loads. Another process that maps the nodes' memory ([`super::Backing::Shared`])
//! and writes there must not rely on it.

use super::sync::{AtomicU64, Ordering, Site, fence_of, order};

/// The count of writers; see the module's documentation.
#[derive(Default)]
pub struct WriteEpoch {
    raised: crossbeam_utils::CachePadded<AtomicU64>,
}

/// A count that was read before a first look: see [`super::DirectMemory::moment`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochSnapshot(u64);

impl WriteEpoch {
    /// Announces a writer that has all of its locks, and is about to write.
    #[inline]
    pub fn raise(&self) {
        self.raised.fetch_add(1, order(Site::StillnessEnded, Ordering::AcqRel));
        fence_of(Site::StillnessEndedBefore, Ordering::Release);
    }

    /// Returns the count before a reader's first look.
    #[inline(always)]
    pub fn moment(&self) -> EpochSnapshot {
        EpochSnapshot(self.raised.load(order(Site::StillnessSeen, Ordering::Acquire)))
    }

    /// Call it behind a reader's last look. Returns whether no writer has raised the count since.
    #[inline(always)]
    pub fn is_still(&self, EpochSnapshot(then): EpochSnapshot) -> bool {
        fence_of(Site::StillnessSeenAgain, Ordering::Acquire);
        self.raised.load(Ordering::Relaxed) == then
    }
}
