//! New-Order: clause 2.4.
//!
//! Two fetches. The first brings and locks all that exists: warehouse, district, customer, items and
//! stocks; it takes two rounds, one to find the records and one to lock them and to read what lies
//! apart. The second inserts the order, the new order and the lines, whose keys it then knows.
//!
//! Invariant: an order that names an item which does not exist changes nothing (clause 2.4.1.4).

use super::Tally;
use super::input::Lines;
use super::random::is_original;
use super::scale::LINES_MAX;
use super::tables::{
    CUSTOMER, DISTRICT, ITEM, NEW_ORDER, ORDER_LINE, ORDERS, STOCK, WAREHOUSE, c_credit,
    c_discount, c_last, customer_key, d_next_o_id, d_tax, district_key, i_data, i_name, i_price,
    line_key, o_c_id, o_entry_d, o_lines, ol_amount, ol_dist_info, ol_i_id, ol_quantity,
    ol_supply_w_id, order_key, pack_lines, s_data, s_dist, s_order_cnt, s_quantity,
    s_remote_cnt, s_ytd, stock_key, w_tax, warehouse_key,
};
use tarn_engine::coordinator::Coordinator;
use tarn_engine::outcome::{AbortReason, Failure};
use tarn_engine::schema::{Cells, ColumnId, Key};
use tarn_engine::transaction::Transaction;
use tarn_engine::working_set::Handle;

const CUSTOMER_CELLS: Cells = Cells(bit(c_discount()) | bit(c_last()) | bit(c_credit()));
const DISTRICT_CELLS: Cells = Cells(bit(d_next_o_id()) | bit(d_tax()));
const ITEM_CELLS: Cells = Cells(bit(i_price()) | bit(i_name()) | bit(i_data()));
const STOCK_CELLS: Cells = Cells(
    bit(s_quantity()) | bit(s_ytd()) | bit(s_order_cnt()) | bit(s_remote_cnt()) | bit(s_data()),
);

const fn bit(column: ColumnId) -> u64 {
    1 << column.0
}

/// Who orders, and when.
#[derive(Clone, Copy)]
pub(super) struct Buyer {
    pub(super) w: u32,
    pub(super) d: u8,
    pub(super) c: u32,
    pub(super) date: u32,
}

/// What is known of a line once its item and stock are there.
#[derive(Clone, Copy, Default)]
struct Priced {
    cents: u64,
    dist_info: [u8; 24],
}

/// What the terminal shows beside the lines.
#[derive(Clone, Copy, Default)]
struct Shown {
    total_cents: u64,
    brand: u32,
}

