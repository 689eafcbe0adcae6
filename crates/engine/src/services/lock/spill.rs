//! Spill buckets: additional slots for a lock bucket whose own slots are all in use.
//!
//! Invariants: a spill bucket is free, or chained behind one home bucket. Threads chain a spill bucket, unchain it,
//! and change its slots only under the bit of its home bucket. When the last slot of a spill bucket is released, the
//! thread unchains the spill bucket, so no spill bucket is lost. The list of free spill buckets is a stack whose head
//! is one word. The word of the stack's head includes a count of changes. The count detects a head that has returned
//! to an earlier value. In the list, a bucket that was never used is followed by the bucket with the next number. So
//! no code touches the memory of a bucket before its first use.
//!
//! Without spill buckets, a transaction that locks more keys of one bucket than the bucket has slots would be refused
//! every time.

use super::bucket::{self, BIT, WORDS};
use super::name::LockMode;
use super::sync::{AtomicU64, Ordering};
use super::table::{LockTable, Place};

impl LockTable {
    /// Releases a lock in a spill bucket. The function takes the bit of the home bucket, so that it can free an empty
    /// spill bucket.
    #[cold]
    pub(super) fn release_spilled(&self, place: Place, hash: u64, mode: LockMode) {
        let home = self.home(hash);
        let mut header = self.take_at_last(home);
        match mode {
            LockMode::Write => self.slot(place).store(0, Ordering::Release),
            LockMode::Read => self.leave(place),
        }
        let number = place.0 / WORDS as u32;
        let is_free = |slot: &AtomicU64| slot.load(Ordering::Relaxed) == 0;
        if self.bucket(number)[1..].iter().all(is_free) {
            self.unlink(&mut header, number - self.homes);
        }
        self.give(home, header);
    }

    /// Chains a free spill bucket behind the bucket with this header, and returns its first slot.
    #[cold]
    pub(super) fn spill(&self, header: &mut u64) -> Option<Place> {
        let mut free = self.free.load(Ordering::Acquire);
        let spill = loop {
            let spill = free as u32;
            if spill == self.spills {
                return None;
            }
            // In the free list, a spill bucket that was never used is followed by the bucket with the next number.
            let its = self.bucket(self.homes + spill)[0].load(Ordering::Relaxed);
            let next = u64::from(bucket::spill(its).unwrap_or(spill + 1));
            match self.change_free(free, next) {
                Ok(()) => break spill,
                Err(now) => free = now,
            }
        };
        let number = self.homes + spill;
        let behind = bucket::with_spill(0, bucket::spill(*header));
        self.bucket(number)[0].store(behind, Ordering::Relaxed);
        *header = bucket::with_spill(*header, Some(spill));
        Some(Place(number * WORDS as u32 + 1))
    }

    fn change_free(&self, free: u64, first: u64) -> Result<(), u64> {
        let changes = (free >> 32).wrapping_add(1) << 32;
        let (won, lost) = (Ordering::AcqRel, Ordering::Acquire);
        self.free.compare_exchange(free, changes | first, won, lost).map(|_| ())
    }

    /// Removes an empty spill bucket from its chain, and adds it to the free list.
    fn unlink(&self, header: &mut u64, spill: u32) {
        let its = bucket::spill(self.bucket(self.homes + spill)[0].load(Ordering::Relaxed));
        let mut at = bucket::spill(*header).expect("the bucket is in the chain");
        if at == spill {
            *header = bucket::with_spill(*header, its);
        } else {
            loop {
                let before = &self.bucket(self.homes + at)[0];
                let word = before.load(Ordering::Relaxed);
                let next = bucket::spill(word).expect("the bucket is in the chain");
                if next == spill {
                    before.store(bucket::with_spill(word, its), Ordering::Relaxed);
                    break;
                }
                at = next;
            }
        }
        let mut free = self.free.load(Ordering::Acquire);
        loop {
            let behind = bucket::with_spill(0, Some(free as u32));
            self.bucket(self.homes + spill)[0].store(behind, Ordering::Relaxed);
            match self.change_free(free, u64::from(spill)) {
                Ok(()) => return,
                Err(now) => free = now,
            }
        }
    }

    /// The number of spill buckets in use.
    pub fn spilled(&self) -> usize {
        let followed = |header: u64| bucket::spill(header & !BIT).map(|it| self.homes + it);
        let behind = |home: u32| {
            let next = |number: &u32| followed(self.bucket(*number)[0].load(Ordering::Acquire));
            std::iter::successors(Some(home), next).count() - 1
        };
        (0..self.homes).map(behind).sum()
    }
}
