//! The transaction Delivery: clause 2.7.
//!
//! One transaction delivers in all ten districts, and runs when it is requested. The specification
//! also allows a Delivery to be queued and run later, and to be split into one transaction per
//! district. The transaction needs three fetches. The first fetch has ten range reads of one entry,
//! which find the oldest new order of every district. The second fetch reads the rows of NEW-ORDER,
//! which the transaction deletes, and the rows of ORDERS. The third fetch reads the orders' lines and
//! customers.
//!
//! Invariant: the transaction changes nothing in a district without a new order (clause 2.7.4.2).

use super::Tally;
use super::lines::lines_of;
use super::missing::Wanted;
use super::scale::{DISTRICTS, LINES_MAX};
use super::tables::{CUSTOMER, NEW_ORDER, NEW_ORDER_OLDEST, ORDERS, ORDER_LINE, c_balance, c_delivery_cnt, customer_key, district_of, line_key, o_c_id, o_carrier_id, o_lines, ol_amount, ol_delivery_d, oldest_bounds};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, ColumnId, Key};
use tarn_engine::session::transaction::{Scan, Transaction};
use tarn_engine::transaction::working_set::Handle;

const fn bit(column: ColumnId) -> u64 {
    1 << column.0
}

const ORDER_CELLS: Cells = Cells(bit(o_c_id()) | bit(o_carrier_id()) | bit(o_lines()));
const LINE_CELLS: Cells = Cells(bit(ol_delivery_d()) | bit(ol_amount()));
const CUSTOMER_CELLS: Cells = Cells(bit(c_balance()) | bit(c_delivery_cnt()));

/// An order that the transaction delivers.
struct Delivered {
    key: u64,
    new_order: Handle,
    order: Handle,
}

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    w: u32,
    carrier: u8,
    date: u32,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let wanted = Wanted::default();
    let keys = loop {
        match coordinator.transact(async |tx| deliver(tx, &wanted, w, (carrier, date)).await).await {
            Ok(keys) => break keys,
            Err(failure) => {
                if !wanted.is_again(coordinator, failure, tally).await? {
                    return Ok(());
                }
            }
        }
    };
    tally.skipped += u64::from(DISTRICTS) - keys.len() as u64;
    for key in keys {
        tally.delivered(w, district_of(key));
    }
    Ok(())
}

/// Delivers the oldest new order of every district. Returns the keys of the delivered orders.
async fn deliver(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    w: u32,
    (carrier, date): (u8, u32),
) -> Result<Vec<u64>, Failure> {
    let orders = oldest(tx, w).await?;
    let mut lines = Vec::with_capacity(orders.len() * usize::from(LINES_MAX));
    let mut customers = Vec::with_capacity(orders.len());
    for (position, delivered) in orders.iter().enumerate() {
        let count = lines_of(tx, wanted, delivered.key, delivered.order)?;
        let row = wanted.row(tx, (ORDERS, delivered.key), delivered.order)?;
        let key = customer_key(w, district_of(delivered.key), row.u64(o_c_id()) as u32);
        tx.set(delivered.order, o_carrier_id(), u64::from(carrier));
        customers.push((key, tx.update(CUSTOMER, key, CUSTOMER_CELLS)));
        for line in 1..=count {
            let key = line_key(delivered.key, line);
            lines.push((position, key, tx.update(ORDER_LINE, key, LINE_CELLS)));
        }
    }
    tx.fetch().await?;
    let mut cents = vec![0i64; orders.len()];
    for (position, key, line) in lines {
        cents[position] += wanted.row(tx, (ORDER_LINE, key), line)?.u64(ol_amount()) as i64;
        tx.set(line, ol_delivery_d(), u64::from(date));
    }
    for ((key, customer), cents) in customers.into_iter().zip(cents) {
        let row = wanted.row(tx, (CUSTOMER, key), customer)?;
        let (balance, count) = (row.i64(c_balance()) + cents, row.u64(c_delivery_cnt()) + 1);
        tx.set(customer, c_balance(), balance);
        tx.set(customer, c_delivery_cnt(), count);
    }
    Ok(orders.iter().filter(|it| tx.existed(it.new_order)).map(|it| it.key).collect())
}

/// Deletes the oldest new order of every district that has a new order. Returns each deleted new
/// order together with its order.
async fn oldest(tx: &mut Transaction<'_>, w: u32) -> Result<Vec<Delivered>, Failure> {
    let scan = |d: u8| {
        let (from, to) = oldest_bounds(w, d);
        Scan::range(from, to).limit(1)
    };
    let scans: Vec<_> = (1..=DISTRICTS).map(|d| tx.scan(NEW_ORDER_OLDEST, scan(d))).collect();
    tx.fetch().await?;
    let mut orders = Vec::with_capacity(scans.len());
    for scan in scans {
        let first = tx.scanned(scan).next().map(|entry| entry.record);
        let Some(Key::Word(key)) = first else { continue };
        let new_order = tx.delete(NEW_ORDER, key);
        let order = tx.update(ORDERS, key, ORDER_CELLS);
        orders.push(Delivered { key, new_order, order });
    }
    tx.fetch().await?;
    Ok(orders)
}
