//! The layout of a database's records, and readers of a slot of any layout.
//!
//! Invariant: code that fills tables, looks at memory at rest or names the fields that a verb touched reads a
//! slot's record only through this file. So another layout is one more variant of both enums, with its arms.
//! Two things are not here. One is the head of LOCK, VERSION and KEY, which slots, directory records and
//! nodes have in every layout (indexes find keys by it). The other is a protocol's work on its own layout,
//! whose bytes it knows.

use super::{
    CELL_COORDINATORS_MAX, CELLS_MAX, Cell, CellAddress, Cells, Deltas, KEY_AT, Lined, LockWords,
    NEWEST_AT, Packed, SHAPE_AT, STAMP_BYTES, Slot, VALUE_AT, VERSION_AT, Version, VersionWord,
    seal_record,
};
use crate::ids::{Timestamp, UsageError};
use crate::schema::{TableId, TableSchema};
use serde::{Deserialize, Serialize};
use std::fmt;
use tarn_fabric::address::Address;

/// The layout of all records of a database. The protocol says which, and the plan's stamp holds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutKind {
    /// One version, changed in place.
    #[default]
    SingleVersion,
    /// One version, changed in place, with tickets for locks.
    Ticketed,
    /// Several versions of each record, by the time of their commit.
    MultiVersion {
        /// The number of versions, 1 to [`CELLS_MAX`].
        cells: u8,
        /// Where the versions lie.
        records: Records,
    },
    /// The newest version in one place, and of older ones the columns that differ.
    Deltas {
        /// The number of versions, 1 to [`super::DELTA_VERSIONS_MAX`].
        cells: u8,
    },
    /// The same heads as `Deltas`, but each version is whole.
    Wholes {
        /// The number of versions, 1 to [`super::DELTA_VERSIONS_MAX`].
        cells: u8,
    },
    /// One version, which every line names.
    Lined {
        /// Whether a record takes only half a line if it fits, and then does not name its writer.
        halves: bool,
    },
}

/// Where the versions of a record lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Records {
    /// In the slot's line if they fit, else apart.
    #[default]
    Auto,
    /// Each in memory of its own.
    Apart,
}

impl LayoutKind {
    /// The slot for rows of `schema`.
    ///
    /// # Panics
    /// If the layout has no cells, or too many: [`LayoutKind::validate`] has refused that.
    pub fn slot(self, schema: &TableSchema) -> Slot {
        match self {
            LayoutKind::SingleVersion => Slot::of(schema),
            LayoutKind::Ticketed => Slot { lock_words: LockWords::Tickets, ..Slot::of(schema) },
            LayoutKind::MultiVersion { cells, records } => {
                let packed = Packed::fitting(cells, schema).filter(|_| records != Records::Apart);
                packed.map_or_else(|| Cells::new(cells).slot(schema), |it| it.slot(schema))
            }
            LayoutKind::Deltas { cells } => Deltas::new(cells).slot(schema),
            LayoutKind::Wholes { cells } => Deltas::whole(cells).slot(schema),
            LayoutKind::Lined { halves } => Lined::new(schema, halves).slot(schema),
        }
        .shaped(0, false)
    }

    /// Checks that a database can have this layout.
    ///
    /// # Errors
    /// Names the field that is not possible, its value, and the allowed values.
    pub fn validate(self, coordinators_max: u32) -> Result<(), UsageError> {
        let cells = match self {
            LayoutKind::SingleVersion | LayoutKind::Ticketed | LayoutKind::Lined { .. } => {
                return Ok(());
            }
            LayoutKind::Deltas { cells } | LayoutKind::Wholes { cells } => {
                return Deltas::validate(cells);
            }
            LayoutKind::MultiVersion { cells, .. } => cells,
        };
        let refuse = |field: &str, value: String, allowed: String| {
            Err(UsageError { field: field.to_owned(), value, allowed })
        };
        if !(1..=CELLS_MAX).contains(&cells) {
            return refuse("layout.cells", cells.to_string(), format!("1 to {CELLS_MAX}"));
        }
        if coordinators_max > CELL_COORDINATORS_MAX {
            let allowed = format!(
                "at most {CELL_COORDINATORS_MAX} in a layout with versions in \
                                   cells"
            );
            return refuse("coordinators_max", coordinators_max.to_string(), allowed);
        }
        Ok(())
    }

    /// Checks that a table of this schema can have this layout.
    ///
    /// # Errors
    /// Names the field, its value and the allowed values, like [`LayoutKind::validate`].
    pub fn validate_schema(self, schema: &TableSchema) -> Result<(), UsageError> {
        match self {
            LayoutKind::Lined { .. } => Lined::validate(schema),
            _ => Ok(()),
        }
    }
}

