//! Keeps the memory of deleted records and discarded versions, until a thread uses the memory for another record.
//!
//! Invariant: memory in these lists was written, so it is not a block of zeros and does not return to the heap. The
//! memory of a discarded record is later used for another record of the same table, in the same group. A reader that
//! still follows an address of the old record detects that the record is gone. The reader detects it by the words
//! that led it to the record, or by words in the record. In a layout with one version, the slot has another VERSION
//! after the record was discarded, and readers check VERSION after they have read the record. If the memory of a
//! Motor record was reused, the head has another VERSION, or the value has another STAMP. If the memory of a LOTUS
//! record was reused, it has another transaction, key or checksum. If a late reader could still use the old record,
//! the record waits until no such reader runs. The record does not wait if the group has no other memory, or if many
//! records wait already. A joining copy of the group is filled while transactions write, and may be filled with old
//! bytes. So threads reuse no memory in a group that has a joining copy (`context::Context::allocate_record` of the
//! engine). A thread that ends leaves its records to its node ([`crate::memory::left_memory`]). If a node dies, the
//! records in its lists are lost, like the chunks of the dead node.

use crate::schema::TableId;
use std::collections::VecDeque;
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::clock::Nanos;

/// The maximum time that a read-only transaction may run.
pub const READER_LIFETIME: Nanos = Nanos(500_000_000);
/// The maximum difference between two clocks of the cluster during [`READER_LIFETIME`].
pub const LIFETIME_DRIFT: Nanos = Nanos(1_000_000);
/// The maximum number of records that a thread keeps for itself. The thread also leaves at most this number of
/// records to other threads in one step.
const BATCH: usize = 64;
/// The records that a thread keeps take at most the size of one chunk divided by this number. Without this limit,
/// some threads could have no memory while other threads keep many records.
const CHUNK_PART: usize = 4;

/// A discarded record that waits for reuse: the time when the last reader that could use the record has ended, and
/// the record's address.
pub type Waiting = (Nanos, Address);

/// The number of records of a table that a thread leaves to other threads in one step, if a chunk holds `per_chunk`
/// records.
pub fn batch_of(per_chunk: usize) -> usize {
    (per_chunk / CHUNK_PART).clamp(1, BATCH)
}

/// The discarded records of one table in one group, in the order in which they were put.
struct Ring {
    table: TableId,
    batch: usize,
    waiting: VecDeque<Waiting>,
}

/// The discarded records of one thread, or the records that threads have left behind.
#[derive(Default)]
pub struct RecordGc {
    /// For each group, the rings of its tables.
    groups: Vec<Vec<Ring>>,
    /// For each group, whether it has no free chunk. Chunks are never freed, so a full group stays full.
    full: Vec<bool>,
    /// The result of [`batch_of`] for each table, by the table's number.
    batches: Vec<usize>,
}

impl RecordGc {
    /// Creates empty lists, for a pool with this many groups.
    pub fn new(groups: usize) -> RecordGc {
        let (full, groups) = (vec![false; groups], (0..groups).map(|_| Vec::new()).collect());
        RecordGc { groups, full, batches: Vec::new() }
    }

    /// Does the same as [`RecordGc::new`] for a thread. `batches` contains the result of [`batch_of`] for each table.
    pub fn of_thread(groups: usize, batches: Vec<usize>) -> RecordGc {
        RecordGc { batches, ..RecordGc::new(groups) }
    }

    fn ring(&mut self, group: GroupId, table: TableId) -> &mut Ring {
        let rings = &mut self.groups[usize::from(group.0)];
        let known = rings.iter().position(|ring| ring.table == table);
        let index = known.unwrap_or_else(|| {
            let batch = self.batches.get(usize::from(table.0)).copied().unwrap_or(BATCH);
            rings.push(Ring { table, batch, waiting: VecDeque::new() });
            rings.len() - 1
        });
        &mut rings[index]
    }

