//! Delivery: clause 2.7.
//!
//! One transaction for all ten districts, run when it is asked for: the specification lets it be queued
//! and run later, and split into one for each district. Three fetches: the oldest new order of every
//! district, by ten range reads of one entry; the new orders, which are deleted, and the orders; the
//! lines and the customers.
//!
//! Invariant: a district without a new order is left alone (clause 2.7.4.2).

use super::Tally;
use super::lines::lines_of;
use super::scale::{DISTRICTS, LINES_MAX};
use super::tables::{
    CUSTOMER, NEW_ORDER, NEW_ORDER_OLDEST, ORDER_LINE, ORDERS, c_balance, c_delivery_cnt,
    customer_key, district_of, line_key, o_c_id, o_carrier_id, o_lines, ol_amount, ol_delivery_d,
    oldest_bounds,
};
use tarn_engine::coordinator::Coordinator;
use tarn_engine::outcome::Failure;
use tarn_engine::schema::{Cells, ColumnId, Key};
use tarn_engine::transaction::{Scan, Transaction};
use tarn_engine::working_set::Handle;

const fn bit(column: ColumnId) -> u64 {
    1 << column.0
}

const ORDER_CELLS: Cells = Cells(bit(o_c_id()) | bit(o_carrier_id()) | bit(o_lines()));
const LINE_CELLS: Cells = Cells(bit(ol_delivery_d()) | bit(ol_amount()));
const CUSTOMER_CELLS: Cells = Cells(bit(c_balance()) | bit(c_delivery_cnt()));

/// An order that is delivered.
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
    let keys = coordinator.transact(async |tx| deliver(tx, w, carrier, date).await).await?;
    tally.skipped += u64::from(DISTRICTS) - keys.len() as u64;
    for key in keys {
        tally.delivered(w, district_of(key));
    }
    Ok(())
}

/// Keys of the orders that were delivered.
async fn deliver(
    tx: &mut Transaction<'_>,
    w: u32,
    carrier: u8,
    date: u32,
) -> Result<Vec<u64>, Failure> {
    let orders = oldest(tx, w).await?;
    let mut lines = Vec::with_capacity(orders.len() * usize::from(LINES_MAX));
    let mut customers = Vec::with_capacity(orders.len());
    for (position, delivered) in orders.iter().enumerate() {
        let Some(row) = tx.get(delivered.order) else { continue };
        let (c, d) = (row.u64(o_c_id()) as u32, district_of(delivered.key));
        let count = lines_of(tx, delivered.order);
        tx.set(delivered.order, o_carrier_id(), u64::from(carrier));
        customers.push((position, tx.update(CUSTOMER, customer_key(w, d, c), CUSTOMER_CELLS)));
        for line in 1..=count {
            let key = line_key(delivered.key, line);
            lines.push((position, tx.update(ORDER_LINE, key, LINE_CELLS)));
        }
    }
    tx.fetch().await?;
    let mut cents = vec![0i64; orders.len()];
    for (position, line) in lines {
        let Some(row) = tx.get(line) else { continue };
        cents[position] += row.u64(ol_amount()) as i64;
        tx.set(line, ol_delivery_d(), u64::from(date));
    }
    for (position, customer) in customers {
        let Some(row) = tx.get(customer) else { continue };
        let balance = row.i64(c_balance()) + cents[position];
        let count = row.u64(c_delivery_cnt()) + 1;
        tx.set(customer, c_balance(), balance);
        tx.set(customer, c_delivery_cnt(), count);
    }
    Ok(orders.iter().filter(|it| tx.existed(it.new_order)).map(|it| it.key).collect())
}

/// The oldest new order of every district that has one, as it is deleted, and its order.
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
