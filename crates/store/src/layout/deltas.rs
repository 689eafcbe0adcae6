//! The record layout of Motor. A record stores the newest version whole, and stores only the differing columns of
//! each older version. In a variant of this layout, the record stores every version whole.
//!
//! ```text
//! a record's slot: whole lines
//!   0       8         16      24       32       40                    40 + 24 × (N − 1)
//!   | LOCK  | VERSION | KEY   | VALUE  | NEWEST | N − 1 cells         | full key
//! a cell, 24 bytes
//!   0       8         16
//!   | OLD   | COLUMNS | DELTA |                   DELTA: offset in the value's block
//! a value's block, at VALUE: whole lines, then N − 1 deltas of whole lines each
//!   0       8
//!   | STAMP | payload …         | delta 0 | delta 1 | …
//! the same with every version whole: N places, each of whole lines
//!   | STAMP | payload …         | STAMP | payload …         | …
//! ```
//! Invariant: indexes, copies and recovery compare VERSION. VERSION changes with every commit, and again when a
//! commit is undone. NEWEST is the version that readers use. A commit that was undone does not change NEWEST. A cell
//! is 0, or it describes an old version. DELTA leads to the values of the columns in COLUMNS, one behind the other.
//! The columns had these values in version OLD, until the next newer version was committed. If OLD is absent, the
//! record did not exist until that next version. So a reader computes a version's row from the newest row. The reader
//! applies the deltas of all newer cells and the version's own delta to the newest row, newest delta first. STAMP is
//! the NEWEST of the payload that follows STAMP. STAMP and payload are snapshots of one moment if they are in one
//! line.
//!
//! If every version is stored whole, a commit writes its version into the place of the oldest version. The DELTA
//! fields of the cells store a permutation that gives each version its place. The version of cell `i` has the place
//! `DELTA ^ (i + 1)`. The newest version has the remaining place, which is the xor of all DELTAs. So a slot of zeros
//! has its newest version in place 0. The undo of a commit leaves a cell that has no version, and has the same DELTA
//! as before.
//!
//! The layout follows the public code of Zhang, Hua, Yang: "Motor: Enabling Multi-Versioning for Distributed
//! Transactions on Disaggregated Memory", OSDI 2024. In Motor's layout the head has 64 bytes, and the value also ends
//! with a stamp. In Tarn's layout, a head and one cell share one line, so that head and cell are snapshots of one
//! moment.

use super::{HEADER_BYTES, LockWords, RecordLayout, Slot, Version, WORD_BYTES};
use crate::ids::{Timestamp, UsageError};
use crate::schema::{Cells, TableSchema};
use tarn_fabric::address::LINE_BYTES;

/// The offset of VALUE, the address of the value's block, in a slot.
pub const VALUE_AT: usize = HEADER_BYTES;
/// The offset of NEWEST in a slot.
pub const NEWEST_AT: usize = VALUE_AT + 8;
/// The offset of the first cell in a slot.
pub const DELTA_CELLS_AT: usize = NEWEST_AT + 8;
/// The number of bytes of a cell, which describes one old version.
pub const DELTA_CELL_BYTES: usize = 24;
/// The number of bytes of a value's STAMP.
pub const STAMP_BYTES: usize = 8;
/// The maximum number of versions of a record.
pub const DELTA_VERSIONS_MAX: u8 = 8;

const _: () = assert!(DELTA_CELLS_AT + DELTA_CELL_BYTES == LINE_BYTES);

/// The version that a commit at `at` gives a record. The version of a commit is even. An undo adds one to a commit's
/// version, so the version of an undo is never the version of a commit.
#[inline]
pub fn version_at(at: Timestamp) -> Version {
    Version::from_word(at.0 << 1)
}

/// Whether `version` existed at the time `start`. After an undo, a record that stores only one version keeps the
/// version that the undo wrote. This function treats such a version as if it was committed at the undone commit's
/// time. So a reader that started at that time need not wait for a later commit.
#[inline]
pub fn is_seen_at(version: Version, start: Timestamp) -> bool {
    version.counter() <= version_at(start).counter() + 1
}

