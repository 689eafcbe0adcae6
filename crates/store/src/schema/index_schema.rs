//! Declarations of ordered indexes: they name the bytes of a record from which an index key is made.
//!
//! Invariant: all keys of one index have the same width and compare as bytes. Integers are stored big-endian, and
//! signed integers with the sign bit flipped. Text is padded with zeros to the column's width. Keys of an index that
//! is not unique end with the primary key, so that no two records have the same index key.

use crate::ids::UsageError;
use crate::schema::{ColumnId, ColumnType, KeyWidth, TableSchema};
use serde::{Deserialize, Serialize};

/// The maximum length of an index key in bytes. If an index is not unique, the length of its keys includes the
/// appended primary key.
pub const INDEX_KEY_BYTES_MAX: usize = 64;

/// An index of the catalog. An index's number is its position among all indexes of all tables: tables in order, and
/// the indexes of each table in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct IndexId(pub u16);

/// One part of an index key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexPart {
    /// The whole primary key. A key of one word is stored as 8 bytes, big-endian; a longer key is stored unchanged.
    Key,
    /// A field of the key word. In the index key, the field is stored big-endian, in the minimum number of bytes that
    /// hold `bits`.
    KeyBits {
        /// The field's lowest bit.
        shift: u8,
        /// The field's width in bits.
        bits: u8,
    },
    /// Some bytes of a primary key that is longer than a word, stored unchanged.
    KeyBytes {
        /// The position of the first byte in the primary key.
        at: u8,
        /// The number of bytes.
        bytes: u8,
    },
    /// A column. Integers are stored big-endian (signed ones with the sign bit flipped), and byte columns are
    /// stored unchanged.
    Column(ColumnId),
}

/// The declaration of an ordered index.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct IndexSchema {
    /// The index's name, unique within the table.
    pub name: String,
    /// The parts of the index's keys, with the first part first.
    pub parts: Vec<IndexPart>,
    /// Whether two records may not have the same parts. If `unique` is false, the primary key is appended to each
    /// index key.
    pub unique: bool,
}

/// The number of bytes that a primary key takes within an index key.
pub fn primary_key_bytes(key: KeyWidth) -> usize {
    match key {
        KeyWidth::Word => 8,
        KeyWidth::Bytes(width) => usize::from(width),
    }
}

impl IndexPart {
    /// The number of bytes that the part takes in an index key of `schema`.
    pub fn width_bytes(self, schema: &TableSchema) -> usize {
        match self {
            IndexPart::Key => primary_key_bytes(schema.key),
            IndexPart::KeyBits { bits, .. } => usize::from(bits).div_ceil(8),
            IndexPart::KeyBytes { bytes, .. } => usize::from(bytes),
            IndexPart::Column(column) => {
                schema.columns[usize::from(column.0)].column_type.width_bytes()
            }
        }
    }
}

impl IndexSchema {
    /// The number of bytes that the declared parts of the index take in an index key.
    pub fn parts_bytes(&self, schema: &TableSchema) -> usize {
        self.parts.iter().map(|part| part.width_bytes(schema)).sum()
    }

    /// The number of bytes of an index key: its parts, and the primary key if the index is not unique.
    pub fn used_bytes(&self, schema: &TableSchema) -> usize {
        let tail = if self.unique { 0 } else { primary_key_bytes(schema.key) };
        self.parts_bytes(schema) + tail
    }

    /// Checks that this index can be declared for `schema`.
    ///
    /// # Errors
    /// The error names the wrong field, its value, and the allowed values.
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
                IndexPart::KeyBytes { at, bytes } => {
                    let end = usize::from(at) + usize::from(bytes);
                    if bytes == 0 || end > schema.stored_key_bytes() {
                        let value = format!("{bytes} bytes from byte {at} on");
                        let most = schema.stored_key_bytes();
                        return refuse(
                            "key bytes",
                            value,
                            format!("bytes of a key of {most} bytes"),
                        );
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

/// Writes the bytes of a column in the form that compares correctly as bytes.
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