#[inline]
pub(super) async fn run(
    coordinator: &mut Coordinator,
    buyer: Buyer,
    lines: &Lines,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let outcome = coordinator.transact(async |tx| order(tx, buyer, lines).await).await;
    match outcome {
        Ok(shown) => {
            std::hint::black_box(shown);
            tally.ordered(buyer.w, lines);
            Ok(())
        }
        Err(Failure::Abort(AbortReason::User)) => {
            tally.rolled_back += 1;
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

#[inline]
async fn order(
    tx: &mut Transaction<'_>,
    buyer: Buyer,
    lines: &Lines,
) -> Result<Shown, Failure> {
    let Buyer { w, d, c, .. } = buyer;
    let stock_cells = STOCK_CELLS.union(Cells::one(s_dist(d)));
    let stock = |tx: &mut Transaction<'_>, line: usize| {
        tx.update(STOCK, stock_key(lines[line].supply_w_id, lines[line].i_id), stock_cells)
    };
    // First what is found at its home.
    let customer = tx.read(CUSTOMER, customer_key(w, d, c), CUSTOMER_CELLS);
    let mut stocks = [customer; LINES_MAX as usize];
    for (line, handle) in stocks[..lines.len()].iter_mut().enumerate() {
        *handle = stock(tx, line);
    }
    let warehouse = tx.read(WAREHOUSE, warehouse_key(w), Cells::one(w_tax()));
    let district = tx.update(DISTRICT, district_key(w, d), DISTRICT_CELLS);
    let mut items = [customer; LINES_MAX as usize];
    for (line, handle) in lines.iter().zip(&mut items) {
        *handle = tx.read(ITEM, Key::Word(line.i_id.into()), ITEM_CELLS);
    }
    tx.fetch().await?;

    let mut priced = [Priced::default(); LINES_MAX as usize];
    let mut shown = Shown::default();
    for (index, line) in lines.iter().enumerate() {
        priced[index] = price(tx, items[index], stocks[index], d, line.quantity, &mut shown)?;
        let is_remote = line.supply_w_id != w;
        take_from_stock(tx, stocks[index], line.quantity, is_remote);
    }
    let o = next_order(tx, district)?;
    let rates = rates(tx, warehouse, district, customer)?;
    shown.total_cents = shown.total_cents * rates / 100_000_000;
    insert(tx, buyer, order_key(w, d, o), lines, &priced).await?;
    Ok(shown)
}

/// A line's amount and text; an item that does not exist rolls the order back.
#[inline]
fn price(
    tx: &Transaction<'_>,
    item: Handle,
    stock: Handle,
    d: u8,
    quantity: u8,
    shown: &mut Shown,
) -> Result<Priced, Failure> {
    let (Some(item), Some(stock)) = (tx.get(item), tx.get(stock)) else { return tx.abort() };
    let cents = u64::from(quantity) * item.u64(i_price());
    shown.total_cents += cents;
    // The brand is B only if both texts say so: the second is looked at if the first does.
    shown.brand +=
        u32::from(is_original(item.bytes(i_data())) && is_original(stock.bytes(s_data())));
    let mut dist_info = [0; 24];
    dist_info.copy_from_slice(stock.bytes(s_dist(d)));
    Ok(Priced { cents, dist_info })
}

/// Clause 2.4.2.2: a stock that falls below 10 is filled up by 91.
#[inline]
fn take_from_stock(tx: &mut Transaction<'_>, stock: Handle, quantity: u8, is_remote: bool) {
    let Some(row) = tx.get(stock) else { return };
    let (had, taken) = (row.u64(s_quantity()), u64::from(quantity));
    let (ytd, count) = (row.u64(s_ytd()), row.u64(s_order_cnt()));
    let remote = row.u64(s_remote_cnt());
    let left = if had >= taken + 10 { had - taken } else { had + 91 - taken };
    tx.set(stock, s_quantity(), left);
    tx.set(stock, s_ytd(), ytd + taken);
    tx.set(stock, s_order_cnt(), count + 1);
    if is_remote {
        tx.set(stock, s_remote_cnt(), remote + 1);
    }
}

/// Takes the district's next order number.
#[inline]
fn next_order(tx: &mut Transaction<'_>, district: Handle) -> Result<u32, Failure> {
    let Some(row) = tx.get(district) else { return tx.abort() };
    let o = row.u64(d_next_o_id());
    tx.set(district, d_next_o_id(), o + 1);
    Ok(o as u32)
}

/// (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX), in hundred-millionths.
#[inline]
fn rates(
    tx: &Transaction<'_>,
    warehouse: Handle,
    district: Handle,
    customer: Handle,
) -> Result<u64, Failure> {
    let (Some(warehouse), Some(district)) = (tx.get(warehouse), tx.get(district)) else {
        return tx.abort();
    };
    let Some(customer) = tx.get(customer) else { return tx.abort() };
    std::hint::black_box((customer.bytes(c_last()), customer.bytes(c_credit())));
    let taxes = warehouse.u64(w_tax()) + district.u64(d_tax());
    Ok((10_000 - customer.u64(c_discount())) * (10_000 + taxes))
}

#[inline]
async fn insert(
    tx: &mut Transaction<'_>,
    buyer: Buyer,
    key: u64,
    lines: &Lines,
    priced: &[Priced; LINES_MAX as usize],
) -> Result<(), Failure> {
    let order = tx.insert(ORDERS, key);
    tx.insert(NEW_ORDER, key);
    let mut handles = [order; LINES_MAX as usize];
    for (number, handle) in (1..=lines.len() as u8).zip(&mut handles) {
        *handle = tx.insert(ORDER_LINE, line_key(key, number));
    }
    tx.fetch().await?;
    let is_all_local = lines.iter().all(|line| line.supply_w_id == buyer.w);
    tx.set(order, o_c_id(), u64::from(buyer.c));
    tx.set(order, o_entry_d(), u64::from(buyer.date));
    tx.set(order, o_lines(), pack_lines(lines.len() as u8, is_all_local));
    for ((line, priced), &handle) in lines.iter().zip(priced).zip(&handles) {
        tx.set(handle, ol_i_id(), u64::from(line.i_id));
        tx.set(handle, ol_supply_w_id(), u64::from(line.supply_w_id));
        tx.set(handle, ol_quantity(), u64::from(line.quantity));
        tx.set(handle, ol_amount(), priced.cents);
        tx.set(handle, ol_dist_info(), &priced.dist_info);
    }
    Ok(())
}
