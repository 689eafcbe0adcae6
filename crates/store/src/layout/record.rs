//! The layout of a database's records, and functions that read a slot of any layout.
//!
//! Invariant: code that fills tables, inspects memory or names the fields that a verb touched reads a slot's record
//! only through this file. So a new layout is one more variant of both enums, with its match arms. Two things are
//! outside this file. The first is the head of LOCK, VERSION and KEY, which slots, directory records and nodes have
//! in every layout (indexes find keys by this head). The second is the code by which a protocol works on its own
//! layout, because the protocol knows the bytes of that layout.

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

/// The layout of all records of a database. The protocol chooses it, and the plan's stamp includes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutKind {
    /// One version, which is changed in place.
    #[default]
    SingleVersion,
    /// One version, which is changed in place, with lock words of tickets.
    Ticketed,
    /// Several versions of each record, with their commit times.
    MultiVersion {
        /// The number of versions, 1 to [`CELLS_MAX`].
        cells: u8,
        /// The place where the versions lie.
        records: Records,
    },
    /// The newest version in one place, and the columns in which each older version differs.
    Deltas {
        /// The number of versions, 1 to [`super::DELTA_VERSIONS_MAX`].
        cells: u8,
    },
    /// The same slots as `Deltas`, but each version is stored whole.
    Wholes {
        /// The number of versions, 1 to [`super::DELTA_VERSIONS_MAX`].
        cells: u8,
    },
    /// One version, whose number is repeated in every line.
    Lined {
        /// Whether a record takes only half a line if it fits. Such a record does not name its writer.
        halves: bool,
    },
}

/// The place where the versions of a record lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Records {
    /// The versions lie in the slot's line if they fit, and otherwise in separate memory.
    #[default]
    Auto,
    /// Each version lies in separate memory.
    Apart,
}

impl LayoutKind {
    /// The slot for rows of `schema`.
    ///
    /// # Panics
    /// If the layout has no cells, or too many. [`LayoutKind::validate`] refuses such layouts earlier.
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

/// Formats the layout's name, which a memory node's superblock contains. The number in the name is raised when the
/// meaning of bytes changes.
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
    /// One version. VERSION in the head is the record's version. The payload lies in the slot, or at an address in
    /// the slot.
    InPlace,
    /// Several versions, which all lie in the slot's line.
    Packed(Packed),
    /// Several versions. A cell in the slot has the address of each version.
    Cells(Cells),
    /// The newest version in separate memory, together with the columns in which older versions differ, or with
    /// whole older versions.
    Deltas(Deltas),
    /// One version in the slot. Each of the slot's lines contains the version's number.
    Lined(Lined),
}

/// The place where a version's payload lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadAt {
    /// The payload lies in the slot, at this offset.
    Slot(usize),
    /// The payload lies in the slot, between the versions of the slot's lines: see [`Lined::gather_payload`].
    Lines(Lined),
    /// The payload lies in separate memory, which begins at this address. The payload's offset in that memory is
    /// [`Slot::payload_at`].
    Apart(Address),
}

/// The newest version of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newest {
    /// The version.
    pub version: Version,
    /// The place where the version's payload lies.
    pub payload: PayloadAt,
}

/// A record to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// The record's table.
    pub table: TableId,
    /// The key word.
    pub key: u64,
    /// The full key, if the table's keys are longer than one word.
    pub full_key: &'a [u8],
    /// The address of the payload, if the payload lies in separate memory. Otherwise it is [`Address::NULL`].
    pub body: Address,
}

impl Slot {
    /// Whether a slot with this image, [`Slot::slot_bytes`] long, can take another record. A slot whose record was
    /// deleted cannot, as long as its versions may have readers. The protocol decides when the slot becomes free.
    #[inline]
    pub fn is_free(&self, image: &[u8]) -> bool {
        !version(image).is_present()
    }

    /// The newest version of the record in a slot with this image, if the slot has a record. Among several versions
    /// it is the newest committed version, and its [`Version`] is the version's timestamp.
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

    /// The place where the payload of a version lies.
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

    /// The addresses of the separate memory of the record in a slot with this image. The record has
    /// [`Slot::apart_bytes`] at each address.
    pub fn apart(&self, image: &[u8]) -> impl Iterator<Item = Address> {
        let cells = if self.is_free(image) || !self.is_out_of_line() { 0 } else { self.cells() };
        (0..cells).filter_map(|cell| match self.payload_of(image, cell) {
            PayloadAt::Apart(body) if !body.is_null() => Some(body),
            PayloadAt::Apart(_) | PayloadAt::Slot(_) | PayloadAt::Lines(_) => None,
        })
    }

    /// The number of bytes, from the slot's start, that are equal at all replicas while no transaction runs. The
    /// LOCK word among these bytes may differ. If the slot has no record, only the head must be the same, because
    /// an insert that was
    /// undone leaves bytes behind.
    pub fn replicated_bytes(&self, image: &[u8]) -> usize {
        match self.is_free(image) {
            true => self.body_at.unwrap_or(KEY_AT) + 8,
            false => self.slot_bytes,
        }
    }

    /// The offsets of all versions of the record in a slot with this image in their separate memory, the newest
    /// first. While no transaction runs, [`Slot::apart_bytes`] of each version are the same at every replica.
    /// Versions that no cell names may differ, since a copy that joined later does not have them. The bytes behind
    /// a version may belong to an earlier record.
    pub fn versions_apart(&self, image: &[u8]) -> Vec<usize> {
        match self.record {
            RecordLayout::Deltas(deltas) => deltas.versions_at(&words(image), self.payload_bytes),
            _ => vec![0],
        }
    }

    /// Writes all of a loaded record except its payload into an image of zeros. The timestamp of its first version
    /// is 1.
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

    /// Completes the separate memory of a loaded record whose payload is already written, if the layout needs more
    /// fields there.
    pub fn seal_loaded(&self, body: &mut [u8], key: u64) {
        match self.record {
            RecordLayout::Cells(_) => seal_record(&mut body[..self.apart_bytes()], 0, key),
            RecordLayout::Deltas(_) => {
                body[..STAMP_BYTES].copy_from_slice(&Version::LOADED.word().to_le_bytes());
            }
            RecordLayout::InPlace | RecordLayout::Packed(_) | RecordLayout::Lined(_) => {}
        }
    }

    /// Whether a transaction that changes a record keeps the old payload separately from the image that was read.
    /// The old payload must be kept in layouts whose slot may not have the old payload as contiguous bytes. In such
    /// layouts the payload lies in separate memory, in one of several versions, or in lines with versions between
    /// them.
    #[inline]
    pub fn keeps_old_payload(&self) -> bool {
        match self.record {
            RecordLayout::Lined(lined) => lined.lines() > 1,
            _ => self.is_out_of_line() || self.cells() > 1,
        }
    }

    /// The record's layout in lines, if the record has such a layout. A payload in such a layout must be copied out
    /// of the lines, and into the lines.
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
