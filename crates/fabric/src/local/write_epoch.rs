//! Whether anybody has begun to write while a thread looked at near memory: a count that writers raise, and readers compare.
//!
//! Invariant: a writer raises the count behind whatever it has locked, and before whatever it writes under those locks. So if the
//! count is the same behind a reader's looks as before them, nothing that he has seen was written by whoever raised it in between; and of whoever had raised it
//! before, he finds the locks, or what was written under them and all that came behind.
//!
//! The sequence lock's idea, with one count for all (Lameter, "Effective synchronization on Linux/NUMA systems", 2005): a reader in one
//! process pays two loads of a line that changes as often as anybody writes. It is memory of the process, as the threads are that
//! reach these nodes by loads: another process that maps the nodes' memory ([`super::Backing::Shared`]) and writes there must not count on it.

use super::sync::{AtomicU64, Ordering, Site, fence_of, order};

/// See the module's text.
#[derive(Default)]
pub struct WriteEpoch {
    raised: crossbeam_utils::CachePadded<AtomicU64>,
}

/// A count that was read before a first look: see [`super::DirectMemory::moment`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochSnapshot(u64);

impl WriteEpoch {
    /// A writer has all of its locks, and is about to write.
    #[inline]
    pub fn raise(&self) {
        self.raised.fetch_add(1, order(Site::StillnessEnded, Ordering::AcqRel));
        fence_of(Site::StillnessEndedBefore, Ordering::Release);
    }

    /// Before a reader's first look.
    #[inline(always)]
    pub fn moment(&self) -> EpochSnapshot {
        EpochSnapshot(self.raised.load(order(Site::StillnessSeen, Ordering::Acquire)))
    }

    /// Behind a reader's last look: whether nobody has begun to write since.
    #[inline(always)]
    pub fn is_still(&self, EpochSnapshot(then): EpochSnapshot) -> bool {
        fence_of(Site::StillnessSeenAgain, Ordering::Acquire);
        self.raised.load(Ordering::Relaxed) == then
    }
}
