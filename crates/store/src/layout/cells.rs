//! The multi-version record whose versions lie outside its slot. The slot has a table of cells, with one cell for
//! each version.
//!
//! ```text
//! slot     0 LOCK | 8 STATE | 16 KEY | 24 SHAPE | 32 cell 0 | 64 cell 1 | 96 cell 2 | … | full key
//! SHAPE    63 (zero) 40 | 39 cells 32 | 31 payload bytes 16 | 15 table 0
//! cell     0 VERSION | 8 TXNID | 16 TO | 24 PREV_TS
//! TO       63 coordinator 49 | 48 deleted | 47 address of the version's record 0
//! record   0 TXNID | 8 KEY | 16 CHECKSUM | 24 payload … whole lines, in the cells' group
//! ```
//! Invariant: no cell crosses a line, so that each cell is read whole, and the full key does not cross a line either.
//! STATE is the `Version` of the slot. Indexes use STATE to see whether the slot has a record. A deleted record stays
//! in its slot until a transaction frees the slot. If the protocol keeps locks in memory nodes, LOCK is a lock. If
//! the protocol keeps its locks elsewhere, LOCK only marks a slot that a transaction is changing. A version's record
//! is written before the first cell that leads to it becomes visible. If the memory was reused, the record's TXNID,
//! KEY and CHECKSUM show a late reader that the memory holds another record. While a cell is INVISIBLE, it names the
//! coordinator that writes it, and the log of that coordinator decides the outcome. [`super::choose()`] has the rules
//! for reading and overwriting versions.
//!
//! The layout follows Hu, Zuo, Hu, Chen, Wang, Yang: "LOTUS: Optimizing Disaggregated Transactions with
//! Disaggregated Locks". In LOTUS, cells have no PREV_TS, and records have a version in every line instead of a
//! checksum.

use super::choose::Seen;
use super::{HEADER_BYTES, KEY_AT, LockWords, RecordLayout, Slot, VersionWord};
use crate::ids::Timestamp;
use crate::schema::{TableId, TableSchema};
use tarn_fabric::address::{Address, LINE_BYTES};

/// The number of bytes of a cell.
pub const CELL_BYTES: usize = 32;
/// The offset of SHAPE in a slot.
pub const SHAPE_AT: usize = HEADER_BYTES;
/// The offset of the first cell in a slot.
pub const CELLS_AT: usize = SHAPE_AT + 8;
/// The maximum number of versions of a record.
pub const CELLS_MAX: u8 = 8;
/// The number of bytes of a version's record before its payload.
pub const RECORD_HEAD_BYTES: usize = 24;
/// The offset of TXNID in a cell.
pub const CELL_TXN_AT: usize = 8;
/// The offset of TO in a cell.
pub const CELL_TO_AT: usize = 16;
/// The offset of PREV_TS in a cell.
pub const CELL_PREV_TS_AT: usize = 24;
/// The maximum number of coordinators, because a cell has room only for numbers below this one.
pub const CELL_COORDINATORS_MAX: u32 = 1 << (64 - COORDINATOR_SHIFT);

const DELETED: u64 = 1 << 48;
const COORDINATOR_SHIFT: u32 = 49;
const RECORD_KEY_AT: usize = 8;
const CHECKSUM_AT: usize = 16;

const _: () = assert!(KEY_AT + 8 == SHAPE_AT && CELLS_AT == 32);
const _: () = assert!(CELLS_AT.is_multiple_of(CELL_BYTES) && LINE_BYTES.is_multiple_of(CELL_BYTES));
const _: () = assert!(CELL_PREV_TS_AT + 8 == CELL_BYTES && CHECKSUM_AT + 8 == RECORD_HEAD_BYTES);
const _: () = assert!(RECORD_HEAD_BYTES + crate::schema::PAYLOAD_BYTES_MAX < 1 << 16);

/// The layout of a slot's cells. The number of cells decides this layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cells {
    count: u8,
}

/// The word TO of a cell. TO consists of the address of the version's record, the deletion mark, and the number of
/// the coordinator whose log decides the version's outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CellAddress(u64);

impl CellAddress {
    /// The word TO of a cell that names no record.
    pub const NULL: CellAddress = CellAddress(0);