/// The layout's name in a memory node's superblock. The number in it is raised when the meaning of bytes
/// changes.
impl fmt::Display for LayoutKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutKind::SingleVersion => f.write_str("single-version-4"),
            LayoutKind::Ticketed => f.write_str("ticketed-1"),
            LayoutKind::MultiVersion { cells, records: Records::Auto } => {
                write!(f, "multi-version-1 of {cells}")
            }
            LayoutKind::MultiVersion { cells, records: Records::Apart } => {
                write!(f, "multi-version-1 of {cells}, apart")
            }
            LayoutKind::Deltas { cells } => write!(f, "deltas-1 of {cells}"),
            LayoutKind::Wholes { cells } => write!(f, "wholes-1 of {cells}"),
            LayoutKind::Lined { halves: false } => f.write_str("lined-1"),
            LayoutKind::Lined { halves: true } => f.write_str("lined-1 in halves"),
        }
    }
}

/// The layout of one table's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordLayout {
    /// VERSION in the head is the record's version. The payload is in the slot, or at an address there.
    InPlace,
    /// Several versions, all in the slot's line.
    Packed(Packed),
    /// Several versions, each where its cell in the slot says.
    Cells(Cells),
    /// One version in memory of its own, beside the columns of older ones that differ, or beside whole older
    /// ones.
    Deltas(Deltas),
    /// One version in the slot, which each of the slot's lines names.
    Lined(Lined),
}

/// Where a version's payload lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadAt {
    /// This many bytes into the slot.
    Slot(usize),
    /// In the slot, between its lines' versions: see [`Lined::gather_payload`].
    Lines(Lined),
    /// In memory of its own, which begins there. The payload is [`Slot::payload_at`] bytes into it.
    Apart(Address),
}

/// The newest version of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newest {
    /// The version.
    pub version: Version,
    /// Where the version's payload lies.
    pub payload: PayloadAt,
}

/// A record to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// The record's table.
    pub table: TableId,
    /// The key word.
    pub key: u64,
    /// The full key, of a table whose keys are longer than a word.
    pub full_key: &'a [u8],
    /// The address of the payload if it lies apart; else [`Address::NULL`].
    pub body: Address,
}

impl Slot {
    /// Whether a slot of this image, [`Slot::slot_bytes`] long, can take another record. A slot whose record
    /// was deleted cannot, as long as its versions may have readers: the protocol decides that.
    #[inline]
    pub fn is_free(&self, image: &[u8]) -> bool {
        !version(image).is_present()
    }

    /// The newest version of the record in a slot of this image, if there is one. Of several versions it is
    /// the newest that is committed, and its [`Version`] is its timestamp.
    pub fn newest(&self, image: &[u8]) -> Option<Newest> {
        if self.is_free(image) {
            return None;
        }
        let version = match self.record {
            RecordLayout::InPlace | RecordLayout::Lined(_) => Some(version(image)),
            RecordLayout::Deltas(_) => Some(Version::from_word(word(image, NEWEST_AT))),
            RecordLayout::Packed(_) | RecordLayout::Cells(_) => None,
        };
        if let Some(version) = version {
            return Some(Newest { version, payload: self.payload_of(image, 0) });
        }
        let committed = self.newest_committed(image).filter(|newest| !newest.deleted)?;
        let version = Version::from_word(committed.version.0);
        Some(Newest { version, payload: self.payload_of(image, committed.cell) })
    }

    /// Where the payload of a version lies.
    #[inline]
    pub fn payload_of(&self, image: &[u8], cell: usize) -> PayloadAt {
        match (self.record, self.body_at) {
            (RecordLayout::InPlace | RecordLayout::Deltas(_), None) => {
                PayloadAt::Slot(self.payload_at)
            }
            (RecordLayout::InPlace | RecordLayout::Deltas(_), Some(at)) => {
                PayloadAt::Apart(Address::from_word(word(image, at)))
            }
            (RecordLayout::Lined(lined), _) => PayloadAt::Lines(lined),
            (RecordLayout::Packed(packed), _) => PayloadAt::Slot(packed.payload_at(cell)),
            (RecordLayout::Cells(cells), _) => {
                PayloadAt::Apart(cells.cell(image, cell).to.address())
            }
        }
    }

    /// The addresses of the memory of its own that the record in a slot of this image has:
    /// [`Slot::apart_bytes`] at each.
    pub fn apart(&self, image: &[u8]) -> impl Iterator<Item = Address> {
        let cells = if self.is_free(image) || !self.is_out_of_line() { 0 } else { self.cells() };
        (0..cells).filter_map(|cell| match self.payload_of(image, cell) {
            PayloadAt::Apart(body) if !body.is_null() => Some(body),
            PayloadAt::Apart(_) | PayloadAt::Slot(_) | PayloadAt::Lines(_) => None,
        })
    }

    /// How many of a slot's first bytes are the same at every replica at rest, LOCK aside. Of a slot without
    /// a record only the head counts: an insert that was undone leaves bytes behind.
    pub fn replicated_bytes(&self, image: &[u8]) -> usize {
        match self.is_free(image) {
            true => self.body_at.unwrap_or(KEY_AT) + 8,
            false => self.slot_bytes,
        }
    }

    /// Where each version of the record in a slot of this image begins in its memory of its own, the newest
    /// first. [`Slot::apart_bytes`] of each are the same at every replica at rest. Versions that no cell
    /// names are not, since a copy that joined later does not have them. Bytes behind a version may be left
    /// of another record.
    pub fn versions_apart(&self, image: &[u8]) -> Vec<usize> {
        match self.record {
            RecordLayout::Deltas(deltas) => deltas.versions_at(&words(image), self.payload_bytes),
            _ => vec![0],
        }
    }

