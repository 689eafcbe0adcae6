//! Checks the consistency conditions of clause 3.3.2, and four conditions of our own.
//!
//! Invariant: a condition counts the warehouses, districts, orders, customers or stocks for which it
//! does not hold. The condition holds if this number is 0.

use super::super::scale::DISTRICTS;
use super::super::tally::Tally;
use super::seen::{Customer, District, Order, Seen, Stock};
use crate::untold::Slack;
use crate::workload::Invariant;
use std::fmt::Write as _;

/// The names of the invariants, which tests and reports use.
pub(super) const NAMES: [&str; 16] = [
    "C1: W_YTD = sum of D_YTD",
    "C2: D_NEXT_O_ID - 1 = largest O_ID = largest NO_O_ID",
    "C3: NO_O_IDs of a district have no gap",
    "C4: sum of O_OL_CNT = lines of a district",
    "C5: no carrier if, and only if, a new order",
    "C6: O_OL_CNT = lines of an order",
    "C7: no date of delivery if, and only if, no carrier",
    "C8: W_YTD = sum of H_AMOUNT",
    "C9: D_YTD = sum of H_AMOUNT",
    "C10: C_BALANCE = delivered OL_AMOUNT - H_AMOUNT",
    "C11: orders - new orders = loaded as delivered + delivered",
    "C12: C_BALANCE + C_YTD_PAYMENT = delivered OL_AMOUNT",
    "stocks agree with the lines ordered from them",
    "rows as loaded and as committed, each with its parent row",
    "rows that transactions needed were there",
    "rows that were there were found",
];

/// The conditions that also need the tally of committed transactions.
const OF_TALLY: [&str; 4] = [NAMES[10], NAMES[13], NAMES[14], NAMES[15]];

/// Returns the verdicts on all conditions, in the order of [`NAMES`].
pub(super) fn judge(seen: &Seen, tally: &Tally) -> Vec<Invariant> {
    let districts = || seen.districts.iter();
    let orders = || seen.orders.iter();
    let customers = || seen.customers.iter();
    let loaded = u64::from(seen.scale.delivered());
    let undelivered = |(at, it): (usize, &District)| {
        let delivered = it.orders as i64 - it.new_orders as i64;
        !tally.untold_in(at).admits(delivered, (loaded + tally.delivered_in(at)) as i64)
    };
    let warehouses = seen.warehouses.iter();
    let wrong = [
        count((0..seen.warehouses.len()).map(|at| seen.warehouses[at].ytd != ytd_of(seen, at))),
        count(districts().map(|it| !is_numbered_to_its_end(it))),
        count(districts().map(has_gap)),
        count(districts().map(|it| it.lines_counted != it.lines)),
        count(orders().map(|it| it.is_delivered == it.is_new)) + seen.orphans,
        count(orders().map(|it| !has_its_lines(it))),
        orders().map(|it| u64::from(it.misdated)).sum(),
        count(warehouses.map(|it| it.ytd != it.paid)),
        count(districts().map(|it| it.ytd != it.paid)),
        count(customers().map(|it| it.balance != it.delivered - it.paid)),
        count(districts().enumerate().map(undelivered)),
        count(customers().map(|it| !adds_up(it))),
        count(seen.stocks.iter().map(|it| !agrees(it))),
        rows_wrong(seen, tally) + seen.strangers,
        tally.missing,
        tally.overlooked,
    ];
    let of = [
        (seen.warehouses.len(), "warehouses"),
        (seen.districts.len(), "districts"),
        (seen.districts.len(), "districts"),
        (seen.districts.len(), "districts"),
        (seen.orders.len(), "orders"),
        (seen.orders.len(), "orders"),
        (seen.rows[6] as usize, "lines"),
        (seen.warehouses.len(), "warehouses"),
        (seen.districts.len(), "districts"),
        (seen.customers.len(), "customers"),
        (seen.districts.len(), "districts"),
        (seen.customers.len(), "customers"),
        (seen.stocks.len(), "stocks"),
        (seen.rows.iter().sum::<u64>() as usize, "rows"),
        (tally.transactions() as usize, "transactions"),
        (tally.transactions() as usize, "transactions"),
    ];
    let verdict = |((name, wrong), (all, what)): ((&'static str, u64), (usize, &str))| Invariant {
        name,
        ok: wrong == 0,
        detail: format!("{all} {what}, {wrong} wrong"),
        of_memory: !OF_TALLY.contains(&name),
    };
    let mut verdicts: Vec<Invariant> = NAMES.into_iter().zip(wrong).zip(of).map(verdict).collect();
    for (first, at) in [(tally.first_missing, 14), (tally.first_overlooked, 15)] {
        if let Some((table, key)) = first {
            let _ = write!(verdicts[at].detail, "; first: key {key} of table {}", table.0);
        }
    }
    verdicts
}

fn count(wrong: impl Iterator<Item = bool>) -> u64 {
    wrong.map(u64::from).sum()
}

/// Returns the sum of D_YTD over the districts of a warehouse. `warehouse` is the warehouse's
/// position.
fn ytd_of(seen: &Seen, warehouse: usize) -> i64 {
    let of_one = usize::from(DISTRICTS);
    seen.districts[warehouse * of_one..][..of_one].iter().map(|district| district.ytd).sum()
}

/// Returns whether a district's next order number follows its largest order number. If the district
/// has no new orders, the function compares only with its orders.
fn is_numbered_to_its_end(it: &District) -> bool {
    let last = it.next_o_id.wrapping_sub(1);
    last == it.last_order && (it.new_orders == 0 || last == it.last_new)
}

fn has_gap(it: &District) -> bool {
    it.new_orders != 0 && it.last_new - it.first_new + 1 != it.new_orders
}

/// Returns whether an order's lines are numbered from 1 without a gap.
fn has_its_lines(it: &Order) -> bool {
    u32::from(it.found) == ((1u32 << it.lines.min(15)) - 1) << 1 && it.lines <= 15
}

fn adds_up(it: &Customer) -> bool {
    it.balance + it.ytd_payment == it.delivered
}

/// Returns whether a stock agrees with the order lines that were taken from it. When less than 10
/// would be left, 91 is added to the stock's quantity. So the quantity stays within its loaded range
/// of 10 to 100.
fn agrees(it: &Stock) -> bool {
    let counted = (it.ytd, it.count, it.remote) == (it.taken, it.lines, it.remote_lines);
    let now = it.quantity + it.taken;
    counted && now >= it.loaded && (now - it.loaded).is_multiple_of(91) && (10..=100).contains(&it.quantity)
}

/// Returns the number of surplus and missing rows, summed over all tables.
fn rows_wrong(seen: &Seen, tally: &Tally) -> u64 {
    let untold = &tally.untold;
    let mut untold_delivered = Slack::default();
    untold.delivered.iter().for_each(|it| untold_delivered.add(*it));
    let delivered: u64 = tally.delivered.iter().sum();
    let mut expected = seen.scale.rows().map(|rows| (rows as i64, Slack::default()));
    let mut add = |table: usize, more: i64, slack: Slack| {
        expected[table].0 += more;
        expected[table].1 = slack;
    };
    add(3, tally.payments as i64, untold.payments);
    add(4, tally.orders as i64 - delivered as i64, untold.orders.less(untold_delivered));
    add(5, tally.orders as i64, untold.orders);
    add(6, tally.lines as i64, untold.lines);
    let off = |(&(expected, slack), found): (&(i64, Slack), u64)| slack.off(found as i64, expected);
    expected.iter().zip(seen.rows).map(off).sum()
}
