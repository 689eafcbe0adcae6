//! The initial population: clause 4.3.3.
//!
//! Invariant: every row is a function of its key and the scale, so loaders agree without
//! communication. Sums and counts of related rows agree before the first transaction (clause 3.3.2).

use super::random::{NAME_CONSTANT_LOAD, Nurand, Text, last_name, noise};
use super::scale::{DISTRICTS, FIRST_PAYMENT_CENTS, Scale, loaded_lines};
use super::tables::{ADDRESS, CUSTOMER, CUSTOMER_DATA_BYTES, C_ADDRESS, DISTRICT, D_ADDRESS, HISTORY, ITEM, NEW_ORDER, ORDERS, ORDER_LINE, STOCK, WAREHOUSE, W_ADDRESS, c_balance, c_credit, c_credit_lim, c_data, c_discount, c_first, c_last, c_middle, c_payment_cnt, c_phone, c_since, c_ytd_payment, customer_key, d_name, d_next_o_id, d_tax, d_ytd, district_key, h_amount, h_c_d_id, h_c_id, h_c_w_id, h_d_id, h_data, h_date, history_key, i_data, i_im_id, i_name, i_price, line_key, o_c_id, o_carrier_id, o_entry_d, o_lines, ol_amount, ol_delivery_d, ol_dist_info, ol_i_id, ol_quantity, ol_supply_w_id, order_key, pack_lines, s_data, s_dist, s_quantity, stock_key, w_name, w_tax, w_ytd, warehouse_key};
use crate::distribution::Dice;
use tarn_engine::admin::load::{Loader, RowMut};
use tarn_store::ids::Failure;
use tarn_store::schema::ColumnId;

/// The date of all loaded rows: one second after day zero.
pub(super) const LOADED_AT: u32 = 1;
/// The largest tax rate and the largest discount, in ten-thousandths. Tax rates are 0 to 20 %, and
/// discounts are 0 to 50 %.
const TAX_MAX: u64 = 2_000;
const DISCOUNT_MAX: u64 = 5_000;
const CREDIT_LIMIT_CENTS: i64 = 5_000_000;
/// The quantity of every loaded order line.
const LOADED_QUANTITY: u64 = 5;
/// The session of the loaded rows of HISTORY. No run uses this session.
pub(super) const LOADED_SESSION: u64 = 0;

/// Passes every row of the initial population to the loader.
pub(super) async fn load(scale: &Scale, loader: &mut Loader<'_>) -> Result<(), Failure> {
    for i in 1..=scale.items {
        loader.insert(ITEM, u64::from(i), |row| fill_item(row, i)).await?;
    }
    for w in 1..=scale.warehouses {
        loader.insert(WAREHOUSE, warehouse_key(w), |row| fill_warehouse(row, w, scale)).await?;
        for i in 1..=scale.items {
            let key = stock_key(w, i);
            loader.insert(STOCK, key, |row| fill_stock(row, key)).await?;
        }
        for d in 1..=DISTRICTS {
            load_district(scale, loader, w, d).await?;
        }
    }
    Ok(())
}

async fn load_district(
    scale: &Scale,
    loader: &mut Loader<'_>,
    w: u32,
    d: u8,
) -> Result<(), Failure> {
    let key = district_key(w, d);
    loader.insert(DISTRICT, key, |row| fill_district(row, key, scale)).await?;
    let names = scale.name_draw(NAME_CONSTANT_LOAD);
    for c in 1..=scale.customers {
        let key = customer_key(w, d, c);
        loader.insert(CUSTOMER, key, |row| fill_customer(row, key, c, scale, names)).await?;
        let count = u64::from(d - 1) * u64::from(scale.customers) + u64::from(c);
        let key = history_key(w, LOADED_SESSION, count);
        loader.insert(HISTORY, key, |row| fill_history(row, (w, d, c), key)).await?;
    }
    let buyers = shuffled(scale.customers, district_key(w, d));
    for (o, c) in (1..).zip(buyers) {
        load_order(scale, loader, (w, d, o), c).await?;
    }
    Ok(())
}

/// Returns a random permutation of the customers (Fisher and Yates; Durstenfeld, CACM 1964).
fn shuffled(customers: u32, key: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (1..=customers).collect();
    for left in (1..order.len()).rev() {
        let other = noise(key, left as u64 + (1 << 32)).roll(left as u64 + 1) as usize;
        order.swap(left, other);
    }
    order
}

async fn load_order(
    scale: &Scale,
    loader: &mut Loader<'_>,
    (w, d, o): (u32, u8, u32),
    c: u32,
) -> Result<(), Failure> {
    let (key, lines) = (order_key(w, d, o), loaded_lines(w, d, o));
    let is_delivered = o <= scale.delivered();
    loader
        .insert(ORDERS, key, |row| {
            row.set(o_c_id(), u64::from(c));
            row.set(o_entry_d(), u64::from(LOADED_AT));
            let carrier = if is_delivered { 1 + noise(key, 0x21).roll(10) } else { 0 };
            row.set(o_carrier_id(), carrier);
            row.set(o_lines(), pack_lines(lines, true));
        })
        .await?;
    if !is_delivered {
        loader.insert(NEW_ORDER, key, |_| {}).await?;
    }
    for line in 1..=lines {
        let key = line_key(key, line);
        loader.insert(ORDER_LINE, key, |row| fill_line(row, key, w, is_delivered, scale)).await?;
    }
    Ok(())
}