    /// Writes all of a loaded record but its payload into an image of zeros. Its first version's timestamp is 1.
    pub fn write_loaded(&self, image: &mut [u8], record: &Loaded<'_>) {
        let mut set = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        set(VERSION_AT, &Version::LOADED.word().to_le_bytes());
        set(KEY_AT, &record.key.to_le_bytes());
        set(self.full_key_at, record.full_key);
        let version = VersionWord::committed(Timestamp::LOADED);
        match self.record {
            RecordLayout::InPlace => {
                if let Some(at) = self.body_at {
                    set(at, &record.body.to_word().to_le_bytes());
                }
            }
            RecordLayout::Deltas(_) => {
                set(VALUE_AT, &record.body.to_word().to_le_bytes());
                set(NEWEST_AT, &Version::LOADED.word().to_le_bytes());
            }
            RecordLayout::Lined(lined) => lined.stamp(image, Version::LOADED, 0),
            RecordLayout::Packed(packed) => {
                set(packed.version_at(0), &version.word().to_le_bytes());
            }
            RecordLayout::Cells(cells) => {
                let to = CellAddress::record(record.body);
                let shape = cells.shape(record.table, self.payload_bytes);
                set(SHAPE_AT, &shape.to_le_bytes());
                Cell { version, to, ..Cell::default() }.encode(&mut image[cells.cell_at(0)..]);
            }
        }
    }

    /// Completes the memory of its own of a loaded record whose payload is written, if something is missing.
    pub fn seal_loaded(&self, body: &mut [u8], key: u64) {
        match self.record {
            RecordLayout::Cells(_) => seal_record(&mut body[..self.apart_bytes()], 0, key),
            RecordLayout::Deltas(_) => {
                body[..STAMP_BYTES].copy_from_slice(&Version::LOADED.word().to_le_bytes());
            }
            RecordLayout::InPlace | RecordLayout::Packed(_) | RecordLayout::Lined(_) => {}
        }
    }

    /// Whether a transaction that changes a record keeps the old payload beside the image that was read. It
    /// does so in layouts where the payload may not be contiguous at the place of the slot's first one. Such
    /// a payload lies apart, in a version of its own, or in lines with their versions between.
    #[inline]
    pub fn keeps_old_payload(&self) -> bool {
        match self.record {
            RecordLayout::Lined(lined) => lined.lines() > 1,
            _ => self.is_out_of_line() || self.cells() > 1,
        }
    }

    /// The record's layout in lines, if it has one. Then a payload is copied out of the lines and into them.
    #[inline]
    pub fn lined(&self) -> Option<Lined> {
        match self.record {
            RecordLayout::Lined(lined) => Some(lined),
            _ => None,
        }
    }
}

fn version(image: &[u8]) -> Version {
    Version::from_word(word(image, VERSION_AT))
}

fn words(image: &[u8]) -> Vec<u64> {
    image.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

fn word(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*image[at..].first_chunk().expect("a slot has a whole head"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnType;
    use tarn_fabric::address::GroupId;

    fn slot(payload: u16) -> Slot {
        let schema = TableSchema::new("t", 1).column("c", ColumnType::Bytes(payload)).key_bytes(10);
        LayoutKind::SingleVersion.slot(&schema)
    }

    #[test]
    fn a_loaded_record_is_read_as_it_was_written() {
        let body = Address::new(GroupId(1), 4096);
        for (payload, at, bodies) in
            [(30, PayloadAt::Slot(40), vec![]), (500, PayloadAt::Apart(body), vec![body])]
        {
            let slot = slot(payload);
            let mut image = vec![0; slot.slot_bytes];
            assert!(slot.is_free(&image) && slot.newest(&image).is_none());
            assert_eq!(slot.apart(&image).count(), 0);
            slot.write_loaded(
                &mut image,
                &Loaded { table: TableId(0), key: 7, full_key: b"0123456789", body },
            );
            let newest = Newest { version: Version::LOADED, payload: at };
            assert_eq!(slot.newest(&image), Some(newest));
            assert!(!slot.is_free(&image));
            assert_eq!(slot.apart(&image).collect::<Vec<Address>>(), bodies);
            assert_eq!(word(&image, KEY_AT), 7);
            assert_eq!(&image[slot.full_key_at..][..10], b"0123456789");
        }
    }

    #[test]
    fn copies_of_an_empty_slot_must_agree_in_the_head_only() {
        let slot = slot(30);
        let mut image = vec![0; slot.slot_bytes];
        assert_eq!(slot.replicated_bytes(&image), KEY_AT + 8);
        image[VERSION_AT..KEY_AT]
            .copy_from_slice(&Version::LOADED.absent_after().word().to_le_bytes());
        assert_eq!(slot.replicated_bytes(&image), KEY_AT + 8);
        image[VERSION_AT..KEY_AT].copy_from_slice(&Version::LOADED.word().to_le_bytes());
        assert_eq!(slot.replicated_bytes(&image), slot.slot_bytes);
    }
}
