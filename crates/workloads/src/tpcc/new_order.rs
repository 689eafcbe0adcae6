//! The transaction New-Order: clause 2.4.
//!
//! The transaction has two fetches of two rounds each. The first round of a fetch finds the records.
//! The second round locks the records and reads rows that are stored outside of their slots. The
//! first fetch reads the district, whose next order number is part of the keys of all inserted rows.
//! The first fetch also reads the items, which no transaction changes. The second fetch reads all
//! other records. If one fetch read all records together, the stocks would be locked for two rounds
//! longer. The warehouse's tax would also be exposed for two rounds longer to Payments, which
//! overwrite the memory line beside it. The profile of measured systems instead fetches one order
//! line after the other, as FORD's public code does. This profile needs two fetches, and two more for
//! each of the ten lines.
//!
//! Invariant: an order that names an item which does not exist changes nothing. The transaction
//! enters the order's other lines before it is rolled back (clauses 2.4.2.2, 2.4.2.3).

use super::Tally;
use super::input::{Line, Lines};
use super::missing::Wanted;
use super::random::is_original;
use super::scale::LINES_MAX;
use super::tables::{CUSTOMER, DISTRICT, ITEM, NEW_ORDER, ORDERS, ORDER_LINE, STOCK, WAREHOUSE, c_credit, c_discount, c_last, customer_key, d_next_o_id, d_tax, district_key, i_data, i_name, i_price, line_key, o_c_id, o_entry_d, o_lines, ol_amount, ol_dist_info, ol_i_id, ol_quantity, ol_supply_w_id, order_key, pack_lines, s_data, s_dist, s_order_cnt, s_quantity, s_remote_cnt, s_ytd, stock_key, w_tax, warehouse_key};
use tarn_engine::session::coordinator::Coordinator;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::schema::{Cells, ColumnId};
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;

const CUSTOMER_CELLS: Cells = Cells(bit(c_discount()) | bit(c_last()) | bit(c_credit()));
const DISTRICT_CELLS: Cells = Cells(bit(d_next_o_id()) | bit(d_tax()));
const ITEM_CELLS: Cells = Cells(bit(i_price()) | bit(i_name()) | bit(i_data()));
const STOCK_CELLS: Cells = Cells(
    bit(s_quantity()) | bit(s_ytd()) | bit(s_order_cnt()) | bit(s_remote_cnt()) | bit(s_data()),
);

const fn bit(column: ColumnId) -> u64 {
    1 << column.0
}

/// The customer that orders, and the date.
#[derive(Clone, Copy)]
pub(super) struct Buyer {
    pub(super) w: u32,
    pub(super) d: u8,
    pub(super) c: u32,
    /// An item number that no item has.
    pub(super) i_unused: u32,
    pub(super) date: u32,
}

