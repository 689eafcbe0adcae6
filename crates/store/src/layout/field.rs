//! Gives each field of a slot a name, for use in traces and pictures of memory.
//!
//! Invariant: every byte of a slot has one name, in every layout. All code that shows memory uses these names.

use super::{
    CELL_BYTES, CELL_PREV_TS_AT, CELL_TO_AT, CELL_TXN_AT, CELLS_AT, DELTA_CELL_BYTES,
    DELTA_CELLS_AT, HEADER_BYTES, KEY_AT, LVER_BYTES, Lined, NEWEST_AT, PACKED_WRITER_AT,
    RecordLayout, Slot, VERSION_AT,
};
use std::fmt;
use tarn_fabric::address::LINE_BYTES;

/// The field that a byte of a slot belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// The record's lock, or the mark of a slot that is being changed.
    Lock,
    /// The version of the record, if the record has only one version. For a record of several versions, this field
    /// tells whether the slot has a record.
    Version,
    /// The key word of the record.
    Key,
    /// The full key of the record.
    FullKey,
    /// The address of the record's body.
    Body,
    /// The table, the payload size and the number of cells.
    Shape,
    /// The columns of the row in the version with this number.
    Payload(usize),
    /// The commit time of the version with this number, or a mark that this version is not committed.
    Committed(usize),
    /// The transaction that wrote the version with this number.
    Writer(usize),
    /// The address of the record of the version with this number.
    To(usize),
    /// The newest version that was discarded from the place with this number.
    Discarded(usize),
    /// The transaction that wrote the record last.
    LastWriter,
    /// The byte belongs to no field.
    Unused,
}

impl Field {
    /// Whether the field belongs to one of several versions.
    pub fn is_of_version(self) -> bool {
        use Field::{Committed, Discarded, Payload, To, Writer};
        matches!(self, Committed(_) | Writer(_) | To(_) | Discarded(_) | Payload(_))
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Lock => f.write_str("lock"),
            Field::Version => f.write_str("version"),
            Field::Key => f.write_str("key"),
            Field::FullKey => f.write_str("full key"),
            Field::Body => f.write_str("body's address"),
            Field::Shape => f.write_str("shape"),
            Field::Payload(cell) => write!(f, "payload {cell}"),
            Field::Committed(cell) => write!(f, "cell {cell}"),
            Field::Writer(cell) => write!(f, "cell {cell}'s writer"),
            Field::To(cell) => write!(f, "cell {cell}'s address"),
            Field::Discarded(cell) => write!(f, "what cell {cell} discarded"),
            Field::LastWriter => f.write_str("last writer"),
            Field::Unused => f.write_str("nothing"),
        }
    }
}

/// Returns the field of a byte in a slot whose old versions are stored as deltas. Version 0 is the newest; version n
/// is the version of cell n - 1.
fn delta_field(into: usize) -> Field {
    let cell = |into: usize| into / DELTA_CELL_BYTES + 1;
    match into {
        _ if into < NEWEST_AT => Field::Body,
        _ if into < DELTA_CELLS_AT => Field::Committed(0),
        _ if (into - DELTA_CELLS_AT) % DELTA_CELL_BYTES < 8 => {
            Field::Committed(cell(into - DELTA_CELLS_AT))
        }
        _ => Field::To(cell(into - DELTA_CELLS_AT)),
    }
}

impl Slot {
    /// The field that lies `into` bytes into a slot.
    pub fn field_at(&self, into: usize) -> Field {
        match into {
            _ if into < VERSION_AT => return Field::Lock,
            _ if into < KEY_AT => return Field::Version,
            _ if into < HEADER_BYTES => return Field::Key,
            _ => {}
        }
        let full_key = self.full_key_at..self.full_key_at + self.full_key_bytes;
        match self.record {
            _ if full_key.contains(&into) => Field::FullKey,
            _ if into >= self.used_bytes() => Field::Unused,
            RecordLayout::InPlace if self.body_at.is_some() => Field::Body,
            RecordLayout::InPlace if into >= self.payload_at => Field::Payload(0),
            RecordLayout::InPlace => Field::Unused,
            RecordLayout::Packed(packed) => packed_field(packed, into, self.payload_bytes),
            RecordLayout::Cells(_) if into < CELLS_AT => Field::Shape,
            RecordLayout::Cells(cells) if into < cells.end() => cell_field(into - CELLS_AT),
            RecordLayout::Cells(_) => Field::Unused,
            RecordLayout::Deltas(_) => delta_field(into),
            RecordLayout::Lined(lined) => lined_field(lined, into),
        }
    }
}

