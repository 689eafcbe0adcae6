//! The layout of a database's records, and functions that read a slot of any layout.
//!
//! Invariant: code that fills tables, inspects memory or names the fields that a verb accessed reads a slot's record
//! only through this file. So a new layout needs only one more variant of [`LayoutKind`] and of [`RecordLayout`],
//! with the match arms for these variants. Two parts of a layout are used outside this file. First, slots, directory
//! records and nodes have a head of LOCK, VERSION and KEY in every layout, and indexes find keys by this head.
//! Second, a protocol accesses its own layout directly, because the protocol knows the bytes of that layout.

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

/// The layout of all records of a database. The protocol chooses the layout, and the stamp of the plan depends on the
/// layout.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutKind {
    /// A record has one version, and a writer changes it in place.
    #[default]
    SingleVersion,
    /// A record has one version, and a writer changes it in place. Lock words count tickets
    /// ([`TicketWord`](super::TicketWord)).
    Ticketed,
    /// A record has several versions, each with its commit time.
    MultiVersion {
        /// The number of versions, 1 to [`CELLS_MAX`].
        cells: u8,
        /// The place where the versions lie.
        records: Records,
    },
    /// A record stores the newest version whole. For each older version, it stores only the columns that differ.
    Deltas {
        /// The number of versions, 1 to [`super::DELTA_VERSIONS_MAX`].
        cells: u8,
    },
    /// Slots have the same form as in `Deltas`, but each version is stored whole.
    Wholes {
        /// The number of versions, 1 to [`super::DELTA_VERSIONS_MAX`].
        cells: u8,
    },
    /// A record has one version, and every line of the record contains this version's number.
    Lined {
        /// Whether a record takes only half a line if half a line has room for it. A record of half a line does not
        /// name its writer.
        halves: bool,
    },
}

/// The place where the versions of a record lie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Records {
    /// The versions lie in the slot's line if the line has room for them, and otherwise in separate memory.
    #[default]
    Auto,
    /// Each version lies in separate memory.
    Apart,
}

impl LayoutKind {
    /// Returns the slot for rows of `schema` in this layout.
    ///
    /// # Panics
    /// If the number of cells is 0 or greater than the maximum. [`LayoutKind::validate`] refuses such layouts
    /// earlier.
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
    /// The error names the field that is not possible, its value, and the allowed values.
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
    /// The error names the field, its value and the allowed values, as the error of [`LayoutKind::validate`] does.
    pub fn validate_schema(self, schema: &TableSchema) -> Result<(), UsageError> {
        match self {
            LayoutKind::Lined { .. } => Lined::validate(schema),
            _ => Ok(()),
        }
    }
}

/// Formats the layout's name, which a memory node's superblock contains. If the meaning of a layout's bytes changes,
/// its name gets a greater number.
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
    /// The record has one version. VERSION in the head is the record's version. The payload lies in the slot, or at
    /// an address in the slot.
    InPlace,
    /// The record has several versions, which all lie in the slot's line.
    Packed(Packed),
    /// The record has several versions. For each version, a cell in the slot has the version's address.
    Cells(Cells),
    /// The newest version lies in separate memory. The memory of the newest version also contains either the columns
    /// in which older versions differ, or whole older versions.
    Deltas(Deltas),
    /// The record has one version, which lies in the slot. Each of the slot's lines contains the version's number.
    Lined(Lined),
}

/// The place where a version's payload lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadAt {
    /// The payload lies in the slot, at this offset.
    Slot(usize),
    /// The payload lies in several lines of the slot, each of which begins with a version: see
    /// [`Lined::gather_payload`].
    Lines(Lined),
    /// The payload lies in separate memory, which begins at this address. The payload's offset in that memory is
    /// [`Slot::payload_at`].
    Apart(Address),
}

/// The newest version of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Newest {
    /// The number of the version. For layouts with several versions, it is made from the version's timestamp.
    pub version: Version,
    /// The place where the version's payload lies.
    pub payload: PayloadAt,
}

/// A record that a loader writes before any transaction runs.
#[derive(Clone, Copy, Debug)]
pub struct Loaded<'a> {
    /// The table of the record to be loaded.
    pub table: TableId,
    /// The key word of the record to be loaded.
    pub key: u64,
    /// The full key, if the table's keys are longer than one word.
    pub full_key: &'a [u8],
    /// The address of the payload, if the payload lies in separate memory. If the payload lies in the slot, this
    /// field is [`Address::NULL`].
    pub body: Address,
}

impl Slot {
    /// Whether a slot with this image, [`Slot::slot_bytes`] long, can take another record. As long as readers may use
    /// versions of a deleted record, its slot cannot take another record. The protocol decides when the slot becomes
    /// free.
    #[inline]
    pub fn is_free(&self, image: &[u8]) -> bool {
        !version(image).is_present()
    }

    /// The newest version of the record in a slot with this image, if the slot has a record. In layouts with several
    /// versions, the result is the newest committed version, and its [`Version`] is the version's timestamp.
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

    /// The number of bytes, from the slot's start, that are equal at all replicas while no transaction runs. The LOCK
    /// word among these bytes may differ. If the slot has no record, only the head must be the same at all replicas,
    /// because an insert that was undone leaves bytes behind.
    pub fn replicated_bytes(&self, image: &[u8]) -> usize {
        match self.is_free(image) {
            true => self.body_at.unwrap_or(KEY_AT) + 8,
            false => self.slot_bytes,
        }
    }

    /// Returns the offsets, in the record's separate memory, of all versions of the record in a slot with this image.
    /// The newest version comes first. While no transaction runs, every replica has the same [`Slot::apart_bytes`]
    /// bytes of each version. Versions that no cell names may differ, since a copy that joined later does not have
    /// them. The bytes behind a version may belong to an earlier record.
    pub fn versions_apart(&self, image: &[u8]) -> Vec<usize> {
        match self.record {
            RecordLayout::Deltas(deltas) => deltas.versions_at(&words(image), self.payload_bytes),
            _ => vec![0],
        }
    }

    /// Writes all of a loaded record except its payload into an image of zeros. The timestamp of a loaded record's
    /// first version is 1.
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

    /// Completes the separate memory `body` of a loaded record, whose payload is already written. Some layouts need
    /// more fields beside the payload.
    pub fn seal_loaded(&self, body: &mut [u8], key: u64) {
        match self.record {
            RecordLayout::Cells(_) => seal_record(&mut body[..self.apart_bytes()], 0, key),
            RecordLayout::Deltas(_) => {
                body[..STAMP_BYTES].copy_from_slice(&Version::LOADED.word().to_le_bytes());
            }
            RecordLayout::InPlace | RecordLayout::Packed(_) | RecordLayout::Lined(_) => {}
        }
    }

    /// Whether a transaction that changes a record keeps the old payload separately from the image that was read. The
    /// transaction must keep the old payload in layouts whose slot may not have the payload as contiguous bytes. The
    /// payload may lie in separate memory, in one of several versions, or in lines with versions between them.
    #[inline]
    pub fn keeps_old_payload(&self) -> bool {
        match self.record {
            RecordLayout::Lined(lined) => lined.lines() > 1,
            _ => self.is_out_of_line() || self.cells() > 1,
        }
    }

    /// Returns the record's layout in lines with versions, if the record has this layout. The payload of a record in
    /// lines is not contiguous, so it must be copied out of the lines and into the lines.
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
