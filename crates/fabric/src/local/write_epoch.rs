//! A counter by which a thread detects whether another thread began to write while the first thread read near memory.
//! Writers increase the counter, and readers compare it.
//!
//! Invariant: a writer increases the counter after it has taken its locks and before it writes under these locks.
//! Suppose that the counter has the same value before and after a reader's reads. In this case, the reader has seen
//! no value of a writer that increased the counter after the reader's first reading. For a writer that increased the
//! counter before, the reader sees the writer's locks, or the values that this writer and later writers wrote under
//! them.
//!
//! The method is that of a sequence lock, with one counter for all records (Lameter, "Effective synchronization on
//! Linux/NUMA systems", 2005). A reader needs two loads of a line that each writer changes. The counter lies in the
//! memory of one process, and only threads of this process access near memory by loads. Another process that maps the
//! nodes' memory ([`super::Backing::Shared`]) and writes there must not rely on this counter.

use super::sync::{AtomicU64, Ordering, Site, fence_of, order};

/// The counter of writers. See the module's documentation.
#[derive(Default)]
pub struct WriteEpoch {
    raised: crossbeam_utils::CachePadded<AtomicU64>,
}

/// The value of the counter before a reader's first read: see [`super::DirectMemory::moment`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochSnapshot(u64);

impl WriteEpoch {
    /// Announces a writer that has all its locks and will now write.
    #[inline]
    pub fn raise(&self) {
        self.raised.fetch_add(1, order(Site::StillnessEnded, Ordering::AcqRel));
        fence_of(Site::StillnessEndedBefore, Ordering::Release);
    }

    /// Returns the value of the counter of writers. A reader calls this function before its first read.
    #[inline(always)]
    pub fn moment(&self) -> EpochSnapshot {
        EpochSnapshot(self.raised.load(order(Site::StillnessSeen, Ordering::Acquire)))
    }

    /// Returns whether no writer has increased the counter since `then`. A reader calls this function after its last
    /// read.
    #[inline(always)]
    pub fn is_still(&self, EpochSnapshot(then): EpochSnapshot) -> bool {
        fence_of(Site::StillnessSeenAgain, Ordering::Acquire);
        self.raised.load(Ordering::Relaxed) == then
    }
}
