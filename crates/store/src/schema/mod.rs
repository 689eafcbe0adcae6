//! The schema of a database: tables of fixed-width typed columns.
//!
//! Invariant: the payload of a row is its columns, packed in order, each at an offset that depends only on the
//! schema. A column is a *cell*, the unit in which records are read and written. If a primary key fits in 64 bits,
//! the record's key word is the primary key itself. A primary key of more than 64 bits (up to 64 bytes) is hashed
//! into the key word, and the slot also stores the full key. A look-up always compares the full key.

use crate::ids::UsageError;
use serde::{Deserialize, Serialize};

mod index_schema;
pub mod procedure;
pub mod range;
pub mod row;

pub use index_schema::{
    INDEX_KEY_BYTES_MAX, IndexId, IndexPart, IndexSchema, encode_column, primary_key_bytes,
};

/// The maximum number of columns of one table, because a set of columns is stored as the bits of one 64-bit word.
pub const COLUMNS_MAX: usize = 64;
/// The maximum length of a row's payload in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024;
/// The maximum length of a primary key in bytes.
pub const KEY_BYTES_MAX: usize = 64;

/// A table of the catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TableId(pub u16);

/// A column of a table, identified by its position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ColumnId(pub u8);

/// A column's type. Integers are little-endian; text is padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// An unsigned integer of one byte.
    U8,
    /// An unsigned integer of two bytes.
    U16,
    /// An unsigned integer of four bytes.
    U32,
    /// An unsigned integer of eight bytes.
    U64,
    /// A signed integer of eight bytes. Money is stored in its smallest unit.
    I64,
    /// A byte string, whose length in bytes is given.
    Bytes(u16),
}

impl ColumnType {
    /// The width of the type in bytes.
    #[inline]
    pub const fn width_bytes(self) -> usize {
        if let ColumnType::Bytes(width) = self {
            return width as usize;
        }
        match self {
            ColumnType::U8 => 1,
            ColumnType::U16 => 2,
            ColumnType::U32 => 4,
            _ => 8,
        }
    }
}

/// A column: its name, type and place in the payload.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Column {
    /// The column's name, unique within the table.
    pub name: String,
    /// The column's type.
    pub column_type: ColumnType,
    /// The offset of the column in the payload, in bytes.
    pub offset_bytes: usize,
}

/// A set of columns of one table, with one bit for each column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cells(pub u64);

impl Cells {
    /// The set of all columns of a table.
    pub const ALL: Cells = Cells(u64::MAX);
    /// The empty set of columns. An access with the empty set depends only on the existence of the record.
    pub const NONE: Cells = Cells(0);

    /// Returns the set that contains only `column`.
    #[inline]
    pub fn one(column: ColumnId) -> Cells {
        Cells(1 << column.0)
    }

    /// Returns the set that contains exactly these columns.
    pub fn of(columns: &[ColumnId]) -> Cells {
        Cells(columns.iter().fold(0, |bits, column| bits | (1 << column.0)))
    }

    /// The union of this set and `other`.
    #[inline]
    pub fn union(self, other: Cells) -> Cells {
        Cells(self.0 | other.0)
    }

    /// Whether `column` is in the set.
    #[inline]
    pub fn contains(self, column: ColumnId) -> bool {
        self.0 & (1 << column.0) != 0
    }

    /// Whether all cells of `other` are in the set.
    #[inline]
    pub fn covers(self, other: Cells) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The width of a table's primary key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyWidth {
    /// The key fits in 64 bits. The caller packs its key columns into one word, so that different keys give
    /// different words.
    Word,
    /// The key has this many bytes, 1 to [`KEY_BYTES_MAX`].
    Bytes(u8),
}

/// A primary key as a caller passes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key<'a> {
    /// The key of a table with [`KeyWidth::Word`].
    Word(u64),
    /// The key of a table with [`KeyWidth::Bytes`].
    Bytes(&'a [u8]),
}

impl From<u64> for Key<'_> {
    #[inline]
    fn from(word: u64) -> Self {
        Key::Word(word)
    }
}

impl<'a> From<&'a [u8]> for Key<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Key::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Key<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Key::Bytes(bytes)
    }
}

/// The declaration of a table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TableSchema {
    /// The table's name, unique within the database.
    pub name: String,
    /// The columns, in the order of the payload.
    pub columns: Vec<Column>,
    /// The width of the primary key.
    pub key: KeyWidth,
    /// The bits of the key word that decide the shard (the critical field of LOTUS). Zero means that all bits of the
    /// key word decide the shard.
    pub critical_bits: u64,
    /// The number of records for which the table is laid out. The table may grow beyond this number.
    pub expected_records: u64,
    /// Whether rows lie outside their hash slots even if a slot has room for a row: see [`TableSchema::apart`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// Whether the table's buckets have fingerprints of their keys: see [`TableSchema::fingerprinted`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fingerprinted: bool,
    /// The table's ordered indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexSchema>,
}

