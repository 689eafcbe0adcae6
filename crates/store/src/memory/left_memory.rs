//! Memory that threads of a compute node have left behind, for the node's other threads.
//!
//! Invariant: the memory in these lists has no owner. These lists contain unused parts of chunks, blocks of zeros to
//! which no address ever led, and discarded records ([`crate::memory::record_gc`]). A thread takes memory from these
//! lists before it takes a new chunk. A thread puts its memory into these lists when it ends, or when it has more
//! than it needs. A thread never uses these lists during an ordinary transaction. Nodes of one process may share
//! these lists (`context::ComputeNode::share_memory` of the engine). The lists are lost when the process ends.

use crate::memory::heap::{Heap, Rest, Zeros};
use crate::memory::record_gc::{RecordGc, Waiting};
use crate::schema::TableId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::clock::Nanos;

/// Memory of zeros that a thread has found in the lists.
pub enum Found {
    /// A block of the requested size.
    Block(Address),
    /// The unused part of a chunk, from which the thread can cut a block of the requested size.
    Rest(Rest),
}

#[derive(Default)]
struct Lists {
    rests: Vec<Rest>,
    zeros: Vec<Zeros>,
    records: RecordGc,
}

/// The lists of memory that threads of a compute node have left behind.
pub struct LeftMemory {
    lists: Mutex<Lists>,
    /// Whether any thread of the node has found any replica group full.
    has_full: AtomicBool,
}

impl LeftMemory {
    /// Creates empty lists, for a pool with this many groups.
    pub fn new(groups: usize) -> LeftMemory {
        let lists = Lists { records: RecordGc::new(groups), ..Lists::default() };
        LeftMemory { lists: Mutex::new(lists), has_full: AtomicBool::new(false) }
    }

    /// Locks the lists. If a thread panicked while it held this lock, at most one block of memory is lost.
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

    /// Takes over the unused part of a chunk, because it is too small for the thread that owned it.
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

    /// Takes memory of zeros for a block of `bytes` bytes, if the lists contain such memory.
    pub fn take_zeros(&self, group: GroupId, bytes: u32) -> Option<Found> {
        let mut lists = self.lists();
        let Lists { rests, zeros, .. } = &mut *lists;
        if let Some(at) = zeros.iter().position(|it| (it.0, it.1) == (group, bytes)) {
            return Some(Found::Block(zeros.swap_remove(at).2));
        }
        let at = rests.iter().position(|rest| rest.group() == group && rest.has(bytes))?;
        Some(Found::Rest(rests.swap_remove(at)))
    }

    /// Takes up to `batch` records of a table whose waiting time is over. If more than `enough` records wait, or if
    /// the group is full, records are taken before their waiting time is over.
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
            // The flag only makes the other threads check sooner. So the flag need not order any other memory
            // accesses.
            self.has_full.store(true, Ordering::Relaxed);
        }
        lists.records.some(now, (group, table), (enough, batch))
    }

    /// Whether a thread has found any group full. If the answer is yes, each thread should check the groups that it
    /// uses.
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
