//! Pools of linked lines: one of single lines, one of pairs of lines.
//!
//! Invariant: a line is in the pool, or belongs to one bin, or to one thread that is about to link it. Insertions take
//! no new line at or above the limit. So the lines above the limit are there for the growth that fills the index.
//!
//! The free lines form a stack (Treiber, "Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986). A free
//! line's first word has the number of the next one. The head carries a counter against the return of an old head.

use std::ptr;

use crate::bin::Line;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Lines of an index, in groups of one or of two neighbours.
pub(crate) struct Lines {
    first: *const Line,
    /// Lines in a group.
    group: u32,
    total: u32,
    /// Insertions take only new groups below this number. The rest is kept for the growth that fills this index.
    limit: AtomicU32,
    /// The groups that were never used begin here.
    fresh: AtomicU32,
    /// A counter in the high half, the number of the first free group in the low half; 0 is none.
    free: AtomicU64,
}

/// The purpose of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// An insertion, which can cause growth if no line is left.
    Insertion,
    /// The growth that fills this index, for which lines are kept.
    Growth,
}

impl Lines {
    /// Creates a pool of groups that lie at `first`, of which insertions may use all but `kept`.
    pub(crate) fn new(first: *const Line, group: u32, total: u32, kept: u32) -> Self {
        assert!(kept <= total, "more lines are kept than exist");
        Self {
            first,
            group,
            total,
            limit: AtomicU32::new(total - kept),
            fresh: AtomicU32::new(0),
            free: AtomicU64::new(0),
        }
    }

    /// Returns the number of groups.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Returns the number of groups in use, while no other thread uses the pool.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u32 {
        let mut free = 0;
        let mut next = self.free.load(Ordering::Acquire) as u32;
        while next != 0 {
            free += 1;
            next = self.next_of(next).load(Ordering::Acquire).addr() as u32;
        }
        self.fresh.load(Ordering::Relaxed) - free
    }

    /// Lets insertions use all groups.
    pub(crate) fn release_kept(&self) {
        self.limit.store(self.total, Ordering::Release);
    }

    /// Returns the address of the first line of a group. Numbers begin with 1.
    #[inline]
    pub(crate) fn line(&self, number: u32) -> *const Line {
        debug_assert!(number >= 1 && number <= self.total);
        self.first.wrapping_add((number as usize - 1) * self.group as usize)
    }

    /// Returns the address of the first line of a group, or another address if the number is 0. For prefetches of single
    /// lines.
    #[inline(always)]
    pub(crate) fn line_or(&self, number: u32, other: *const Line) -> *const Line {
        let line = self.first.wrapping_add((number as usize).wrapping_sub(1));
        std::hint::select_unpredictable(number == 0, other, line)
    }

    /// Takes a group, or returns nothing if the limit is reached.
    pub(crate) fn take(&self, purpose: Purpose) -> Option<u32> {
        loop {
            if let Some(number) = self.pop() {
                return Some(number);
            }
            let limit = match purpose {
                Purpose::Insertion => self.limit.load(Ordering::Acquire),
                Purpose::Growth => self.total,
            };
            let fresh = self.fresh.load(Ordering::Relaxed);
            if fresh >= limit {
                return None;
            }
            let next = fresh + 1;
            if self.fresh.compare_exchange(fresh, next, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                return Some(next);
            }
        }
    }

    /// Returns a group that no bin links.
    pub(crate) fn give(&self, number: u32) {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            self.next_of(number)
                .store(ptr::without_provenance_mut(head as u32 as usize), Ordering::Release);
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(number);
            match self.free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
    }

    fn pop(&self) -> Option<u32> {
        let mut head = self.free.load(Ordering::Acquire);
        loop {
            let number = head as u32;
            if number == 0 {
                return None;
            }
            // The word of a line of a retired index may be anything (`memory.rs`).
            let next = self.next_of(number).load(Ordering::Acquire).addr() as u64;
            let next = if next <= u64::from(self.total) { next } else { 0 };
            let new = (head >> 32).wrapping_add(1) << 32 | u64::from(next as u32);
            match self.free.compare_exchange_weak(head, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(number),
                Err(now) => head = now,
            }
        }
    }

    fn next_of(&self, number: u32) -> &crate::sync::AtomicPtr<()> {
        // SAFETY: the number is one of this pool's, so the line lies in the index's memory, which stays valid as long
        // as the index. All accesses to a line are atomic.
        unsafe { &(*self.line(number)).slots[0].key }
    }
}
