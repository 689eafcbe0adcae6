//! Bit masks of the lines and words of a row in which its columns lie.
//!
//! Invariant: the mask of a set of columns is the union of the masks of its columns. Each bit is a unit (a line or a
//! word), so adjacent units are adjacent bits. Rows of more than 64 units have no masks. In a table without masks,
//! each column is processed by itself.

use crate::schema::{Cells, Column, TableSchema};
use tarn_fabric::address::LINE_BYTES;

/// The number of bytes of a word. WRITEs cover whole words.
pub const WORD_BYTES: usize = 8;

/// The masks of a table's columns: one mask of lines and one mask of words for each column.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    lines: Box<[u64]>,
    words: Box<[u64]>,
}

impl Reach {
    /// Computes the masks of the columns of `schema`.
    pub fn of(schema: &TableSchema) -> Reach {
        Reach { lines: masks(schema, LINE_BYTES), words: masks(schema, WORD_BYTES) }
    }

    /// The mask of the units of `unit` bytes in which the columns of `bits` lie. Returns `None` if a row has more
    /// than 64 such units.
    #[inline]
    pub fn units(&self, unit: usize, bits: u64) -> Option<u64> {
        let masks = match unit {
            LINE_BYTES => &self.lines,
            WORD_BYTES => &self.words,
            _ => return None,
        };
        if masks.is_empty() {
            return None;
        }
        let (mut left, mut units) = (bits, 0);
        while left != 0 {
            units |= masks[left.trailing_zeros() as usize];
            left &= left - 1;
        }
        Some(units)
    }

    /// Calls `run(from, to)` for the byte ranges of a payload in which the columns of `cells` lie. The ranges are
    /// widened so that they begin and end at multiples of `unit`, and merged if they touch.
    pub fn for_each_run(
        &self,
        columns: &[Column],
        cells: Cells,
        (unit, payload_bytes): (usize, usize),
        mut run: impl FnMut(usize, usize),
    ) {
        let every = u64::MAX >> (64 - columns.len());
        if cells.0 & every == every {
            let whole = payload_bytes.next_multiple_of(unit);
            return if whole > 0 {
                run(0, whole)
            };
        }
        if let Some(mut units) = self.units(unit, cells.0 & every) {
            while units != 0 {
                let from = units.trailing_zeros();
                let len = (units >> from).trailing_ones();
                units &= !(u64::MAX >> (64 - len) << from);
                run(from as usize * unit, (from + len) as usize * unit);
            }
            return;
        }
        let (mut from, mut to, mut left) = (0, 0, cells.0 & every);
        while left != 0 {
            let column = &columns[left.trailing_zeros() as usize];
            left &= left - 1;
            let start = column.offset_bytes / unit * unit;
            let end =
                (column.offset_bytes + column.column_type.width_bytes()).next_multiple_of(unit);
            if start > to {
                if to > from {
                    run(from, to);
                }
                from = start;
            }
            to = end.max(to);
        }
        if to > from {
            run(from, to);
        }
    }
}

fn masks(schema: &TableSchema, unit: usize) -> Box<[u64]> {
    if schema.payload_bytes() > 64 * unit {
        return Box::default();
    }
    let mask = |(start, end): (usize, usize)| {
        let (first, units) = (start / unit, end.div_ceil(unit) - start / unit);
        u64::MAX >> (64 - units) << first
    };
    let columns = schema.columns.iter();
    let ranges =
        columns.map(|it| (it.offset_bytes, it.offset_bytes + it.column_type.width_bytes()));
    ranges.map(mask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ColumnType;

    #[test]
    fn columns_reach_the_units_that_they_touch() {
        let schema = TableSchema::new("t", 1)
            .column("a", ColumnType::Bytes(60))
            .column("b", ColumnType::U64)
            .column("c", ColumnType::Bytes(500));
        let reach = Reach::of(&schema);
        assert_eq!(reach.units(LINE_BYTES, 0b001), Some(0b1));
        assert_eq!(reach.units(LINE_BYTES, 0b010), Some(0b11));
        assert_eq!(reach.units(LINE_BYTES, 0b101), Some(0b1_1111_1111));
        assert_eq!(reach.units(LINE_BYTES, 0), Some(0));
        // A row of 568 bytes has 71 words.
        assert_eq!(reach.units(WORD_BYTES, 0b001), None);
        let narrow = TableSchema::new("t", 1).column("a", ColumnType::Bytes(512));
        assert_eq!(Reach::of(&narrow).units(WORD_BYTES, 1), Some(u64::MAX));
    }
}