    /// The word TO of a version whose record lies at `address`.
    #[inline]
    pub fn record(address: Address) -> CellAddress {
        CellAddress(address.to_word())
    }

    /// The word TO of a version that says "deleted". A version that says "deleted" has no record.
    #[inline]
    pub fn deleted() -> CellAddress {
        CellAddress(DELETED)
    }

    /// Returns the same word TO, with the number of the coordinator whose log decides the outcome.
    #[inline]
    #[must_use]
    pub fn undecided_by(self, coordinator: u32) -> CellAddress {
        debug_assert!(coordinator < CELL_COORDINATORS_MAX);
        CellAddress(self.decided().0 | u64::from(coordinator) << COORDINATOR_SHIFT)
    }

    /// Returns the same word TO, without a coordinator's number.
    #[inline]
    #[must_use]
    pub fn decided(self) -> CellAddress {
        CellAddress(self.0 & ((1 << COORDINATOR_SHIFT) - 1))
    }

    /// The number of the coordinator whose log decides the outcome of an INVISIBLE cell.
    #[inline]
    pub fn coordinator(self) -> u32 {
        (self.0 >> COORDINATOR_SHIFT) as u32
    }

    /// Whether the version says "deleted".
    #[inline]
    pub fn is_deleted(self) -> bool {
        self.0 & DELETED != 0
    }

    /// The address of the version's record, or [`Address::NULL`] if the version has no record.
    #[inline]
    pub fn address(self) -> Address {
        Address::from_word(self.0)
    }

    /// Decodes the word TO as it is in memory.
    #[inline]
    pub fn from_word(word: u64) -> CellAddress {
        CellAddress(word)
    }

    /// Returns the word TO as it is in memory.
    #[inline]
    pub fn word(self) -> u64 {
        self.0
    }
}

impl std::fmt::Debug for CellAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let deleted = if self.is_deleted() { "†" } else { "" };
        write!(f, "{:?}{deleted} of {}", self.address(), self.coordinator())
    }
}

/// The cell of one version.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cell {
    /// The commit time of the version, or a mark that the version is not committed.
    pub version: VersionWord,
    /// The tag of the transaction that wrote the version; 0 if the version was loaded.
    pub txn: u64,
    /// The address of the version's record.
    pub to: CellAddress,
    /// The timestamp of the newest version that was discarded from this cell. The timestamp is 0 if no version was
    /// discarded.
    pub prev_ts: Timestamp,
}

impl Cell {
    /// The cell's words in memory.
    #[inline]
    pub fn words(self) -> [u64; 4] {
        [self.version.word(), self.txn, self.to.word(), self.prev_ts.0]
    }

    /// Decodes a cell from its words in memory.
    #[inline]
    pub fn from_words([version, txn, to, prev_ts]: [u64; 4]) -> Cell {
        let (version, to) = (VersionWord::from_word(version), CellAddress::from_word(to));
        Cell { version, txn, to, prev_ts: Timestamp(prev_ts) }
    }

    /// Writes the cell's words into the first bytes of `into`.
    #[inline]
    pub fn encode(self, into: &mut [u8]) {
        let (words, _) = into[..CELL_BYTES].as_chunks_mut::<8>();
        words.iter_mut().zip(self.words()).for_each(|(to, word)| *to = word.to_le_bytes());
    }

    /// Reads a cell from the first bytes of `from`.
    #[inline]
    pub fn decode(from: &[u8]) -> Cell {
        let words = from[..CELL_BYTES].as_chunks::<8>().0;
        Cell::from_words(std::array::from_fn(|index| u64::from_le_bytes(words[index])))
    }

    /// The same cell, with a version that is visible as of `at`.
    #[inline]
    #[must_use]
    pub fn committed(self, at: Timestamp) -> Cell {
        Cell { version: VersionWord::committed(at), to: self.to.decided(), ..self }
    }

    /// The cell without a version. A cell gets this value if its version was not committed, and recovery does not
    /// write the former bytes back.
    #[inline]
    #[must_use]
    pub fn vacated(self) -> Cell {
        Cell { prev_ts: self.prev_ts, ..Cell::default() }
    }

