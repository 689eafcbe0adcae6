//! A transaction's state in ordered indexes. The state consists of the scans, the leaves that were seen or locked,
//! and the index entries that the transaction adds and removes.
//!
//! Invariant: the state lists each leaf only once, with the version that the transaction saw first. A later version
//! of the leaf would show a tree that differs from the tree that the caller has seen. The vectors keep their capacity
//! from transaction to transaction. A transaction without scans on tables without indexes does not use this state at
//! all.

use crate::transaction::working_set::{Entry, FEW, NO_LOCK, Progress};
use std::collections::BTreeMap;
use tarn_fabric::address::Address;
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::Mode;
use tarn_store::index::btree::cache::Lead;
use tarn_store::index::btree::scan::{Own, ScanState, Visit};
use tarn_store::index::btree::seek::Seek;
use tarn_store::index::btree::work::TreeWork;
use tarn_store::layout::Version;
use tarn_store::layout::index_plan::{Index, KeyBytes};
use tarn_store::placement::catalog::{Catalog, Table};
use tarn_store::schema::{Cells, IndexId};

/// A node of an ordered index that the transaction has read or locked.
#[derive(Clone, Copy, Debug)]
pub struct Leaf {
    /// The index to which the node belongs.
    pub index: IndexId,
    /// The address of the node's LOCK word.
    pub address: Address,
    /// The version of the node that the transaction saw first.
    pub version: Version,
    /// The node's position in the transaction's list of locks, or [`NO_LOCK`] if the transaction has not requested
    /// the node's lock.
    pub lock: u32,
    /// The position of the node's image, read under the lock, in the round's buffer.
    pub image: BufferOffset,
    /// The node's version after the commit, if the node is written.
    pub new_version: Version,
    /// Whether a scan has returned entries of the node before the node was locked.
    pub shown: bool,
    /// Whether the node's lock was granted.
    pub is_held: bool,
}

/// An index entry that the transaction adds or removes.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The index to which the transaction adds the index entry, or from which it removes the index entry.
    pub index: IndexId,
    /// The key of the index entry.
    pub key: KeyBytes,
    /// The position of the transaction's entry that makes the change.
    pub entry: u32,
    /// Whether the index entry is added. If `adds` is `false`, the index entry is removed.
    pub adds: bool,
    /// The progress of the protocol with this change of the index.
    pub place: ChangePlace,
    /// A pointer to the node that is read or locked for this change.
    pub lead: Lead,
    /// The number of leaves that the search for the key passed because these leaves end before the key.
    pub hops: u8,
}

impl Change {
    /// Creates a change of an index whose leaf is not known yet.
    pub fn new(index: IndexId, key: KeyBytes, entry: u32, adds: bool) -> Change {
        Change { index, key, entry, adds, place: ChangePlace::Unknown, lead: Lead::NONE, hops: 0 }
    }
}

/// The place of the leaf that a change belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangePlace {
    /// The protocol must still find the leaf.
    Unknown,
    /// This round reads this inner node, or the root, and puts its image at this position in the buffer.
    Inner(Address, BufferOffset),
    /// The protocol must lock the leaf at this address.
    At(Address),
    /// The transaction has requested the leaf's lock, or holds it. The number is the leaf's position in the list
    /// `leaves`.
    Leaf(u32),
}

