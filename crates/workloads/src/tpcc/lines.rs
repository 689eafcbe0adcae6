//! Reads the lines of orders.
//!
//! ORDER-LINE has no ordered index. An order's lines are numbered from 1 without a gap. The order's
//! row contains the number of its lines. Transactions insert and change this row together with the
//! lines. Orders are also numbered without a gap. So a transaction that has read some orders knows
//! the keys of all their lines. A range read would return the same keys in the same round. But with
//! an ordered index every New-Order would have to write ten more index entries.
//!
//! Invariant: a transaction reads an order first, and then reads exactly the lines that this order
//! has. The transaction validates these orders and lines together. Condition 6 of the checks compares
//! the number of lines in an order with its lines.

use super::missing::Wanted;
use super::scale::LINES_MAX;
use super::tables::{ORDERS, ORDER_LINE, line_count, line_key, o_lines};
use tarn_store::ids::Failure;
use tarn_store::schema::row::Row;
use tarn_store::schema::Cells;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;

/// Fetches the lines of orders that the transaction has read. Calls a function with each line and the
/// position of the line's order.
pub(super) async fn read_lines(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    orders: &[(u64, Handle)],
    mut show: impl FnMut(usize, Row<'_>),
) -> Result<(), Failure> {
    let mut lines: Vec<(usize, u64, Handle)> =
        Vec::with_capacity(orders.len() * usize::from(LINES_MAX));
    for (position, &(key, order)) in orders.iter().enumerate() {
        for line in 1..=lines_of(tx, wanted, key, order)? {
            let key = line_key(key, line);
            lines.push((position, key, tx.read(ORDER_LINE, key, Cells::ALL)));
        }
    }
    tx.fetch().await?;
    for (position, key, line) in lines {
        show(position, wanted.row(tx, (ORDER_LINE, key), line)?);
    }
    Ok(())
}

/// Returns the number of lines of an order that the transaction has read.
#[inline]
pub(super) fn lines_of(
    tx: &Transaction<'_>,
    wanted: &Wanted,
    key: u64,
    order: Handle,
) -> Result<u8, Failure> {
    Ok(line_count(wanted.row(tx, (ORDERS, key), order)?.u64(o_lines())))
}
