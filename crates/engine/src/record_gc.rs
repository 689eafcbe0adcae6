//! Memory of versions that were discarded, until it holds another record.
//!
//! Invariant: what was put here was written, so it is no block of zeros and does not go back to the heap: it becomes a
//! record again, of the same size in the same group. Not before its time, while there is other memory: a reader
//! that has found its cell may be on the way. Before its time if there is none: then such a reader finds another
//! transaction, key or checksum in the record, and calls itself too old. Whoever dies takes with it what it holds
//! here, as it takes its chunks.

use std::collections::VecDeque;
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::clock::Nanos;

/// The longest that a transaction that only reads may run.
pub const READER_LIFETIME: Nanos = Nanos(500_000_000);
/// By how much two clocks of the cluster may differ in how long they take that to be.
pub const LIFETIME_DRIFT: Nanos = Nanos(1_000_000);

/// Blocks of one size in one group, in the order in which they were put.
struct Ring {
    bytes: u32,
    waiting: VecDeque<(Nanos, Address)>,
}

/// One thread's discarded records.
pub struct RecordGc {
    /// Of each group, its few sizes.
    groups: Vec<Vec<Ring>>,
    /// Groups without a free chunk: chunks are never given back.
    full: Vec<bool>,
}

impl RecordGc {
    /// Of a pool with so many groups.
    pub fn new(groups: usize) -> RecordGc {
        let (full, groups) = (vec![false; groups], (0..groups).map(|_| Vec::new()).collect());
        RecordGc { groups, full }
    }

    /// Takes a block whose last reader is gone after `free_after`. It waits behind those put before it, whatever
    /// their time.
    pub fn put(&mut self, free_after: Nanos, block: Address, bytes: u32) {
        let rings = &mut self.groups[usize::from(block.group().0)];
        let known = rings.iter().position(|ring| ring.bytes == bytes);
        let index = known.unwrap_or_else(|| {
            rings.push(Ring { bytes, waiting: VecDeque::new() });
            rings.len() - 1
        });
        rings[index].waiting.push_back((free_after, block));
    }

    /// The block that has waited longest, if nobody reads it any more or there is no other memory.
    #[inline]
    pub fn take(&mut self, now: Nanos, group: GroupId, bytes: u32) -> Option<Address> {
        let is_full = self.full[usize::from(group.0)];
        let rings = &mut self.groups[usize::from(group.0)];
        let ring = &mut rings.iter_mut().find(|ring| ring.bytes == bytes)?.waiting;
        let &(free_after, block) = ring.front()?;
        (is_full || free_after < now).then(|| {
            ring.pop_front();
            block
        })
    }

    /// There is no other memory in a group: from now on nothing waits there for its time.
    pub fn note_full(&mut self, group: GroupId) {
        self.full[usize::from(group.0)] = true;
    }

    /// How many blocks are here.
    pub fn waiting(&self) -> usize {
        self.groups.iter().flatten().map(|ring| ring.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_after_its_time_or_if_there_is_nothing_else() {
        let (one, two) = (Address::new(GroupId(1), 4096), Address::new(GroupId(1), 8192));
        let mut gc = RecordGc::new(2);
        gc.put(Nanos(10), one, 64);
        gc.put(Nanos(20), two, 64);
        assert_eq!(gc.take(Nanos(10), GroupId(1), 64), None);
        assert_eq!(gc.take(Nanos(11), GroupId(0), 64), None);
        assert_eq!(gc.take(Nanos(11), GroupId(1), 128), None);
        assert_eq!(gc.take(Nanos(11), GroupId(1), 64), Some(one));
        assert_eq!((gc.take(Nanos(11), GroupId(1), 64), gc.waiting()), (None, 1));
        gc.note_full(GroupId(0));
        assert_eq!(gc.take(Nanos(11), GroupId(1), 64), None);
        gc.note_full(GroupId(1));
        assert_eq!(gc.take(Nanos(11), GroupId(1), 64), Some(two));
        assert_eq!((gc.take(Nanos(99), GroupId(1), 64), gc.waiting()), (None, 0));
    }

    #[test]
    fn nothing_overtakes_what_was_put_before() {
        let block = |offset| Address::new(GroupId(0), offset);
        let mut gc = RecordGc::new(1);
        gc.put(Nanos(30), block(64), 64);
        gc.put(Nanos(5), block(128), 64);
        assert_eq!(gc.take(Nanos(10), GroupId(0), 64), None);
        assert_eq!(gc.take(Nanos(31), GroupId(0), 64), Some(block(64)));
        assert_eq!(gc.take(Nanos(31), GroupId(0), 64), Some(block(128)));
    }
}