    /// Adds a record whose last reader has ended after `free_after`. The record waits behind all records that were
    /// put earlier, even if its readers end sooner. Returns true if the caller should now call [`RecordGc::surplus`].
    #[inline]
    pub fn put(&mut self, free_after: Nanos, record: Address, table: TableId) -> bool {
        let ring = self.ring(record.group(), table);
        ring.waiting.push_back((free_after, record));
        ring.waiting.len().is_multiple_of(ring.batch)
    }

    /// Takes the record that has waited longest, if one of three conditions holds. The conditions are: no reader can
    /// use the record any more, the group has no other memory, or more than `enough` records wait.
    #[inline]
    pub fn take(
        &mut self,
        now: Nanos,
        (group, table): (GroupId, TableId),
        enough: usize,
    ) -> Option<Address> {
        let is_full = self.full[usize::from(group.0)];
        let rings = &mut self.groups[usize::from(group.0)];
        let ring = &mut rings.iter_mut().find(|ring| ring.table == table)?.waiting;
        let &(free_after, record) = ring.front()?;
        (is_full || free_after < now || ring.len() > enough).then(|| {
            ring.pop_front();
            record
        })
    }

    /// Takes the records that a thread does not need for itself. If the group is full, it takes all records. If many
    /// records wait, it takes some of the records that have waited longest, even if readers may still use them.
    pub fn surplus(&mut self, group: GroupId, table: TableId) -> Vec<Waiting> {
        let is_full = self.full[usize::from(group.0)];
        let &mut Ring { ref mut waiting, batch, .. } = self.ring(group, table);
        match waiting.len() {
            _ if is_full => waiting.drain(..).collect(),
            len if len >= 2 * batch => waiting.drain(..batch).collect(),
            _ => Vec::new(),
        }
    }

    /// Adds a record that may be used immediately, in front of the waiting records.
    pub fn put_ready(&mut self, record: Address, table: TableId) {
        self.ring(record.group(), table).waiting.push_front((Nanos(0), record));
    }

    /// Takes up to `batch` records that [`RecordGc::take`] allows now. Records that have waited longest come first.
    pub fn some(
        &mut self,
        now: Nanos,
        of: (GroupId, TableId),
        (enough, batch): (usize, usize),
    ) -> Vec<Address> {
        std::iter::from_fn(|| self.take(now, of, enough)).take(batch).collect()
    }

    /// Notes that a group has no free chunk. From now on, [`RecordGc::take`] returns records of this group even if
    /// readers may still use them.
    pub fn note_full(&mut self, group: GroupId) {
        self.full[usize::from(group.0)] = true;
    }

    /// Whether a caller has noted that the group has no free chunk.
    pub fn is_full(&self, group: GroupId) -> bool {
        self.full[usize::from(group.0)]
    }

    /// Adds all records of another instance to this one.
    pub fn take_over(&mut self, mut other: RecordGc) {
        for group in 0..other.groups.len() {
            for ring in std::mem::take(&mut other.groups[group]) {
                self.ring(GroupId(group as u16), ring.table).waiting.extend(ring.waiting);
            }
        }
    }