/// A transaction's state in ordered indexes: its scans, leaves and changes.
#[derive(Default)]
pub struct Ordered {
    /// Whether this state of ordered indexes must be cleared before the next transaction.
    pub is_used: bool,
    /// Whether a scan or a look-up is not finished.
    pub pending: bool,
    /// The look-ups of whole keys.
    pub seeks: Vec<Seek>,
    /// The look-ups before this position in `seeks` are finished, or a scan has taken them over.
    pub sought: usize,
    /// The number of look-ups in `seeks` that a scan has taken over.
    pub taken_over: usize,
    /// The scans of this transaction, and the scans of earlier transactions. The scans from position `live` on belong
    /// to earlier transactions, and are kept for their allocated memory.
    pub scans: Vec<ScanState>,
    /// The number of scans that the transaction has.
    pub live: usize,
    /// The nodes that the transaction read or locked.
    pub leaves: Vec<Leaf>,
    /// A filter of 64 bits, with one bit for the address of each leaf. If an address's bit is not set, the address
    /// is not in `leaves`.
    seen: u64,
    /// The positions in `leaves` by the address of the leaf, if the transaction has many leaves.
    by_address: BTreeMap<u64, u32>,
    /// The leaves that scans reached in this round.
    pub visits: Vec<Visit>,
    /// The transaction's own changes of ordered indexes, in the form that scans show to the caller.
    pub own: Vec<Own>,
    /// Whether `own` contains the changes that the caller made before this fetch.
    pub has_own: bool,
    /// The transaction's own changes of ordered indexes, in the form that the commit needs.
    pub changes: Vec<Change>,
    /// The splits that the transaction needs before it can be committed, because it found leaves full.
    pub needs: Vec<TreeWork>,
}

impl Ordered {
    /// The nodes that the most recently planned round will read.
    pub(crate) fn planned(&self) -> impl Iterator<Item = Address> {
        let seeks = self.seeks[self.sought..].iter().map(|seek| seek.address);
        let scans = self.scans[..self.live].iter().filter(|scan| !scan.is_done);
        seeks.filter(|node| !node.is_null()).chain(scans.flat_map(|scan| scan.planned()))
    }

    /// Clears the state that a transaction has in ordered indexes.
    #[cold]
    pub fn clear(&mut self) {
        (self.is_used, self.pending, self.live) = (false, false, 0);
        (self.sought, self.taken_over, self.seen) = (0, 0, 0);
        self.seeks.clear();
        self.has_own = false;
        self.leaves.clear();
        self.by_address.clear();
        self.visits.clear();
        self.own.clear();
        self.changes.clear();
        self.needs.clear();
    }

    /// Returns the state of the next scan.
    pub fn next_scan(&mut self) -> &mut ScanState {
        (self.is_used, self.live) = (true, self.live + 1);
        if self.scans.len() < self.live {
            self.scans.push(ScanState::default());
        }
        &mut self.scans[self.live - 1]
    }

    /// Notes that a scan takes over a planned look-up.
    pub fn seek_by_scan(&mut self, at: usize) {
        let Seek { index, key, .. } = self.seeks[at];
        self.next_scan().start(index, (key, key), 1, false);
        self.seeks[at].scan = Some(self.live as u32 - 1);
        self.taken_over += 1;
    }

    /// The number of scans and look-ups that the caller has requested.
    #[inline]
    pub fn wishes(&self) -> usize {
        self.live + self.seeks.len() - self.taken_over
    }

    /// The position in `leaves` of the leaf at `address`, if the transaction has that leaf.
    #[inline]
    pub fn leaf_at(&self, address: Address) -> Option<usize> {
        if self.seen & Ordered::bit(address) == 0 {
            return None;
        }
        if self.leaves.len() > FEW {
            return self.by_address.get(&address.to_word()).map(|&at| at as usize);
        }
        self.leaves.iter().position(|leaf| leaf.address == address)
    }

    /// Adds all leaves to the map `by_address`, once the transaction has many leaves.
    #[cold]
    fn index_leaves(&mut self) {
        for (at, leaf) in self.leaves.iter().enumerate().skip(self.by_address.len()) {
            self.by_address.insert(leaf.address.to_word(), at as u32);
        }
    }

