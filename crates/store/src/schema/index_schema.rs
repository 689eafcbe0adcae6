//! Ordered indexes as they are declared: the bytes of a record that make an index key.
//!
//! Invariant: all keys of one index have the same width and compare as bytes. Integers stand big-endian, a
//! signed one with its sign bit flipped; text is padded with zeros. An index that is not unique has the
//! primary key at the end of its keys, so that no two records share a key.

use crate::ids::UsageError;
use crate::schema::{ColumnId, ColumnType, KeyWidth, TableSchema};
use serde::{Deserialize, Serialize};

/// The longest index key in bytes, including the primary key at the end of one that is not unique.
pub const INDEX_KEY_BYTES_MAX: usize = 64;

/// An index of the catalog, by its position: tables in order, and each table's indexes in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct IndexId(pub u16);

/// One part of an index key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexPart {
    /// The whole primary key: a word as 8 bytes, big-endian; longer ones as they are.
    Key,
    /// A field of the key word, big-endian in as few bytes as hold `bits`.
    KeyBits {
        /// The field's lowest bit.
        shift: u8,
        /// Its width in bits.
        bits: u8,
    },
    /// A column: integers big-endian (signed ones with the sign bit flipped), bytes as they are.
    Column(ColumnId),
}

/// An ordered index as declared.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct IndexSchema {
    /// The index's name, unique within the table.
    pub name: String,
    /// The parts of its keys, first part first.
    pub parts: Vec<IndexPart>,
    /// Whether no two records may have the same parts. If not, the primary key is appended.
    pub unique: bool,
}

/// Bytes of a primary key within an index key.
pub fn primary_key_bytes(key: KeyWidth) -> usize {
    match key {
        KeyWidth::Word => 8,
        KeyWidth::Bytes(width) => usize::from(width),
    }
}

impl IndexPart {
    /// How many bytes the part takes in an index key of `schema`.
    pub fn width_bytes(self, schema: &TableSchema) -> usize {
        match self {
            IndexPart::Key => primary_key_bytes(schema.key),
            IndexPart::KeyBits { bits, .. } => usize::from(bits).div_ceil(8),
            IndexPart::Column(column) => {
                schema.columns[usize::from(column.0)].column_type.width_bytes()
            }
        }
    }
}

impl IndexSchema {
    /// Bytes of the declared parts.
    pub fn parts_bytes(&self, schema: &TableSchema) -> usize {
        self.parts.iter().map(|part| part.width_bytes(schema)).sum()
    }

    /// Bytes of a key: the parts, and the primary key if the index is not unique.
    pub fn used_bytes(&self, schema: &TableSchema) -> usize {
        let tail = if self.unique { 0 } else { primary_key_bytes(schema.key) };
        self.parts_bytes(schema) + tail
    }

    /// Checks that an index of `schema` can be declared like this.
    ///
    /// # Errors
    /// Names the field, the value, and the allowed values.
    pub fn validate(&self, schema: &TableSchema) -> Result<(), UsageError> {
        let refuse = |field: &str, value: String, allowed: String| {
            let field = format!("table {}: index {}: {field}", schema.name, self.name);
            Err(UsageError { field, value, allowed })
        };
        if self.name.is_empty() {
            return refuse("name", "\"\"".into(), "a non-empty name".into());
        }
        if self.parts.is_empty() {
            return refuse("parts", "none".into(), "at least one".into());
        }
        for part in &self.parts {
            match *part {
                IndexPart::KeyBits { shift, bits } => {
                    let fits = bits > 0 && u32::from(shift) + u32::from(bits) <= 64;
                    if schema.key != KeyWidth::Word || !fits {
                        let value = format!("{bits} bits from bit {shift} on");
                        return refuse("key bits", value, "1 to 64 bits of a key word".into());
                    }
                }
                IndexPart::Column(column) if usize::from(column.0) >= schema.columns.len() => {
                    let allowed = format!("0 to {}", schema.columns.len().saturating_sub(1));
                    return refuse("column", column.0.to_string(), allowed);
                }
                IndexPart::Column(_) | IndexPart::Key => {}
            }
        }
        let bytes = self.used_bytes(schema);
        if bytes.next_multiple_of(8) > INDEX_KEY_BYTES_MAX {
            let allowed = format!("at most {INDEX_KEY_BYTES_MAX} bytes, the primary key included");
            return refuse("key", format!("{bytes} bytes"), allowed);
        }
        Ok(())
    }
}

/// Writes a column's bytes in the form in which they compare.
pub fn encode_column(column_type: ColumnType, stored: &[u8], to: &mut [u8]) {
    to.copy_from_slice(stored);
    match column_type {
        ColumnType::Bytes(_) => {}
        ColumnType::I64 => {
            to.reverse();
            to[0] ^= 0x80;
        }
        ColumnType::U8 | ColumnType::U16 | ColumnType::U32 | ColumnType::U64 => to.reverse(),
    }
}