fn lined_field(lined: Lined, into: usize) -> Field {
    match into {
        _ if into >= LINE_BYTES && into % LINE_BYTES < LVER_BYTES => Field::Version,
        _ if into < lined.row_at() => Field::LastWriter,
        _ if into < lined.row_at() + lined.payload_at() => Field::Unused, // padding behind the full key
        _ => Field::Payload(0),
    }
}

fn packed_field(packed: super::Packed, into: usize, payload_bytes: usize) -> Field {
    let cells = 0..packed.count();
    let within = |from: usize, len: usize| (from..from + len).contains(&into);
    if within(PACKED_WRITER_AT, 8) {
        return Field::LastWriter;
    }
    let versions = cells.clone().find(|&cell| within(packed.version_at(cell), 8));
    let mut payloads = cells.filter(|&cell| within(packed.payload_at(cell), payload_bytes));
    let payload = payloads.next().map(Field::Payload);
    versions.map(Field::Committed).or(payload).unwrap_or(Field::Unused)
}

fn cell_field(into: usize) -> Field {
    let cell = into / CELL_BYTES;
    match into % CELL_BYTES / 8 * 8 {
        CELL_TXN_AT => Field::Writer(cell),
        CELL_TO_AT => Field::To(cell),
        CELL_PREV_TS_AT => Field::Discarded(cell),
        _ => Field::Committed(cell),
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::{LayoutKind, Records};
    use crate::schema::{ColumnType, TableSchema};

    fn fields(layout: LayoutKind, payload: u16, key: u8) -> Vec<String> {
        let mut schema = TableSchema::new("t", 1).column("a", ColumnType::Bytes(payload));
        if key > 0 {
            schema = schema.key_bytes(key);
        }
        let slot = layout.slot(&schema);
        let words = (0..slot.slot_bytes).step_by(8);
        words.map(|into| slot.field_at(into).to_string()).collect()
    }

    #[test]
    fn every_word_of_a_slot_has_its_name() {
        let one = LayoutKind::SingleVersion;
        let head = ["lock", "version", "key"].map(String::from);
        assert_eq!(fields(one, 8, 0)[3..], ["payload 0"]);
        assert_eq!(fields(one, 200, 0), [&head[..], &["body's address".into()]].concat());
        let keyed = fields(one, 16, 9);
        assert_eq!(keyed[3..], ["full key", "full key", "payload 0", "payload 0", "nothing"]);
        let lined = fields(LayoutKind::Lined { halves: true }, 40, 9);
        assert_eq!(lined[3..6], ["last writer", "full key", "full key"]);
        assert_eq!(lined[6..10], ["payload 0", "payload 0", "version", "payload 0"]);
        assert_eq!(lined[10..13], ["payload 0", "payload 0", "nothing"]);
        let packed = LayoutKind::MultiVersion { cells: 2, records: Records::Auto };
        let named = ["cell 0", "cell 1", "payload 0", "payload 1", "last writer"];
        assert_eq!(fields(packed, 8, 0)[3..], named);
        let apart = fields(LayoutKind::MultiVersion { cells: 2, records: Records::Apart }, 8, 9);
        assert_eq!(apart[..3], head);
        let cell = |cell: usize| {
            [
                format!("cell {cell}"),
                format!("cell {cell}'s writer"),
                format!("cell {cell}'s address"),
                format!("what cell {cell} discarded"),
            ]
        };
        assert_eq!(apart[3], "shape");
        assert_eq!(apart[4..12], [cell(0), cell(1)].concat());
        assert_eq!(apart[12..], ["full key", "full key", "nothing", "nothing"]);
    }
}