    /// Returns the cell without its version. If the version was visible, PREV_TS becomes its commit time.
    #[must_use]
    pub fn discarded(self) -> Cell {
        match self.version.is_committed() {
            true => Cell { prev_ts: self.version.timestamp(), ..Cell::default() },
            false => self.vacated(),
        }
    }

    /// Returns the part of the cell that [`super::choose()`] needs.
    #[inline]
    pub fn seen(&self) -> Seen {
        let Cell { version, txn, to, prev_ts } = *self;
        Seen { word: version, deleted: to.is_deleted(), txn, prev_ts }
    }
}

impl Cells {
    /// Creates the layout of a slot with this many cells, 1 to [`CELLS_MAX`].
    pub fn new(count: u8) -> Cells {
        assert!((1..=CELLS_MAX).contains(&count));
        Cells { count }
    }

    /// The number of cells of a slot.
    #[inline]
    pub fn count(self) -> usize {
        usize::from(self.count)
    }

    /// The offset of a cell in a slot.
    #[inline]
    pub fn cell_at(self, cell: usize) -> usize {
        debug_assert!(cell < self.count());
        CELLS_AT + cell * CELL_BYTES
    }

    /// Reads a cell from a slot's image.
    #[inline]
    pub fn cell(self, image: &[u8], cell: usize) -> Cell {
        Cell::decode(&image[self.cell_at(cell)..])
    }

    /// Returns the part of a cell of a slot's image that [`super::choose()`] needs.
    #[inline]
    pub fn seen(self, image: &[u8], cell: usize) -> Seen {
        self.cell(image, cell).seen()
    }

    /// The offset in a slot of the first byte behind the last cell.
    pub fn end(self) -> usize {
        CELLS_AT + self.count() * CELL_BYTES
    }

    /// Returns the word SHAPE that all slots of a table contain.
    pub fn shape(self, table: TableId, payload_bytes: usize) -> u64 {
        u64::from(table.0) | (payload_bytes as u64) << 16 | u64::from(self.count) << 32
    }

    /// The slot for rows of `schema`.
    pub(super) fn slot(self, schema: &TableSchema) -> Slot {
        let full_key_bytes = schema.stored_key_bytes();
        // The full key lies directly behind the cells, unless it would cross the end of a line there.
        let full_key_at = match LINE_BYTES - self.end() % LINE_BYTES {
            left if full_key_bytes <= left => self.end(),
            left => self.end() + left,
        };
        let used_bytes = full_key_at + full_key_bytes;
        Slot {
            slot_bytes: used_bytes.next_multiple_of(LINE_BYTES),
            body_at: None,
            full_key_at,
            full_key_bytes,
            payload_at: RECORD_HEAD_BYTES,
            payload_bytes: schema.payload_bytes(),
            by_bucket: false,
            record: RecordLayout::Cells(self),
            lock_words: LockWords::Tags,
            plain: false,
            out_of_line: true,
            used_bytes,
        }
    }
}

