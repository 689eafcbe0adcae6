//! The lock table's view for others than holders: caches of versions, judges, explorers.
//!
//! Invariant: a version is kept under three conditions, and while the bucket's bit is held. No transaction writes the
//! lock. None wrote it when the version was read. No write of its bucket was granted since. The next write grant drops
//! the version under the same bit. (Hu et al., "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks",
//! drops it before the grant, so a reader in between can bring it back.) The other functions only look.

use super::bucket::{self, WRITER, fingerprint, is_of};
use super::sync::Ordering;
use super::table::{Bits, Found, LockTable, Place};

impl LockTable {
    /// How many write grants a lock's bucket has seen, modulo 2^32.
    pub fn count(&self, hash: u64) -> u32 {
        bucket::count(self.bucket(self.home(hash))[0].load(Ordering::Acquire))
    }

    /// The count of write grants, if no transaction writes the lock. Ask for it before a read whose result
    /// [`LockTable::keep`] shall keep. A read beside a writer may return the state before the write. The writer may be
    /// gone, without another grant, when the result is kept. (The explorer found that: `half-commit`.)
    pub fn unwritten(&self, hash: u64) -> Option<u32> {
        let count = self.count(hash);
        self.keep(hash, count, || ()).then_some(count)
    }

    /// Runs `act` with the bucket's bit, if no transaction writes the lock and no write of its bucket was granted since
    /// [`LockTable::unwritten`] returned `count`. Returns whether it ran. The next write grant drops the versions that
    /// `act` keeps.
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

    /// The number of slots in use. It looks at the whole table: it is for judges of a node at rest.
    pub fn held(&self) -> usize {
        let buckets = 0..self.homes + self.spills;
        let used = |number| {
            let slots = &self.bucket(number)[1..];
            slots.iter().filter(|slot| slot.load(Ordering::Acquire) != 0).count()
        };
        buckets.map(used).sum()
    }

    /// A digest of all that is held, wherever its slot is, for code that tells states apart.
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

    /// Whether a place has this lock's slot.
    pub fn is_at(&self, place: Place, hash: u64) -> bool {
        let word = self.slot(place).load(Ordering::Acquire);
        word != 0 && is_of(word, fingerprint(hash))
    }
}