/// A cell, which describes one old version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeltaCell {
    /// The version whose values the cell keeps.
    pub old: Version,
    /// The columns whose values the cell keeps.
    pub columns: Cells,
    /// The offset in bytes, in the value's block, of the values that the cell keeps.
    pub delta: u64,
}

impl DeltaCell {
    /// The cell's words in memory.
    pub fn words(&self) -> [u64; 3] {
        [self.old.word(), self.columns.0, self.delta]
    }
}

/// The version of a record that a reader with a given T_start must see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// The reader sees the newest version.
    Newest(Version),
    /// The reader sees the older version that the cell with this number describes.
    Older(usize, Version),
    /// The record did not exist at T_start. The field is the absent version that shows this.
    Absent(Version),
    /// The record no longer stores the version that the reader must see.
    TooOld,
}

/// The layout of a table's records. This layout depends on the number of versions per record, and on whether every
/// version is stored whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deltas {
    versions: u8,
    is_whole: bool,
}

impl Deltas {
    /// Checks the number of versions, which includes the newest version.
    ///
    /// # Errors
    /// The error names the allowed values.
    pub fn validate(versions: u8) -> Result<(), UsageError> {
        if (1..=DELTA_VERSIONS_MAX).contains(&versions) {
            return Ok(());
        }
        Err(UsageError {
            field: "layout.cells".into(),
            value: versions.to_string(),
            allowed: format!("1 to {DELTA_VERSIONS_MAX}"),
        })
    }

    /// Returns the layout with this number of versions, which [`Deltas::validate`] must allow.
    pub fn new(versions: u8) -> Deltas {
        Deltas { versions, is_whole: false }
    }

    /// The layout with this number of versions, in which every version is stored whole.
    pub fn whole(versions: u8) -> Deltas {
        Deltas { versions, is_whole: true }
    }

    /// Whether every version is stored whole.
    #[inline]
    pub fn is_whole(self) -> bool {
        self.is_whole
    }

    /// The offset of a version's place in its block, if every version is stored whole.
    #[inline]
    pub fn place_at(self, payload_bytes: usize, place: usize) -> usize {
        place * (STAMP_BYTES + payload_bytes).next_multiple_of(LINE_BYTES)
    }

    /// Returns the place of the newest version. If older versions are not stored whole, it is place 0.
    #[inline]
    pub fn newest_place(self, image: &[u64]) -> usize {
        match self.is_whole {
            true => {
                (0..self.cells()).fold(0, |all, cell| all ^ self.cell(image, cell).delta as usize)
            }
            false => 0,
        }
    }

    /// The place of a cell's version, if every version is stored whole.
    #[inline]
    pub fn place_of(self, image: &[u64], cell: usize) -> usize {
        self.cell(image, cell).delta as usize ^ (cell + 1)
    }

    /// Returns the new contents of a cell whose place the next version takes. The new contents describe `old`, the
    /// version that was the newest so far. If `old` is `None`, the new contents have no version.
    pub fn cell_after(self, image: &[u64], cell: usize, old: Option<Version>) -> DeltaCell {
        match old {
            Some(old) => {
                let delta = (self.newest_place(image) ^ (cell + 1)) as u64;
                DeltaCell { old, columns: Cells::ALL, delta }
            }
            None => DeltaCell { delta: self.cell(image, cell).delta, ..DeltaCell::default() },
        }
    }

    /// The offsets in the block of all versions of a record that can be read by themselves, with the newest version
    /// first. A version that is stored as a delta cannot be read by itself.
    pub fn versions_at(self, image: &[u64], payload_bytes: usize) -> Vec<usize> {
        // If OLD is absent, the record did not exist, and no bytes were written for the version OLD.
        let is_kept = |cell: &usize| self.is_whole && self.cell(image, *cell).old.is_present();
        let older = (0..self.cells()).filter(is_kept).map(|cell| self.place_of(image, cell));
        let places = std::iter::once(self.newest_place(image)).chain(older);
        places.map(|place| self.place_at(payload_bytes, place)).collect()
    }

    /// The number of cells of a slot: one for each version except the newest.
    #[inline]
    pub fn cells(self) -> usize {
        usize::from(self.versions) - 1
    }