/// Writes TXNID, KEY and CHECKSUM of a version's record whose payload is already written. `record` is the whole
/// record.
pub fn seal_record(record: &mut [u8], txn: u64, key: u64) {
    record[..8].copy_from_slice(&txn.to_le_bytes());
    record[RECORD_KEY_AT..CHECKSUM_AT].copy_from_slice(&key.to_le_bytes());
    let sum = checksum(txn, key, &record[RECORD_HEAD_BYTES..]);
    record[CHECKSUM_AT..RECORD_HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// Whether `record` is the complete record of the version that the transaction `txn` wrote for the key `key`.
pub fn is_record_of(record: &[u8], txn: u64, key: u64) -> bool {
    let words = record[..RECORD_HEAD_BYTES].as_chunks::<8>().0;
    let [seen_txn, seen_key, sum] = std::array::from_fn(|index| u64::from_le_bytes(words[index]));
    let same = seen_txn == txn && seen_key == key;
    same && sum == checksum(txn, key, &record[RECORD_HEAD_BYTES..])
}

/// The checksum of a version's record. As for log entries, the function mixes in two words at a time by a full
/// multiplication, and combines the two halves of the product. The payload's length is part of the checksum, so that
/// two payloads that differ only in zeros at the end have different checksums.
#[inline]
fn checksum(txn: u64, key: u64, payload: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    const OTHER: u64 = 0xd1b5_4a32_d192_ed03;
    let fold = |sum: u64, one: u64, other: u64| {
        let product = u128::from(sum ^ one ^ ODD) * u128::from(other ^ OTHER);
        sum.rotate_left(23) ^ product as u64 ^ (product >> 64) as u64
    };
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let (pairs, rest) = payload.as_chunks::<16>();
    let start = fold(payload.len() as u64, txn, key);
    let sum = pairs.iter().fold(start, |sum, pair| fold(sum, word(&pair[..8]), word(&pair[8..])));
    let (one, other) = rest.split_at(rest.len().min(8));
    fold(sum, word(one), word(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnType;
    use tarn_fabric::address::GroupId;

    fn slot(cells: u8, key_bytes: u8) -> Slot {
        let mut schema = TableSchema::new("t", 1).column("c", ColumnType::Bytes(40));
        if key_bytes > 0 {
            schema = schema.key_bytes(key_bytes);
        }
        Cells::new(cells).slot(&schema)
    }

    #[test]
    fn two_cells_fill_two_lines_and_no_cell_crosses_one() {
        let lines: Vec<usize> = (1..=8).map(|it| slot(it, 0).slot_bytes / 64).collect();
        assert_eq!(lines, [1, 2, 2, 3, 3, 4, 4, 5]);
        for count in 1..=8 {
            for cell in 0..usize::from(count) {
                let at = Cells::new(count).cell_at(cell);
                assert_eq!(at / 64, (at + CELL_BYTES - 1) / 64);
            }
        }
        assert_eq!((slot(2, 0).body_bytes(), slot(2, 0).payload_at), (64, 24));
        assert!(slot(1, 0).is_out_of_line() && !slot(1, 0).is_plain());
    }

    #[test]
    fn a_full_key_lies_behind_the_cells_in_one_line() {
        // Two cells leave half a line free.
        assert_eq!((slot(2, 32).full_key_at, slot(2, 32).slot_bytes), (96, 128));
        assert_eq!((slot(2, 33).full_key_at, slot(2, 33).slot_bytes), (128, 192));
        assert_eq!((slot(3, 8).full_key_at, slot(3, 64).slot_bytes), (128, 192));
    }

    #[test]
    fn a_cell_s_fields_round_trip_at_their_limits() {
        let end = Address::new(GroupId(4095), (1 << 36) - 64);
        let to = CellAddress::record(end).undecided_by(CELL_COORDINATORS_MAX - 1);
        assert_eq!((to.address(), to.coordinator(), to.is_deleted()), (end, 32_767, false));
        let gone = CellAddress::deleted().undecided_by(5);
        assert!(gone.is_deleted() && gone.address().is_null() && gone.coordinator() == 5);
        let version = VersionWord::invisible(Timestamp(8));
        let cell = Cell { version, txn: 7, to, prev_ts: Timestamp(6) };
        let mut bytes = [0; CELL_BYTES];
        cell.encode(&mut bytes);
        assert_eq!(Cell::decode(&bytes), cell);
        assert_eq!(bytes[CELL_TXN_AT], 7);
        assert_eq!(bytes[CELL_PREV_TS_AT], 6);
        let shown = cell.committed(Timestamp(9));
        assert_eq!((shown.to, shown.txn), (CellAddress::record(end), 7));
        assert_eq!(shown.version, VersionWord::committed(Timestamp(9)));
        let empty = Cell { prev_ts: Timestamp(6), ..Cell::default() };
        assert_eq!(cell.vacated(), empty);
    }

    #[test]
    fn a_record_is_known_by_its_transaction_its_key_and_every_byte() {
        for payload in [0, 1, 8, 9, 16, 40, 100] {
            let mut record = vec![3; RECORD_HEAD_BYTES + payload];
            seal_record(&mut record, 5, 6);
            assert!(is_record_of(&record, 5, 6));
            assert!(!is_record_of(&record, 5, 7) && !is_record_of(&record, 4, 6));
            for at in 0..record.len() {
                record[at] ^= 1;
                assert!(!is_record_of(&record, 5, 6), "byte {at} of {payload}");
                record[at] ^= 1;
            }
        }
    }
}