fn fill_address(row: &mut RowMut<'_>, first: u8, text: &mut Text) {
    debug_assert_eq!(ADDRESS.len(), 5);
    let columns = [0, 1, 2, 3, 4].map(|it| ColumnId(first + it));
    row.set(columns[0], &text.text::<20>(10));
    row.set(columns[1], &text.text::<20>(10));
    row.set(columns[2], &text.text::<20>(10));
    row.set(columns[3], &text.text::<2>(2));
    row.set(columns[4], &text.zip());
}

fn fill_item(row: &mut RowMut<'_>, i: u32) {
    let mut text = Text::new(u64::from(i), 0x31);
    row.set(i_price(), text.number(100, 10_000));
    row.set(i_im_id(), text.number(1, 10_000));
    row.set(i_name(), &text.text::<24>(14));
    row.set(i_data(), &text.data());
}

fn fill_warehouse(row: &mut RowMut<'_>, w: u32, scale: &Scale) {
    let mut text = Text::new(warehouse_key(w), 0x32);
    let paid = i64::from(DISTRICTS) * i64::from(scale.customers) * FIRST_PAYMENT_CENTS;
    row.set(w_ytd(), paid);
    row.set(w_tax(), text.number(0, TAX_MAX));
    row.set(w_name(), &text.text::<10>(6));
    fill_address(row, W_ADDRESS, &mut text);
}

fn fill_stock(row: &mut RowMut<'_>, key: u64) {
    let mut text = Text::new(key, 0x33);
    row.set(s_quantity(), loaded_quantity(key));
    row.set(s_data(), &text.data());
    for d in 1..=DISTRICTS {
        row.set(s_dist(d), &text.text::<24>(24));
    }
}

/// Returns the initial quantity of a stock, which is 10 to 100.
pub(super) fn loaded_quantity(stock: u64) -> u64 {
    10 + noise(stock, 0x34).roll(91)
}

fn fill_district(row: &mut RowMut<'_>, key: u64, scale: &Scale) {
    let mut text = Text::new(key, 0x35);
    row.set(d_ytd(), i64::from(scale.customers) * FIRST_PAYMENT_CENTS);
    row.set(d_next_o_id(), u64::from(scale.customers) + 1);
    row.set(d_tax(), text.number(0, TAX_MAX));
    row.set(d_name(), &text.text::<10>(6));
    fill_address(row, D_ADDRESS, &mut text);
}

/// Returns the number of the last name of a loaded customer.
fn name_of(key: u64, c: u32, scale: &Scale, names: Nurand) -> u32 {
    match c <= scale.names() {
        true => c - 1,
        false => names.draw(&mut noise(key, 0x36)),
    }
}

fn fill_customer(row: &mut RowMut<'_>, key: u64, c: u32, scale: &Scale, names: Nurand) {
    let mut text = Text::new(key, 0x37);
    row.set(c_balance(), -FIRST_PAYMENT_CENTS);
    row.set(c_ytd_payment(), FIRST_PAYMENT_CENTS);
    row.set(c_payment_cnt(), 1u64);
    row.set(c_discount(), text.number(0, DISCOUNT_MAX));
    row.set(c_credit(), if text.one_in(10) { b"BC" } else { b"GC" });
    row.set(c_last(), &last_name(name_of(key, c, scale, names)));
    row.set(c_middle(), b"OE");
    row.set(c_credit_lim(), CREDIT_LIMIT_CENTS);
    row.set(c_since(), u64::from(LOADED_AT));
    row.set(c_first(), &text.text::<16>(8));
    fill_address(row, C_ADDRESS, &mut text);
    row.set(c_phone(), &text.digits::<16>());
    row.set(c_data(), &text.text::<CUSTOMER_DATA_BYTES>(300));
}

fn fill_history(row: &mut RowMut<'_>, (w, d, c): (u32, u8, u32), key: u64) {
    row.set(h_c_id(), u64::from(c));
    row.set(h_c_d_id(), u64::from(d));
    row.set(h_c_w_id(), u64::from(w));
    row.set(h_d_id(), u64::from(d));
    row.set(h_date(), u64::from(LOADED_AT));
    row.set(h_amount(), FIRST_PAYMENT_CENTS as u64);
    row.set(h_data(), &Text::new(key, 0x38).text::<24>(12));
}

fn fill_line(row: &mut RowMut<'_>, key: u64, w: u32, is_delivered: bool, scale: &Scale) {
    let mut dice: Dice = noise(key, 0x39);
    row.set(ol_i_id(), 1 + dice.roll(u64::from(scale.items)));
    row.set(ol_supply_w_id(), u64::from(w));
    row.set(ol_quantity(), LOADED_QUANTITY);
    if is_delivered {
        row.set(ol_delivery_d(), u64::from(LOADED_AT));
    } else {
        row.set(ol_amount(), 1 + noise(key, 0x3a).roll(999_999));
    }
    row.set(ol_dist_info(), &Text::new(key, 0x3b).text::<24>(24));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_customer_orders_once() {
        let mut buyers = shuffled(3_000, 7);
        assert_ne!(buyers, shuffled(3_000, 8));
        buyers.sort_unstable();
        assert!(buyers.iter().copied().eq(1..=3_000));
    }

    #[test]
    fn the_first_thousand_customers_have_a_thousand_names() {
        let scale = Scale::spec(1);
        let names = scale.name_draw(NAME_CONSTANT_LOAD);
        let of = |c: u32| name_of(customer_key(1, 1, c), c, &scale, names);
        assert!((1..=1_000).map(of).eq(0..1_000));
        assert!((1_001..=3_000).all(|c| of(c) < 1_000));
    }
}
