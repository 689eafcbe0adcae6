//! How the records of random schedules and of litmuses lie in memory.
//!
//! Invariant: every column is whole words, so that a row can say one number in each of them.

use super::named::named;
use std::str::FromStr;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;
use tarn_store::schema::{ColumnId, ColumnType, TableSchema};

const A: ColumnId = ColumnId(0);

named! {
    /// How a table's records lie.
    pub enum Layout {
        /// 16 bytes: a slot of one line.
        Narrow = "narrow",
        /// 88 bytes: a slot of two lines.
        Double = "double",
        /// 264 bytes, away from the slot.
        Apart = "apart",
        /// 8 bytes: two slots share a line; directory records have fingerprints.
        Half = "half",
    }
}

impl Layout {
    /// The table, which has the layout's name, laid out for one record: four buckets, which overflow and grow.
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

/// Writes `value` to every word of a row of so many bytes: columns are as wide as the row's length
/// says, see [`Layout`].
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
