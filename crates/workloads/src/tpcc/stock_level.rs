//! The transaction Stock-Level: clause 2.8.
//!
//! The transaction needs four fetches. The fetches read the district, the district's last 20 orders,
//! the lines of these orders, and the stocks of the items in these lines. The transaction reads each
//! stock only once. The specification allows Stock-Level to run as read committed. This
//! implementation of Stock-Level is serializable, like all other transactions.
//!
//! Invariant: the transaction is read-only.

use super::Tally;
use super::lines::read_lines;
use super::missing::Wanted;
use super::tables::{DISTRICT, ORDERS, STOCK, d_next_o_id, district_key, o_lines, ol_i_id, order_key, s_quantity, stock_key};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::Cells;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;

/// The number of orders that the transaction reads.
const ORDERS_SEEN: u32 = 20;

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    (w, d): (u32, u8),
    threshold: u8,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let wanted = Wanted::default();
    loop {
        match coordinator.transact_read_only(async |tx| count(tx, &wanted, (w, d), threshold).await).await {
            Ok(low) => {
                tally.levels += 1;
                tally.low_stocks += low;
                return Ok(());
            }
            Err(failure) => {
                if !wanted.is_again(coordinator, failure, tally).await? {
                    return Ok(());
                }
            }
        }
    }
}

/// Counts the different items in the last orders whose stock is below the threshold.
async fn count(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    (w, d): (u32, u8),
    threshold: u8,
) -> Result<u64, Failure> {
    let district = tx.read(DISTRICT, district_key(w, d), Cells::one(d_next_o_id()));
    tx.fetch().await?;
    let row = wanted.row(tx, (DISTRICT, district_key(w, d)), district)?;
    let next = row.u64(d_next_o_id()) as u32;
    let mut orders: Vec<(u64, Handle)> = Vec::with_capacity(ORDERS_SEEN as usize);
    for o in next.saturating_sub(ORDERS_SEEN).max(1)..next {
        let key = order_key(w, d, o);
        orders.push((key, tx.read(ORDERS, key, Cells::one(o_lines()))));
    }
    tx.fetch().await?;
    let mut items: Vec<u32> = Vec::with_capacity(300);
    read_lines(tx, wanted, &orders, |_, line| items.push(line.u64(ol_i_id()) as u32)).await?;
    items.sort_unstable();
    items.dedup();
    let read = |i: u32| {
        let key = stock_key(w, i);
        (key, tx.read(STOCK, key, Cells::one(s_quantity())))
    };
    let stocks: Vec<(u64, Handle)> = items.into_iter().map(read).collect();
    tx.fetch().await?;
    let mut low = 0;
    for (key, stock) in stocks {
        let quantity = wanted.row(tx, (STOCK, key), stock)?.u64(s_quantity());
        low += u64::from(quantity < u64::from(threshold));
    }
    Ok(low)
}
