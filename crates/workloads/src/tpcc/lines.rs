//! The lines of orders.
//!
//! ORDER-LINE has no ordered index. An order's lines are numbered from 1 without a gap, and the order's
//! row, which comes and changes with them, says how many there are: the keys of a range of orders' lines
//! are known from the orders, whose numbers are without a gap as well. A range read would bring the
//! same keys in the same round, and every New-Order would have to write ten more index entries.
//!
//! Invariant: nothing is guessed: an order that was read says which lines are read, both are validated
//! together, and condition 6 of the checks holds the number against the lines.

use super::scale::LINES_MAX;
use super::tables::{ORDER_LINE, line_count, line_key, o_lines};
use tarn_engine::outcome::Failure;
use tarn_engine::row::Row;
use tarn_engine::schema::Cells;
use tarn_engine::transaction::Transaction;
use tarn_engine::working_set::Handle;

/// Fetches the lines of orders that were read, and shows each with the position of its order.
pub(super) async fn read_lines(
    tx: &mut Transaction<'_>,
    orders: &[(u64, Handle)],
    mut show: impl FnMut(usize, Row<'_>),
) -> Result<(), Failure> {
    let mut lines: Vec<(usize, Handle)> =
        Vec::with_capacity(orders.len() * usize::from(LINES_MAX));
    for (position, &(key, order)) in orders.iter().enumerate() {
        for line in 1..=lines_of(tx, order) {
            lines.push((position, tx.read(ORDER_LINE, line_key(key, line), Cells::ALL)));
        }
    }
    tx.fetch().await?;
    for (position, line) in lines {
        if let Some(row) = tx.get(line) {
            show(position, row);
        }
    }
    Ok(())
}

/// How many lines an order has that was read; none if it is gone, which validation will find out.
#[inline]
pub(super) fn lines_of(tx: &Transaction<'_>, order: Handle) -> u8 {
    tx.get(order).map_or(0, |row| line_count(row.u64(o_lines())))
}
