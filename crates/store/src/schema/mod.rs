//! The schema of a database: tables of fixed-width typed columns.
//!
//! Invariant: a row's payload is its columns, packed in order, each at an offset that the schema alone
//! decides. A column is a *cell*, the unit in which records are read and written. A primary key that fits 64
//! bits is the record's key word itself. A longer one (up to 64 bytes) is hashed into the word and stored in
//! full, and the full key is always compared.

use crate::ids::UsageError;
use serde::{Deserialize, Serialize};

mod index_schema;
pub mod procedure;
pub mod range;
pub mod row;

pub use index_schema::{
    INDEX_KEY_BYTES_MAX, IndexId, IndexPart, IndexSchema, encode_column, primary_key_bytes,
};

/// The most columns of one table: a set of cells is one word.
pub const COLUMNS_MAX: usize = 64;
/// The longest row payload in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024;
/// The longest primary key in bytes.
pub const KEY_BYTES_MAX: usize = 64;

/// A table of the catalog.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct TableId(pub u16);

/// A column of a table, by position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ColumnId(pub u8);

/// A column's type. Integers are little-endian; text is padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnType {
    /// One byte.
    U8,
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
    /// Eight bytes.
    U64,
    /// Eight bytes, signed: money is in the smallest unit.
    I64,
    /// This many bytes.
    Bytes(u16),
}

impl ColumnType {
    /// Width in bytes.
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
    /// Offset in the payload, in bytes.
    pub offset_bytes: usize,
}

/// A set of cells of one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cells(pub u64);

impl Cells {
    /// Every column.
    pub const ALL: Cells = Cells(u64::MAX);
    /// No column: only the record's existence matters.
    pub const NONE: Cells = Cells(0);

    /// One column.
    #[inline]
    pub fn one(column: ColumnId) -> Cells {
        Cells(1 << column.0)
    }

    /// These columns.
    pub fn of(columns: &[ColumnId]) -> Cells {
        Cells(columns.iter().fold(0, |bits, column| bits | (1 << column.0)))
    }

    /// The union of both sets.
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
    /// The key fits 64 bits: the caller packs its key columns injectively into a word.
    Word,
    /// The key has this many bytes, 1 to [`KEY_BYTES_MAX`].
    Bytes(u8),
}

/// A primary key as callers give it.
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

/// A table as declared.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TableSchema {
    /// The table's name, unique within the database.
    pub name: String,
    /// Columns in payload order.
    pub columns: Vec<Column>,
    /// Width of the primary key.
    pub key: KeyWidth,
    /// The bits of the key word whose value decides the shard (LOTUS's critical field); zero
    /// means the whole key.
    pub critical_bits: u64,
    /// How many records the table is laid out for; it may grow beyond.
    pub expected_records: u64,
    /// Whether rows lie apart from their slots even if a slot has room for them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// Whether its buckets have fingerprints of the keys that they hold: see [`TableSchema::fingerprinted`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fingerprinted: bool,
    /// Its ordered indexes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexSchema>,
}

impl TableSchema {
    /// A table with a word for its key and no columns yet.
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

    /// Adds an ordered index over `parts`; if it is not unique, the primary key is appended to its
    /// keys.
    #[must_use]
    pub fn index(mut self, name: &str, parts: &[IndexPart], unique: bool) -> TableSchema {
        self.indexes.push(IndexSchema { name: name.to_owned(), parts: parts.to_vec(), unique });
        self
    }

    /// Sets the primary key's width in bytes, for keys that do not pack into a word.
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

    /// Makes rows lie apart from their slots, even if a slot of two lines had room for them. A bin is then
    /// one line instead of four. A row is read in a round of its own, together with the records that are
    /// locked.
    #[must_use]
    pub fn apart(mut self) -> TableSchema {
        self.apart = true;
        self
    }

    /// Makes directory records hold a fingerprint of each key in their bucket. An insert then reads one line
    /// instead of the bucket. This is for tables that grow; loading a record takes one more WRITE, of a byte.
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

    /// Size of a row's payload in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.columns.last().map_or(0, |last| last.offset_bytes + last.column_type.width_bytes())
    }

    /// The column called `name`.
    pub fn column_id(&self, name: &str) -> Option<ColumnId> {
        let position = self.columns.iter().position(|column| column.name == name)?;
        Some(ColumnId(position as u8))
    }

    /// Bytes of the stored full key: 0 when the key is a word.
    pub fn stored_key_bytes(&self) -> usize {
        match self.key {
            KeyWidth::Word => 0,
            KeyWidth::Bytes(width) => usize::from(width),
        }
    }

    /// Checks that the table can be stored.
    ///
    /// # Errors
    /// Names the field, the value, and the allowed values.
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