    /// The bit that an address has in the filter `seen`. The addresses of two nodes differ by one or two kibibytes at
    /// least.
    #[inline]
    fn bit(address: Address) -> u64 {
        1 << ((address.to_word() >> 10).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
    }

    /// Adds to the list `leaves` a leaf that the transaction has seen or will lock. Returns the position of the leaf
    /// in `leaves`.
    #[inline]
    pub fn note(&mut self, index: IndexId, visit: Visit, shown: bool) -> usize {
        self.is_used = true;
        self.seen |= Ordered::bit(visit.address);
        let Visit { address, version } = visit;
        let (lock, image, is_held) = (NO_LOCK, BufferOffset::default(), false);
        let new_version = Version::NEVER;
        self.leaves.push(Leaf {
            index,
            address,
            version,
            lock,
            image,
            new_version,
            shown,
            is_held,
        });
        if self.leaves.len() > FEW {
            self.index_leaves();
        }
        self.leaves.len() - 1
    }
}

/// Calls `tell` with each index entry that an entry of the transaction adds (`true`) or removes (`false`).
pub fn effects(
    catalog: &Catalog,
    table: &Table,
    (round, entry): (&Round, &Entry),
    mut tell: impl FnMut(&Index, KeyBytes, bool),
) {
    if !entry.writable || entry.progress != Progress::Done {
        return;
    }
    let slot = &table.slot;
    let full_key = match slot.full_key_bytes {
        0 => &[][..],
        len => round.bytes(entry.full_key, len),
    };
    let payload = |at: BufferOffset| round.bytes(at, slot.payload_bytes);
    let before = entry.payload_before(slot);
    let key = |index: &Index, at| index.key_of(entry.key, full_key, payload(at));
    let old_key = |index: &Index| {
        let is_read = !slot.is_out_of_line() || entry.cells.covers(index.columns);
        assert!(is_read, "a key of index {} of columns that were not read", index.schema.name);
        key(index, before)
    };
    for index in catalog.indexes_of(table) {
        match entry.mode {
            Mode::Insert if !entry.void => tell(index, key(index, entry.payload), true),
            Mode::Delete if entry.found => tell(index, old_key(index), false),
            Mode::Update if entry.renewed || entry.dirty.0 & index.columns.0 != Cells::NONE.0 => {
                let (old, new) = (old_key(index), key(index, entry.payload));
                if old != new {
                    tell(index, old, false);
                    tell(index, new, true);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_store::layout::LayoutKind;
    use tarn_store::placement::catalog::Options;
    use tarn_store::schema::{ColumnId, ColumnType, IndexPart, TableId, TableSchema};

    /// A table with a column `a` of eight bytes. Half of the column `a` lies behind the version in the second line of
    /// the record.
    fn catalog() -> Catalog {
        let schema = TableSchema::new("t", 60).column("text", ColumnType::Bytes(28));
        let schema = schema.column("a", ColumnType::U64);
        let schema = schema.index("by_a", &[IndexPart::Column(ColumnId(1))], false);
        let small = Options { chunk_bytes: 16 << 10, spare_bytes: 1 << 20, ..Options::default() };
        let options =
            Options { layout: LayoutKind::Lined { halves: true }, coordinators_max: 4, ..small };
        Catalog::plan(&[schema], &options, 3).expect("a plan")
    }

    #[test]
    fn an_old_key_is_read_past_the_lines_versions() {
        let catalog = catalog();
        let table = catalog.table(TableId(0));
        let lined = table.slot.lined().expect("a version in every line");
        assert_eq!(lined.lines(), 2);
        let mut row = [0; 36];
        row[28..].copy_from_slice(&0x0102_0304_0506_0708_u64.to_le_bytes());
        let (mut round, len_bytes) = (Round::new(), row.len());
        let mut entry = Entry::new(TableId(0), 1, Mode::Update, Cells::ALL, Progress::Done);
        entry.image = round.reserve_lines(lined.record_bytes());
        let record = round.bytes_mut(entry.image, lined.record_bytes());
        lined.stamp(record, Version::LOADED, 0);
        lined.scatter_payload(&row, record);
        entry.old_payload = round.reserve_lines(len_bytes);
        round.bytes_mut(entry.old_payload, len_bytes).copy_from_slice(&row);
        entry.payload = round.reserve_lines(len_bytes);
        round.bytes_mut(entry.payload, len_bytes).fill(0);
        (entry.dirty, entry.writable) = (Cells::one(ColumnId(1)), true);

        let mut told = Vec::new();
        effects(&catalog, table, (&round, &entry), |_, key, comes| {
            told.push((u64::from_be_bytes(*key.first_chunk().expect("a column")), comes));
        });
        assert_eq!(told, [(0x0102_0304_0506_0708, false), (0, true)]);
    }
}
