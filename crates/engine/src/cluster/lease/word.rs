//! A compute node's lease word, and the two rules that compare it with a clock.
//!
//! ```text
//! 63 CHANGE 48 | 47 READ, ns 24 | 23 WAIT, ns 0
//! ```
//! Invariants: the lease is one word, so one load returns both lengths of the same change. The field CHANGE counts
//! up. Suppose that a length was changed and changed back. CHANGE then distinguishes this length from a length that
//! never changed. CHANGE starts again at 0 after 65,536 changes; no lease lasts that long. Every rounding makes a
//! lease shorter and a wait longer.

use tarn_fabric::clock::Nanos;
use tarn_fabric::window::Drift;

const LENGTH_BITS: u32 = 24;

/// The longest lease, in nanoseconds.
pub const LEASE_NS_MAX: u32 = (1 << LENGTH_BITS) - 1;

/// A lease word: how long readers trust their reads, how long writers wait, and the number of the change that set
/// these two lengths.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LeaseWord(u64);

impl LeaseWord {
    /// The word without leases: no reader trusts its reads, no writer waits, and every read is validated.
    pub const NONE: LeaseWord = LeaseWord(0);

    /// Packs the number of a change with the two lengths that the change sets.
    ///
    /// # Panics
    /// If readers would trust their reads for longer than writers wait, or if a length exceeds [`LEASE_NS_MAX`].
    /// Either would be a bug of the caller.
    pub fn new(change: u16, read_ns: u32, wait_ns: u32) -> LeaseWord {
        assert!(read_ns <= wait_ns);
        assert!(wait_ns <= LEASE_NS_MAX);
        let lengths = u64::from(read_ns) << LENGTH_BITS | u64::from(wait_ns);
        LeaseWord(u64::from(change) << (2 * LENGTH_BITS) | lengths)
    }

    /// Returns the lease word as it is stored.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Converts a stored word to a lease word.
    #[inline]
    pub fn from_word(word: u64) -> LeaseWord {
        LeaseWord(word)
    }

    /// The number of the change that set these lengths.
    #[inline]
    pub fn change(self) -> u16 {
        (self.0 >> (2 * LENGTH_BITS)) as u16
    }

    /// The time for which a reader trusts its reads, in nanoseconds.
    #[inline]
    pub fn read_ns(self) -> u32 {
        (self.0 >> LENGTH_BITS) as u32 & LEASE_NS_MAX
    }

    /// The time for which a writer waits, in nanoseconds.
    #[inline]
    pub fn wait_ns(self) -> u32 {
        self.0 as u32 & LEASE_NS_MAX
    }

    /// The length of the lease. A reader's window must be shorter than this length.
    #[inline]
    pub fn lease(self) -> Nanos {
        Nanos(self.read_ns().into())
    }

    /// The time for which a writer waits.
    #[inline]
    pub fn wait(self) -> Nanos {
        Nanos(self.wait_ns().into())
    }

    /// Whether the lease length is settled: no change from one length to another is under way.
    #[inline]
    pub fn is_settled(self) -> bool {
        self.read_ns() == self.wait_ns()
    }
}

impl std::fmt::Debug for LeaseWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{} read {} wait {} ns", self.change(), self.read_ns(), self.wait_ns())
    }
}

/// Whether a reader is in lease. The reader loaded `at_start` before its first time, and `at_end` after its second
/// time. If the reader is in lease, no record that it read unlocked was written between these two times.
#[inline]
pub fn in_lease(
    drift: Drift,
    (at_start, at_end): (LeaseWord, LeaseWord),
    (first, second): (Nanos, Nanos),
) -> bool {
    at_start == at_end && drift.is_shorter(second - first, at_start.lease())
}

/// The earliest time at which a writer may post data, by the clock that showed `locked`. The writer's last lock was
/// acknowledged before the clock showed `locked`, and the writer loaded `word` after that.
#[inline]
pub fn may_write_at(drift: Drift, word: LeaseWord, locked: Nanos) -> Nanos {
    drift.end_of(locked, word.wait())
}