    /// The offset of a cell in its slot.
    #[inline]
    pub fn cell_at(self, cell: usize) -> usize {
        DELTA_CELLS_AT + cell * DELTA_CELL_BYTES
    }

    /// The slot for rows of `schema`.
    pub fn slot(self, schema: &TableSchema) -> Slot {
        let full_key_at = self.cell_at(self.cells());
        let used_bytes = full_key_at + schema.stored_key_bytes();
        Slot {
            slot_bytes: used_bytes.next_multiple_of(LINE_BYTES),
            body_at: Some(VALUE_AT),
            full_key_at,
            full_key_bytes: schema.stored_key_bytes(),
            payload_at: STAMP_BYTES,
            payload_bytes: schema.payload_bytes(),
            by_bucket: false,
            record: RecordLayout::Deltas(self),
            lock_words: LockWords::Tags,
            out_of_line: true,
            plain: false,
            used_bytes,
        }
    }

    /// The offset of delta number `delta` in its value's block.
    #[inline]
    pub fn delta_at(self, payload_bytes: usize, delta: usize) -> usize {
        let stride = payload_bytes.next_multiple_of(LINE_BYTES);
        (STAMP_BYTES + payload_bytes).next_multiple_of(LINE_BYTES) + delta * stride
    }

    /// The number of bytes of a value's block.
    #[inline]
    pub fn block_bytes(self, payload_bytes: usize) -> usize {
        if self.is_whole {
            return self.place_at(payload_bytes, usize::from(self.versions));
        }
        self.delta_at(payload_bytes, self.cells())
    }

    /// Decodes a cell in a slot's image.
    #[inline]
    pub fn cell(self, image: &[u64], cell: usize) -> DeltaCell {
        let at = self.cell_at(cell) / WORD_BYTES;
        let [old, columns, delta] = *image[at..].first_chunk().expect("a slot has all its cells");
        DeltaCell { old: Version::from_word(old), columns: Cells(columns), delta }
    }

    /// The cell that will describe the present version after the next commit. If a cell has no version, the function
    /// returns that cell. If every cell has a version, the function returns the cell of the oldest version. Returns
    /// `None` if the layout has only one version.
    #[inline]
    pub fn cell_to_overwrite(self, image: &[u64]) -> Option<usize> {
        (0..self.cells()).min_by_key(|&cell| self.cell(image, cell).old.counter())
    }

    /// The version of a record that a reader with the T_start `start` must see. `image` must be a snapshot of one
    /// moment of the slot.
    #[inline]
    pub fn shown(self, image: &[u64], start: Timestamp) -> Shown {
        let newest = newest(image);
        if is_seen_at(newest, start) {
            return if newest.is_present() { Shown::Newest(newest) } else { Shown::Absent(newest) };
        }
        let older = (0..self.cells()).map(|cell| (cell, self.cell(image, cell).old));
        let seen = older.filter(|&(_, old)| old != Version::NEVER && is_seen_at(old, start));
        match seen.max_by_key(|&(_, old)| old.counter()) {
            None => Shown::TooOld,
            Some((cell, old)) if old.is_present() => Shown::Older(cell, old),
            Some((_, old)) => Shown::Absent(old),
        }
    }

    /// The cells whose deltas turn the newest row into the row of `cell`'s version, in the order in which the reader
    /// applies the deltas.
    pub fn steps_to(self, image: &[u64], cell: usize) -> impl Iterator<Item = usize> {
        let oldest = self.cell(image, cell).old.counter();
        let mut after = u64::MAX;
        std::iter::from_fn(move || {
            let older = (0..self.cells()).map(|each| (self.cell(image, each).old.counter(), each));
            let next = older.filter(|&(old, _)| old >= oldest && old < after).max()?;
            after = next.0;
            Some(next.1)
        })
    }
}

/// Returns the version that NEWEST holds in a slot's image.
#[inline]
pub fn newest(image: &[u64]) -> Version {
    Version::from_word(image[NEWEST_AT / WORD_BYTES])
}