    /// The number of records in these lists.
    pub fn waiting(&self) -> usize {
        self.groups.iter().flatten().map(|ring| ring.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: TableId = TableId(3);
    const MANY: usize = usize::MAX;

    #[test]
    fn a_record_is_reused_after_its_time_or_if_no_other_is_free() {
        let (one, two) = (Address::new(GroupId(1), 4096), Address::new(GroupId(1), 8192));
        let mut gc = RecordGc::new(2);
        gc.put(Nanos(10), one, TABLE);
        gc.put(Nanos(20), two, TABLE);
        assert_eq!(gc.take(Nanos(10), (GroupId(1), TABLE), MANY), None);
        assert_eq!(gc.take(Nanos(11), (GroupId(0), TABLE), MANY), None);
        assert_eq!(gc.take(Nanos(11), (GroupId(1), TableId(4)), MANY), None);
        assert_eq!(gc.take(Nanos(11), (GroupId(1), TABLE), MANY), Some(one));
        assert_eq!((gc.take(Nanos(11), (GroupId(1), TABLE), MANY), gc.waiting()), (None, 1));
        gc.note_full(GroupId(0));
        assert_eq!(gc.take(Nanos(11), (GroupId(1), TABLE), MANY), None);
        gc.note_full(GroupId(1));
        assert_eq!(gc.take(Nanos(11), (GroupId(1), TABLE), MANY), Some(two));
        assert_eq!((gc.take(Nanos(99), (GroupId(1), TABLE), MANY), gc.waiting()), (None, 0));
    }

    #[test]
    fn freed_records_come_back_in_order() {
        let record = |offset| Address::new(GroupId(0), offset);
        let mut gc = RecordGc::new(1);
        gc.put(Nanos(30), record(64), TABLE);
        gc.put(Nanos(5), record(128), TABLE);
        assert_eq!(gc.take(Nanos(10), (GroupId(0), TABLE), MANY), None);
        assert_eq!(gc.take(Nanos(31), (GroupId(0), TABLE), MANY), Some(record(64)));
        assert_eq!(gc.take(Nanos(31), (GroupId(0), TABLE), MANY), Some(record(128)));
    }

    #[test]
    fn a_thread_keeps_few_large_records() {
        assert_eq!([0, 1, 7, 64, 255, 4096].map(batch_of), [1, 1, 1, 16, 63, 64]);
        let group = GroupId(0);
        let mut gc = RecordGc::of_thread(1, vec![1, 1, 1, 16]);
        let has_many = |at: u64| gc.put(Nanos(0), Address::new(group, 64 * at), TABLE);
        assert_eq!((1..=32).map(has_many).filter(|&it| it).count(), 2);
        assert_eq!(gc.surplus(group, TABLE).len(), 16);
        assert!(gc.surplus(group, TABLE).is_empty());
    }

    #[test]
    fn a_thread_keeps_the_memory_it_needs_and_leaves_all_of_it() {
        let group = GroupId(0);
        let mut gc = RecordGc::new(1);
        let put = |gc: &mut RecordGc, from: u64, count: usize| {
            for at in from..from + count as u64 {
                gc.put(Nanos(at), Address::new(group, 64 * (at + 1)), TABLE);
            }
        };
        put(&mut gc, 0, 2 * BATCH - 1);
        assert!(gc.surplus(group, TABLE).is_empty());
        put(&mut gc, 1000, 2);
        assert_eq!(gc.surplus(group, TABLE).len(), BATCH, "others see to it that they wait");
        gc.note_full(group);
        let mut all = RecordGc::new(1);
        for (free_after, record) in gc.surplus(group, TABLE) {
            all.put(free_after, record, TABLE);
        }
        assert_eq!((gc.waiting(), all.waiting()), (0, BATCH + 1));
        assert!(
            all.some(Nanos(0), (group, TABLE), (MANY, BATCH)).is_empty(),
            "their time has not come"
        );
        assert_eq!(all.some(Nanos(1 << 20), (group, TABLE), (MANY, BATCH)).len(), BATCH);
        put(&mut gc, 0, 3);
        assert_eq!(all.some(Nanos(0), (group, TABLE), (0, BATCH)).len(), 1, "whatever its time");
        all.take_over(gc);
        assert_eq!(all.take(Nanos(0), (group, TABLE), 2), Some(Address::new(group, 64)));
        assert_eq!(all.take(Nanos(0), (group, TABLE), 2), None);
        put(&mut all, 3, 1);
        assert_eq!(all.waiting(), 3);
        all.put_ready(Address::new(group, 4096), TABLE);
        assert_eq!(all.take(Nanos(1), (group, TABLE), MANY), Some(Address::new(group, 4096)));
    }
}
