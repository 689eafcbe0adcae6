//! Memory that threads of a compute node have left, for its other threads.
//!
//! Invariant: the memory here has no owner. It is rests of chunks and blocks of zeros, to which no address
//! ever led, and discarded records ([`crate::memory::record_gc`]). A thread asks here before it takes a new
//! chunk. It leaves its memory here when it ends, or when it has more than it needs, but never on the way of
//! an ordinary transaction. Nodes of one process may share this memory (`context::ComputeNode::share_memory`
//! of the engine). The memory here dies with the process.

use crate::memory::heap::{Heap, Rest, Zeros};
use crate::memory::record_gc::{RecordGc, Waiting};
use crate::schema::TableId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::clock::Nanos;

/// Memory of zeros that was found.
pub enum Found {
    /// A block of the size that was asked for.
    Block(Address),
    /// A rest that such a block can be cut from.
    Rest(Rest),
}

#[derive(Default)]
struct Lists {
    rests: Vec<Rest>,
    zeros: Vec<Zeros>,
    records: RecordGc,
}

/// See the module's text.
pub struct LeftMemory {
    lists: Mutex<Lists>,
    /// Whether a thread has found any group full.
    has_full: AtomicBool,
}

impl LeftMemory {
    /// Empty lists, for a pool with this many groups.
    pub fn new(groups: usize) -> LeftMemory {
        let lists = Lists { records: RecordGc::new(groups), ..Lists::default() };
        LeftMemory { lists: Mutex::new(lists), has_full: AtomicBool::new(false) }
    }

    /// The lists. A thread that panicked while it held them has lost a block at most.
    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the memory of a thread that ends.
    pub fn take_over(&self, heap: &mut Heap, records: RecordGc) {
        let (rests, zeros) = heap.leave();
        if rests.is_empty() && zeros.is_empty() && records.waiting() == 0 {
            return;
        }
        let mut lists = self.lists();
        lists.rests.extend(rests);
        lists.zeros.extend(zeros);
        lists.records.take_over(records);
    }

    /// Takes over a rest for which a thread has no use, because it needs larger blocks.
    pub fn put_rest(&self, rest: Rest) {
        self.lists().rests.push(rest);
    }

    /// Takes over records of a table that a thread does not need.
    pub fn put_records(&self, records: Vec<Waiting>, table: TableId) {
        let mut lists = self.lists();
        for (free_after, record) in records {
            lists.records.put(free_after, record, table);
        }
    }

    /// Zeros for a block, if there are any.
    pub fn take_zeros(&self, group: GroupId, bytes: u32) -> Option<Found> {
        let mut lists = self.lists();
        let Lists { rests, zeros, .. } = &mut *lists;
        if let Some(at) = zeros.iter().position(|it| (it.0, it.1) == (group, bytes)) {
            return Some(Found::Block(zeros.swap_remove(at).2));
        }
        let at = rests.iter().position(|rest| rest.group() == group && rest.has(bytes))?;
        Some(Found::Rest(rests.swap_remove(at)))
    }

    /// Takes up to `batch` records of a table whose time has come. If there are more than `enough`, or the
    /// group is full, their time does not matter.
    pub fn take_records(
        &self,
        now: Nanos,
        (group, table): (GroupId, TableId),
        (enough, batch): (usize, usize),
        is_full: bool,
    ) -> Vec<Address> {
        let mut lists = self.lists();
        if is_full {
            lists.records.note_full(group);
            // The flag hurries the other threads up, and orders nothing.
            self.has_full.store(true, Ordering::Relaxed);
        }
        lists.records.some(now, (group, table), (enough, batch))
    }

    /// Whether a thread has found any group full. If so, each thread asks about its own groups.
    #[inline]
    pub fn has_full(&self) -> bool {
        self.has_full.load(Ordering::Relaxed)
    }

    /// Whether a thread has found this group full.
    pub fn is_full(&self, group: GroupId) -> bool {
        self.lists().records.is_full(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_finds_memory_that_another_has_left() {
        let (group, table) = (GroupId(0), TableId(1));
        let left = LeftMemory::new(1);
        let mut heap = Heap::new(7, 1);
        assert!(heap.open(Address::new(group, 4096), 256).is_none());
        assert_eq!(heap.take(group, 64), Some(Address::new(group, 4096)));
        heap.give_back(Address::new(group, 4096), 64);
        let mut records = RecordGc::new(1);
        records.put(Nanos(5), Address::new(group, 64), table);
        left.take_over(&mut heap, records);
        assert_eq!(heap.take(group, 64), None, "it has nothing any more");
        let block = left.take_zeros(group, 64);
        assert!(matches!(block, Some(Found::Block(at)) if at.offset_bytes() == 4096));
        assert!(left.take_zeros(group, 256).is_none());
        let Some(Found::Rest(rest)) = left.take_zeros(group, 64) else { panic!("a rest") };
        assert!(heap.open_rest(rest).is_none() && left.take_zeros(group, 64).is_none());
        assert_eq!(heap.take(group, 192), Some(Address::new(group, 4096 + 64)));
        assert!(left.take_records(Nanos(5), (group, table), (9, 9), false).is_empty());
        assert_eq!(left.take_records(Nanos(0), (group, table), (9, 9), true).len(), 1);
    }
}
