//! The memory layouts of the records in random schedules and in litmus tests.
//!
//! Invariant: every column has a whole number of words, so that a row can repeat one number in each of its words.

use super::named::named;
use std::str::FromStr;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;
use tarn_store::schema::{ColumnId, ColumnType, TableSchema};

const A: ColumnId = ColumnId(0);

named! {
    /// The memory layout of a table's records.
    pub enum Layout {
        /// A row of 16 bytes: the record's slot takes one line.
        Narrow = "narrow",
        /// A row of 88 bytes: the record's slot takes two lines.
        Double = "double",
        /// A row of 264 bytes, which is stored apart from the record's slot.
        Apart = "apart",
        /// A row of 8 bytes: the slots of two records share a line, and directory records have fingerprints.
        Half = "half",
    }
}

impl Layout {
    /// The schema of a table that has the layout's name. The index has only four buckets, so that buckets overflow
    /// and grow.
    pub(crate) fn schema(self) -> TableSchema {
        let table = TableSchema::new(self.name(), 1).column("a", ColumnType::U64);
        match self {
            Layout::Narrow => table.column("b", ColumnType::U64),
            Layout::Double => table.column("b", ColumnType::Bytes(80)),
            Layout::Apart => table.column("b", ColumnType::Bytes(248)).column("c", ColumnType::U64),
            Layout::Half => table.fingerprinted(),
        }
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        let layout = Layout::ALL.into_iter().find(|layout| layout.name() == text);
        layout.ok_or_else(|| Layout::ALL.map(Layout::name).join(", "))
    }
}

/// Writes `value` to every word of a row of `row_bytes` bytes. The length of the row determines the widths of the
/// row's columns: see [`Layout`].
pub(crate) fn fill(tx: &mut Transaction<'_>, row: Handle, row_bytes: usize, value: u64) {
    let bytes = value.to_le_bytes().repeat(row_bytes / 8);
    tx.set(row, A, value);
    match row_bytes {
        8 => {}
        16 => tx.set(row, ColumnId(1), value),
        88 => tx.set(row, ColumnId(1), &bytes[..80]),
        _ => {
            tx.set(row, ColumnId(1), &bytes[..248]);
            tx.set(row, ColumnId(2), value);
        }
    }
}