/// Copies the values of `columns` from a row into `delta`, one behind the other. Returns the number of bytes that
/// these values take.
pub fn take_delta(schema: &TableSchema, columns: Cells, row: &[u8], delta: &mut [u8]) -> usize {
    let mut len = 0;
    for_each_column(schema, columns, |from, width| {
        delta[len..len + width].copy_from_slice(&row[from..from + width]);
        len += width;
    });
    len
}

/// Copies the values of a delta into the columns `columns` of a row.
pub fn put_delta(schema: &TableSchema, columns: Cells, delta: &[u8], row: &mut [u8]) {
    let mut at = 0;
    for_each_column(schema, columns, |from, width| {
        row[from..from + width].copy_from_slice(&delta[at..at + width]);
        at += width;
    });
}

/// The number of bytes that the values of `columns` take.
pub fn delta_bytes(schema: &TableSchema, columns: Cells) -> usize {
    let mut len = 0;
    for_each_column(schema, columns, |_, width| len += width);
    len
}

/// Calls `each(offset, width)` for every column of `columns`, in the table's order.
fn for_each_column(schema: &TableSchema, columns: Cells, mut each: impl FnMut(usize, usize)) {
    let mut left = columns.0 & (u64::MAX >> (64 - schema.columns.len()));
    while left != 0 {
        let column = &schema.columns[left.trailing_zeros() as usize];
        left &= left - 1;
        each(column.offset_bytes, column.column_type.width_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnType;
    use rand::{RngExt, SeedableRng};

    fn schema() -> TableSchema {
        TableSchema::new("t", 1)
            .column("a", ColumnType::U64)
            .column("b", ColumnType::Bytes(13))
            .column("c", ColumnType::U64)
    }

    #[test]
    fn an_undone_change_is_seen_as_of_its_time() {
        let committed = version_at(Timestamp(7));
        let undone = committed.present_after(Version::NEVER);
        for (start, seen) in [(6, false), (7, true), (8, true)] {
            let start = Timestamp(start);
            assert_eq!([committed, undone].map(|it| is_seen_at(it, start)), [seen; 2]);
        }
    }

    #[test]
    fn two_versions_have_their_head_in_one_line() {
        let slot = Deltas::new(2).slot(&schema());
        assert_eq!((slot.slot_bytes, slot.payload_at, slot.is_one_line()), (64, 8, true));
        assert!(slot.is_out_of_line() && !slot.is_plain());
        let deltas = Deltas::new(3);
        let slot = deltas.slot(&schema());
        assert_eq!((slot.slot_bytes, slot.is_one_line()), (128, false));
        assert_eq!(slot.body_bytes(), deltas.block_bytes(slot.payload_bytes));
        assert_eq!(deltas.delta_at(slot.payload_bytes, 1), 128);
        assert!(Deltas::validate(0).is_err() && Deltas::validate(9).is_err());
    }

    /// Makes random commits on one record. Then the test compares a snapshot of every moment with the row that
    /// existed at that moment.
    #[test]
    fn every_snapshot_sees_its_version_or_is_too_old() {
        let schema = schema();
        let bytes = schema.payload_bytes();
        for seed in 0..200 {
            let mut rng = rand::rngs::SmallRng::seed_from_u64(seed);
            let versions = rng.random_range(1..=DELTA_VERSIONS_MAX);
            let deltas = match seed % 2 {
                0 => Deltas::new(versions),
                _ => Deltas::whole(versions),
            };
            let slot = deltas.slot(&schema);
            let mut head = vec![0u64; slot.slot_bytes / 8];
            let mut block = vec![0u8; deltas.block_bytes(bytes)];
            let mut row: Vec<u8> = (0..bytes).map(|_| rng.random()).collect();
            head[NEWEST_AT / 8] = Version::LOADED.word();
            let whole_at = |place| deltas.place_at(bytes, place) + STAMP_BYTES;
            let at = whole_at(deltas.newest_place(&head));
            block[at..at + bytes].copy_from_slice(&row);
            let mut lost = 0;
            let (mut truth, mut now) = (vec![(Timestamp::LOADED, row.clone())], Timestamp(1));
            for _ in 0..rng.random_range(0..12) {
                now = Timestamp(now.0 + rng.random_range(1..3));
                let columns = Cells(rng.random_range(1..8));
                let cell = deltas.cell_to_overwrite(&head);
                if let Some(cell) = cell.filter(|_| deltas.is_whole()) {
                    // When a commit is undone, the record has lost its oldest version.
                    let next = match rng.random_range(0..4) {
                        0 => None,
                        _ => Some(newest(&head)),
                    };
                    let words = deltas.cell_after(&head, cell, next).words();
                    let newest_before = deltas.newest_place(&head);
                    head[deltas.cell_at(cell) / 8..][..3].copy_from_slice(&words);
                    assert_eq!(next.is_none(), deltas.newest_place(&head) == newest_before);
                    if next.is_none() {
                        lost = deltas.cells().min(lost + 1);
                        continue;
                    }
                    lost = lost.saturating_sub(1);
                } else if let Some(cell) = cell {
                    let at = deltas.delta_at(bytes, cell);
                    take_delta(&schema, columns, &row, &mut block[at..]);
                    let old = DeltaCell { old: newest(&head), columns, delta: at as u64 };
                    head[deltas.cell_at(cell) / 8..][..3].copy_from_slice(&old.words());
                }
                for_each_column(&schema, columns, |from, width| {
                    row[from..from + width].fill_with(|| rng.random());
                });
                if deltas.is_whole() {
                    let at = whole_at(deltas.newest_place(&head));
                    block[at..at + bytes].copy_from_slice(&row);
                }
                head[NEWEST_AT / 8] = version_at(now).word();
                truth.push((now, row.clone()));
            }
            if deltas.is_whole() {
                let at = whole_at(deltas.newest_place(&head));
                assert_eq!(&block[at..at + bytes], &row, "seed {seed}");
            }
            for start in (1..=now.0 + 1).map(Timestamp) {
                let (of, expected) = truth.iter().rfind(|(at, _)| *at <= start).expect("loaded");
                let back = truth.iter().filter(|(at, _)| at > of).count();
                let mut seen = row.clone();
                let version = match deltas.shown(&head, start) {
                    Shown::Newest(version) => version,
                    Shown::Older(cell, version) if deltas.is_whole() => {
                        let at = whole_at(deltas.place_of(&head, cell));
                        seen = block[at..at + bytes].to_vec();
                        version
                    }
                    Shown::Older(cell, version) => {
                        for step in deltas.steps_to(&head, cell) {
                            let DeltaCell { columns, delta, .. } = deltas.cell(&head, step);
                            put_delta(&schema, columns, &block[delta as usize..], &mut seen);
                        }
                        version
                    }
                    Shown::TooOld => {
                        let kept = deltas.cells() - lost;
                        assert!(back > kept, "seed {seed}: kept, and not found");
                        continue;
                    }
                    Shown::Absent(_) => unreachable!("it was always there"),
                };
                assert!(back <= deltas.cells(), "seed {seed}");
                let is_loaded = *of == Timestamp::LOADED;
                let loaded_or = |at| if is_loaded { Version::LOADED } else { version_at(at) };
                assert_eq!((version, &seen), (loaded_or(*of), expected), "seed {seed}");
            }
        }
    }

    #[test]
    fn before_an_insert_there_was_no_record() {
        let deltas = Deltas::new(2);
        let mut head = vec![0u64; 8];
        head[NEWEST_AT / 8] = version_at(Timestamp(9)).word();
        assert_eq!(deltas.shown(&head, Timestamp(5)), Shown::TooOld);
        let floor = Version::from_word(version_at(Timestamp(4)).word() | 1 << 63);
        let cell = DeltaCell { old: floor, ..DeltaCell::default() };
        head[DELTA_CELLS_AT / 8..].copy_from_slice(&cell.words());
        assert_eq!(deltas.shown(&head, Timestamp(5)), Shown::Absent(floor));
        assert_eq!(deltas.shown(&head, Timestamp(3)), Shown::TooOld);
        let newest = version_at(Timestamp(9));
        assert_eq!(deltas.shown(&head, Timestamp(9)), Shown::Newest(newest));
    }
}