impl TableSchema {
    /// Creates a table whose key is a word and which has no columns yet.
    pub fn new(name: &str, expected_records: u64) -> TableSchema {
        let (name, columns) = (name.to_owned(), Vec::new());
        TableSchema {
            name,
            columns,
            key: KeyWidth::Word,
            critical_bits: 0,
            expected_records,
            apart: false,
            fingerprinted: false,
            indexes: Vec::new(),
        }
    }

    /// Adds an ordered index over the primary key.
    #[must_use]
    pub fn ordered(self, name: &str) -> TableSchema {
        self.index(name, &[IndexPart::Key], true)
    }

    /// Adds an ordered index over `parts`. If the index is not unique, the primary key is appended to its keys.
    #[must_use]
    pub fn index(mut self, name: &str, parts: &[IndexPart], unique: bool) -> TableSchema {
        self.indexes.push(IndexSchema { name: name.to_owned(), parts: parts.to_vec(), unique });
        self
    }

    /// Sets the primary key's width in bytes, for keys that do not fit in a word.
    #[must_use]
    pub fn key_bytes(mut self, width: u8) -> TableSchema {
        self.key = KeyWidth::Bytes(width);
        self
    }

    /// Sets the bits of the key word that decide the shard.
    #[must_use]
    pub fn critical_bits(mut self, bits: u64) -> TableSchema {
        self.critical_bits = bits;
        self
    }

    /// Makes rows lie outside their hash slots, even if a slot of two lines had room for a row. A bin of slots is
    /// then one line instead of four lines. A transaction then reads a row in a separate round, which also reads the
    /// records that it locks.
    #[must_use]
    pub fn apart(mut self) -> TableSchema {
        self.apart = true;
        self
    }

    /// Makes directory records hold a fingerprint of each key in their bucket. With fingerprints, an insert reads one
    /// line instead of the whole bucket. Fingerprints are useful for tables that grow. With fingerprints, loading a
    /// record takes one more WRITE of one byte.
    #[must_use]
    pub fn fingerprinted(mut self) -> TableSchema {
        self.fingerprinted = true;
        self
    }

    /// Adds a column.
    #[must_use]
    pub fn column(mut self, name: &str, column_type: ColumnType) -> TableSchema {
        let offset_bytes = self.payload_bytes();
        self.columns.push(Column { name: name.to_owned(), column_type, offset_bytes });
        self
    }

    /// The size of a row's payload in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.columns.last().map_or(0, |last| last.offset_bytes + last.column_type.width_bytes())
    }

    /// The column called `name`.
    pub fn column_id(&self, name: &str) -> Option<ColumnId> {
        let position = self.columns.iter().position(|column| column.name == name)?;
        Some(ColumnId(position as u8))
    }

    /// The number of bytes of the full key in a slot. Returns 0 if the primary key is one word.
    pub fn stored_key_bytes(&self) -> usize {
        match self.key {
            KeyWidth::Word => 0,
            KeyWidth::Bytes(width) => usize::from(width),
        }
    }

    /// Checks that the table can be stored.
    ///
    /// # Errors
    /// The error names the wrong field, its value, and the allowed values.
    pub fn validate(&self) -> Result<(), UsageError> {
        let refuse = |field: &str, value: String, allowed: String| {
            let field = format!("table {}: {field}", self.name);
            Err(UsageError { field, value, allowed })
        };
        if self.name.is_empty() {
            return refuse("name", "\"\"".into(), "a non-empty name".into());
        }
        let columns = self.columns.len();
        if columns == 0 || columns > COLUMNS_MAX {
            return refuse("columns", columns.to_string(), format!("1 to {COLUMNS_MAX}"));
        }
        for (index, column) in self.columns.iter().enumerate() {
            if self.columns[..index].iter().any(|other| other.name == column.name) {
                return refuse("column name", column.name.clone(), "unique names".into());
            }
            if column.column_type.width_bytes() == 0 {
                return refuse(
                    &format!("width of {}", column.name),
                    "0".into(),
                    "1 or more".into(),
                );
            }
        }
        let payload = self.payload_bytes();
        if payload > PAYLOAD_BYTES_MAX {
            let allowed = format!("at most {PAYLOAD_BYTES_MAX} bytes");
            return refuse("row", format!("{payload} bytes"), allowed);
        }
        if let KeyWidth::Bytes(width) = self.key
            && (width == 0 || usize::from(width) > KEY_BYTES_MAX)
        {
            let allowed = format!("1 to {KEY_BYTES_MAX} bytes");
            return refuse("key width", width.to_string(), allowed);
        }
        for (at, index) in self.indexes.iter().enumerate() {
            index.validate(self)?;
            if self.indexes[..at].iter().any(|other| other.name == index.name) {
                return refuse("index name", index.name.clone(), "unique names".into());
            }
        }
        Ok(())
    }
}
