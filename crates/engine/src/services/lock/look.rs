//! The lock table's functions for code that holds no lock: caches of versions, checkers, explorers.
//!
//! Invariant: the table allows code to store a version in a cache only under three conditions, and only while the
//! bucket's bit is held. First, no transaction holds the write lock. Second, no transaction held the write lock when
//! the version was read. Third, no write lock of the same bucket was granted since then. The next write grant drops
//! the version under the same bit. (Hu et al., "LOTUS: Optimizing Disaggregated Transactions with Disaggregated
//! Locks", drops the version before the grant, so a reader between the drop and the grant can store the version
//! again.) The other functions of this file only read the table.

use super::bucket::{self, WRITER, fingerprint, is_of};
use super::sync::Ordering;
use super::table::{Bits, Found, LockTable, Place};

impl LockTable {
    /// The number of write grants in a lock's bucket, modulo 2^32.
    pub fn count(&self, hash: u64) -> u32 {
        bucket::count(self.bucket(self.home(hash))[0].load(Ordering::Acquire))
    }

    /// The count of write grants of the lock's bucket, if no transaction holds the write lock. Code calls this
    /// function before a read whose result it stores by [`LockTable::keep`]. A read concurrent with a writer may
    /// return the state before the write. When the read's result is stored, that writer may have released its lock,
    /// and no other write lock may have been granted. (The explorer found this fault with the test `half-commit`.)
    pub fn unwritten(&self, hash: u64) -> Option<u32> {
        let count = self.count(hash);
        self.keep(hash, count, || ()).then_some(count)
    }

    /// Runs `act` under the bucket's bit, on two conditions. No transaction holds the write lock, and no write lock
    /// of the bucket was granted since [`LockTable::unwritten`] returned `count`. Returns whether `act` ran. The next
    /// write grant drops the versions that `act` stores.
    pub fn keep(&self, hash: u64, count: u32, act: impl FnOnce()) -> bool {
        let (home, print) = (self.home(hash), fingerprint(hash));
        let header = match self.bits {
            Bits::Alone | Bits::PlantedNoBit => self.bucket(home)[0].load(Ordering::Relaxed),
            Bits::Shared | Bits::PlantedTwoLoads => match self.take(home) {
                Some(header) => header,
                None => return false,
            },
        };
        let is_written = match self.find(home, header, print) {
            Found::Held(_, word) => bucket::holders(word) == WRITER,
            Found::Free(_) | Found::Full => false,
        };
        let may = !is_written && bucket::count(header) == count;
        if may {
            act();
        }
        self.give(home, header);
        may
    }

    /// The number of slots in use. This function reads the whole table, so only checkers of an idle node call it.
    pub fn held(&self) -> usize {
        let buckets = 0..self.homes + self.spills;
        let used = |number| {
            let slots = &self.bucket(number)[1..];
            slots.iter().filter(|slot| slot.load(Ordering::Acquire) != 0).count()
        };
        buckets.map(used).sum()
    }

    /// A digest of all held locks, independent of their slots, for code that compares states.
    pub fn digest(&self) -> u64 {
        let buckets = 0..self.homes + self.spills;
        let slots = buckets.flat_map(|number| &self.bucket(number)[1..]);
        let used = slots.map(|slot| slot.load(Ordering::Acquire)).filter(|word| *word != 0);
        used.map(tarn_fabric::rng::mix).fold(0, u64::wrapping_add)
    }

    /// A digest of the counts of write grants of all buckets.
    pub fn counts_digest(&self) -> u64 {
        let count = |home| u64::from(bucket::count(self.bucket(home)[0].load(Ordering::Acquire)));
        let counted = (0..self.homes).filter(|home| count(*home) > 0);
        let word = |home| tarn_fabric::rng::mix(u64::from(home) << 32 | count(home));
        counted.map(word).fold(0, u64::wrapping_add)
    }

    /// Whether the slot at this place belongs to the lock with this hash.
    pub fn is_at(&self, place: Place, hash: u64) -> bool {
        let word = self.slot(place).load(Ordering::Acquire);
        word != 0 && is_of(word, fingerprint(hash))
    }
}
