//! A node's lease word, and what a clock makes of it.
//!
//! ```text
//! 63 CHANGE 48 | 47 READ, ns 24 | 23 WAIT, ns 0
//! ```
//! Invariants: one word, so that whoever loads it has both lengths of one change. CHANGE counts up, so that a length that
//! comes back is not taken for one that stayed; it starts anew after 65,536 changes, which no lease outlasts. Every rounding
//! makes a lease shorter and a wait longer.

use tarn_fabric::clock::Nanos;
use tarn_fabric::window::Drift;

const LENGTH_BITS: u32 = 24;

/// The longest lease.
pub const LEASE_NS_MAX: u32 = (1 << LENGTH_BITS) - 1;

/// For how long readers trust what they read, for how long writers wait, and since which change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LeaseWord(u64);

impl LeaseWord {
    /// No reader trusts, no writer waits: everything is validated.
    pub const NONE: LeaseWord = LeaseWord(0);

    /// Of a change.
    ///
    /// # Panics
    /// If readers would trust for longer than writers wait, or that is longer than [`LEASE_NS_MAX`]: our bug.
    pub fn new(change: u16, read_ns: u32, wait_ns: u32) -> LeaseWord {
        assert!(read_ns <= wait_ns);
        assert!(wait_ns <= LEASE_NS_MAX);
        let lengths = u64::from(read_ns) << LENGTH_BITS | u64::from(wait_ns);
        LeaseWord(u64::from(change) << (2 * LENGTH_BITS) | lengths)
    }

    /// As it is stored.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }

    /// From where it is stored.
    #[inline]
    pub fn from_word(word: u64) -> LeaseWord {
        LeaseWord(word)
    }

    /// Since which change.
    #[inline]
    pub fn change(self) -> u16 {
        (self.0 >> (2 * LENGTH_BITS)) as u16
    }

    /// For how long a reader trusts what it read.
    #[inline]
    pub fn read_ns(self) -> u32 {
        (self.0 >> LENGTH_BITS) as u32 & LEASE_NS_MAX
    }

    /// For how long a writer waits.
    #[inline]
    pub fn wait_ns(self) -> u32 {
        self.0 as u32 & LEASE_NS_MAX
    }

    /// What a reader's window is held against.
    #[inline]
    pub fn lease(self) -> Nanos {
        Nanos(self.read_ns().into())
    }

    /// What a writer waits out.
    #[inline]
    pub fn wait(self) -> Nanos {
        Nanos(self.wait_ns().into())
    }

    /// Whether its length is not on its way to another.
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

/// Whether a reader whose word was `at_start` before its first time and is `at_end` after its second is in lease: then nobody
/// has written what it read unlocked, in between.
#[inline]
pub fn in_lease(
    drift: Drift,
    (at_start, at_end): (LeaseWord, LeaseWord),
    (first, second): (Nanos, Nanos),
) -> bool {
    at_start == at_end && drift.is_shorter(second - first, at_start.lease())
}

/// From when on, by the same clock, a writer may post data whose last lock was acknowledged before that clock showed
/// `locked`; its word was loaded after that.
#[inline]
pub fn may_write_at(drift: Drift, word: LeaseWord, locked: Nanos) -> Nanos {
    drift.end_of(locked, word.wait())
}
