//! The transaction Order-Status: clause 2.6.
//!
//! The transaction needs three fetches, or four if the input names the customer by last name. The
//! additional first fetch finds the customer's number. The next fetch reads the customer, and finds
//! the newest order's key by a backward range read of one entry. The next fetch reads the order,
//! which contains the number of its lines. The last fetch reads the lines of this order.
//!
//! Invariant: the transaction is read-only.

use super::Tally;
use super::by_name::{middle, scan_names};
use super::input::Who;
use super::missing::Wanted;
use super::lines::read_lines;
use super::tables::{CUSTOMER, ORDERS, ORDERS_BY_CUSTOMER, c_balance, c_first, c_last, c_middle, customer_key, customer_of, district_prefix, ol_amount};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, ColumnId, Key};
use tarn_engine::session::transaction::{Scan, Transaction};

const fn bit(column: ColumnId) -> u64 {
    1 << column.0
}

const CUSTOMER_CELLS: Cells =
    Cells(bit(c_balance()) | bit(c_first()) | bit(c_middle()) | bit(c_last()));

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    (w, d): (u32, u8),
    who: Who,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let wanted = Wanted::default();
    let _ = loop {
        match coordinator.transact_read_only(async |tx| status(tx, &wanted, (w, d), who).await).await {
            Ok(shown) => break std::hint::black_box(shown),
            Err(failure) => {
                if !wanted.is_again(coordinator, failure, tally).await? {
                    return Ok(());
                }
            }
        }
    };
    tally.statuses += 1;
    tally.by_name += u64::from(matches!(who, Who::Name(_)));
    Ok(())
}

/// Returns the customer's balance and the amount of the customer's newest order.
async fn status(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    (w, d): (u32, u8),
    who: Who,
) -> Result<(i64, u64), Failure> {
    let key = match who {
        Who::Id(c) => customer_key(w, d, c),
        Who::Name(name) => {
            let names = scan_names(tx, w, d, name);
            tx.fetch().await?;
            let Some(key) = middle(tx, names) else { return tx.abort() };
            key
        }
    };
    let customer = tx.read(CUSTOMER, key, CUSTOMER_CELLS);
    let of_customer = district_prefix(w, d).u16(customer_of(key) as u16);
    let newest = tx.scan(ORDERS_BY_CUSTOMER, Scan::prefix(of_customer).limit(1).backward());
    tx.fetch().await?;
    let row = wanted.row(tx, (CUSTOMER, key), customer)?;
    std::hint::black_box((row.bytes(c_first()), row.bytes(c_middle()), row.bytes(c_last())));
    let balance = row.i64(c_balance());
    // Every customer has an order, because the initial population contains one order of each
    // customer.
    let Some(Key::Word(order)) = tx.scanned(newest).next().map(|entry| entry.record) else {
        return tx.abort();
    };
    let row = tx.read(ORDERS, order, Cells::ALL);
    tx.fetch().await?;
    let mut amount = 0;
    read_lines(tx, wanted, &[(order, row)], |_, line| amount += line.u64(ol_amount())).await?;
    Ok((balance, amount))
}