/// The data that the terminal shows beside the lines.
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
    is_line_by_line: bool,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let wanted = Wanted::default();
    let is_unused = lines.last().is_some_and(|line| line.i_id == buyer.i_unused);
    loop {
        let ended = match is_line_by_line {
            false => coordinator.transact(async |tx| order(tx, &wanted, buyer, lines).await).await,
            true => {
                coordinator
                    .transact(async |tx| order_line_by_line(tx, &wanted, buyer, lines).await)
                    .await
            }
        };
        match ended {
            Ok(shown) => {
                std::hint::black_box(shown);
                tally.ordered(buyer.w, lines);
                return Ok(());
            }
            Err(Failure::Abort(AbortReason::User)) if is_unused && wanted.is_complete() => {
                tally.rolled_back += 1;
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

#[inline]
async fn order(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    buyer: Buyer,
    lines: &Lines,
) -> Result<Shown, Failure> {
    let Buyer { w, d, c, .. } = buyer;
    let district = tx.update(DISTRICT, district_key(w, d), DISTRICT_CELLS);
    let mut items = [district; LINES_MAX as usize];
    for (line, handle) in lines.iter().zip(&mut items) {
        *handle = tx.read(ITEM, u64::from(line.i_id), ITEM_CELLS);
    }
    tx.fetch().await?;
    let o = next_order(tx, wanted, district, district_key(w, d))?;

    let real = real(buyer, lines);
    let key = order_key(w, d, o);
    let mut stocks = [district; LINES_MAX as usize];
    for (line, handle) in real.iter().zip(&mut stocks) {
        *handle = tx.update(STOCK, stock_key(line.supply_w_id, line.i_id), stock_cells(d));
    }
    let warehouse = tx.read(WAREHOUSE, warehouse_key(w), Cells::one(w_tax()));
    let customer = tx.read(CUSTOMER, customer_key(w, d, c), CUSTOMER_CELLS);
    let order = tx.insert(ORDERS, key);
    tx.insert_zeros(NEW_ORDER, key);
    let mut handles = [district; LINES_MAX as usize];
    for (number, handle) in (1..=real.len() as u8).zip(&mut handles) {
        *handle = tx.insert(ORDER_LINE, line_key(key, number));
    }
    tx.fetch().await?;

    let mut shown = Shown::default();
    let looked_up = items.iter().zip(&stocks).zip(&handles);
    for (line, ((&item, &stock), &row)) in real.iter().zip(looked_up) {
        enter_line(tx, wanted, buyer, line, (item, stock, row), &mut shown)?;
    }
    let head = Head { warehouse, district, customer, order };
    enter_order(tx, wanted, buyer, lines, head, &mut shown)?;
    match real.len() < lines.len() {
        true => tx.abort(),
        false => Ok(shown),
    }
}

/// Like [`order`], but fetches one record after the other, as in the public code of FORD
/// (`workload/tpcc/tpcc_txn.cc`), which later papers measured. The function first fetches the
/// warehouse, the district and the customer, and then the order. For each line it fetches the item
/// and the stock, and then the line's row in a separate fetch. So the district stays locked for two
/// fetches per line.
async fn order_line_by_line(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    buyer: Buyer,
    lines: &Lines,
) -> Result<Shown, Failure> {
    let Buyer { w, d, c, .. } = buyer;
    let warehouse = tx.read(WAREHOUSE, warehouse_key(w), Cells::one(w_tax()));
    let customer = tx.read(CUSTOMER, customer_key(w, d, c), CUSTOMER_CELLS);
    let district = tx.update(DISTRICT, district_key(w, d), DISTRICT_CELLS);
    tx.fetch().await?;
    let o = next_order(tx, wanted, district, district_key(w, d))?;
    let key = order_key(w, d, o);
    tx.insert_zeros(NEW_ORDER, key);
    let order = tx.insert(ORDERS, key);
    tx.fetch().await?;
    let mut shown = Shown::default();
    for (line, number) in lines.iter().zip(1..) {
        let item = tx.read(ITEM, u64::from(line.i_id), ITEM_CELLS);
        if line.i_id == buyer.i_unused {
            tx.fetch().await?;
            break;
        }
        let stock = tx.update(STOCK, stock_key(line.supply_w_id, line.i_id), stock_cells(d));
        tx.fetch().await?;
        let row = tx.insert(ORDER_LINE, line_key(key, number));
        tx.fetch().await?;
        enter_line(tx, wanted, buyer, line, (item, stock, row), &mut shown)?;
    }
    let head = Head { warehouse, district, customer, order };
    enter_order(tx, wanted, buyer, lines, head, &mut shown)?;
    match real(buyer, lines).len() < lines.len() {
        true => tx.abort(),
        false => Ok(shown),
    }
}

/// Returns the lines whose items exist. The last line may name an item that does not exist.
fn real(buyer: Buyer, lines: &Lines) -> &[Line] {
    match lines.split_last() {
        Some((last, others)) if last.i_id == buyer.i_unused => others,
        _ => lines,
    }
}

fn stock_cells(d: u8) -> Cells {
    STOCK_CELLS.union(Cells::one(s_dist(d)))
}

/// The records that a New-Order needs once, not once per line.
struct Head {
    warehouse: Handle,
    district: Handle,
    customer: Handle,
    order: Handle,
}

/// Computes the total amount of the order, and writes the order's own row.
#[inline]
fn enter_order(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    buyer: Buyer,
    lines: &Lines,
    head: Head,
    shown: &mut Shown,
) -> Result<(), Failure> {
    let (Buyer { w, d, c, .. }, Head { warehouse, district, customer, order }) = (buyer, head);
    let warehouse = wanted.row(tx, (WAREHOUSE, warehouse_key(w)), warehouse)?;
    let customer = wanted.row(tx, (CUSTOMER, customer_key(w, d, c)), customer)?;
    std::hint::black_box((customer.bytes(c_last()), customer.bytes(c_credit())));
    let district = wanted.row(tx, (DISTRICT, district_key(w, d)), district)?;
    // The factor (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX), in hundred-millionths.
    let taxes = warehouse.u64(w_tax()) + district.u64(d_tax());
    let rates = (10_000 - customer.u64(c_discount())) * (10_000 + taxes);
    shown.total_cents = shown.total_cents * rates / 100_000_000;
    let is_all_local = lines.iter().all(|line| line.supply_w_id == w);
    tx.set(order, o_c_id(), u64::from(c));
    tx.set(order, o_entry_d(), u64::from(buyer.date));
    tx.set(order, o_lines(), pack_lines(lines.len() as u8, is_all_local));
    Ok(())
}

/// Returns the district's next order number, and increments the number in the district.
#[inline]
fn next_order(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    district: Handle,
    key: u64,
) -> Result<u32, Failure> {
    let o = wanted.row(tx, (DISTRICT, key), district)?.u64(d_next_o_id());
    tx.set(district, d_next_o_id(), o + 1);
    Ok(o as u32)
}

/// Writes a line's amount and text, and takes its quantity from the stock.
#[inline]
fn enter_line(
    tx: &mut Transaction<'_>,
    wanted: &Wanted,
    buyer: Buyer,
    line: &Line,
    (item, stock, row): (Handle, Handle, Handle),
    shown: &mut Shown,
) -> Result<(), Failure> {
    let found = wanted.row(tx, (ITEM, u64::from(line.i_id)), item)?;
    let key = stock_key(line.supply_w_id, line.i_id);
    let from = wanted.row(tx, (STOCK, key), stock)?;
    let cents = u64::from(line.quantity) * found.u64(i_price());
    shown.total_cents += cents;
    // The brand is B only if both texts contain ORIGINAL. So the code reads the second text only if
    // the first text contains ORIGINAL.
    shown.brand +=
        u32::from(is_original(found.bytes(i_data())) && is_original(from.bytes(s_data())));
    let mut dist_info = [0; 24];
    dist_info.copy_from_slice(from.bytes(s_dist(buyer.d)));
    take_from_stock(tx, stock, line.quantity, line.supply_w_id != buyer.w);
    tx.set(row, ol_i_id(), u64::from(line.i_id));
    tx.set(row, ol_supply_w_id(), u64::from(line.supply_w_id));
    tx.set(row, ol_quantity(), u64::from(line.quantity));
    tx.set(row, ol_amount(), cents);
    tx.set(row, ol_dist_info(), &dist_info);
    Ok(())
}

/// Subtracts a line's quantity from a stock. If the stock would fall below 10, the function adds 91
/// (clause 2.4.2.2).
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
