//! Rows and the values of their columns.
//!
//! Invariant: integers are stored little-endian in the column's width, and text is padded with zeros. A row is a
//! view into the transaction's buffer. Reading a column copies only that column.

use crate::schema::{Column, ColumnId, ColumnType, TableSchema};

/// A record's payload, decoded by its schema.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    schema: &'a TableSchema,
    payload: &'a [u8],
}

impl<'a> Row<'a> {
    /// Creates a row from the bytes of `payload`.
    #[inline]
    pub fn new(schema: &'a TableSchema, payload: &'a [u8]) -> Row<'a> {
        Row { schema, payload }
    }

    /// The bytes of a column.
    #[inline]
    pub fn bytes(&self, column: ColumnId) -> &'a [u8] {
        let column = &self.schema.columns[usize::from(column.0)];
        &self.payload[column.offset_bytes..column.offset_bytes + column.column_type.width_bytes()]
    }

    /// The value of an unsigned column of up to 8 bytes.
    #[inline]
    pub fn u64(&self, column: ColumnId) -> u64 {
        let Column { column_type, offset_bytes, .. } = self.schema.columns[usize::from(column.0)];
        // Most columns have 8 bytes, so a column of 8 bytes is read without computing its width.
        if matches!(column_type, ColumnType::U64 | ColumnType::I64)
            && let Some(word) = self.payload[offset_bytes..].first_chunk()
        {
            return u64::from_le_bytes(*word);
        }
        self.narrow(column)
    }

    #[inline(never)]
    fn narrow(&self, column: ColumnId) -> u64 {
        // The usual column widths are matched one by one, because the compiler turns a copy of unknown length into a
        // function call.
        match *self.bytes(column) {
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
            [a, b, c] => u32::from_le_bytes([a, b, c, 0]).into(),
            [a, b] => u16::from_le_bytes([a, b]).into(),
            [a] => a.into(),
            ref bytes => {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(word)
            }
        }
    }

    /// The value of a signed column of 8 bytes.
    #[inline]
    pub fn i64(&self, column: ColumnId) -> i64 {
        self.u64(column) as i64
    }

    /// The bytes of a text column without its padding.
    pub fn text(&self, column: ColumnId) -> &'a [u8] {
        let bytes = self.bytes(column);
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        &bytes[..end]
    }

    /// The whole payload.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A value that a column can be set to.
pub trait Value {
    /// Writes the value into the column's bytes.
    fn store(&self, column: &mut [u8]);
}

impl Value for u64 {
    /// # Panics
    /// If the value does not fit into the column's width.
    #[inline]
    fn store(&self, column: &mut [u8]) {
        let bytes = self.to_le_bytes();
        let len = column.len();
        if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *column) {
            *word = bytes;
            return;
        }
        assert!(len < 8, "an integer needs a column of at most 8 bytes");
        assert!(self >> (len * 8) == 0, "{self} does not fit {len} bytes");
        // The usual column widths are matched one by one, because the compiler turns a copy of unknown length into a
        // function call.
        let [first, second, third, fourth, ..] = bytes;
        match column {
            [a] => *a = first,
            [a, b] => (*a, *b) = (first, second),
            [a, b, c] => (*a, *b, *c) = (first, second, third),
            [a, b, c, d] => (*a, *b, *c, *d) = (first, second, third, fourth),
            _ => column.copy_from_slice(&bytes[..len]),
        }
    }
}

impl Value for i64 {
    /// # Panics
    /// If the column does not have 8 bytes.
    #[inline]
    fn store(&self, column: &mut [u8]) {
        // The value is stored as one 64-bit word, because the compiler turns the copy of a slice into a function
        // call.
        *<&mut [u8; 8]>::try_from(column).expect("a column of 8 bytes") = self.to_le_bytes();
    }
}

impl Value for &[u8] {
    /// # Panics
    /// If the text is longer than the column.
    #[inline]
    fn store(&self, column: &mut [u8]) {
        let (text, padding) = column.split_at_mut(self.len());
        text.copy_from_slice(self);
        padding.fill(0);
    }
}

impl<const N: usize> Value for &[u8; N] {
    fn store(&self, column: &mut [u8]) {
        self.as_slice().store(column);
    }
}
