//! Tests TPC-C: its random draws, and the contents of memory after a run. Also tests that each
//! consistency condition notices damage.
//!
//! Invariant: each test damages one thing in memory that had no fault. The damage is done without
//! using the engine, or in a transaction that no tally counts. Exactly the conditions that the damage
//! breaks must fail.

use crate::common::{Cluster, Shape, all_ok, recorded, small};
use std::rc::Rc;
use tarn_engine::protocol::ALL;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_fabric::executor::block_on;
use tarn_fabric::rng::seeded;
use tarn_store::schema::{Cells, ColumnId, TableId};
use tarn_workloads::tpcc::{Input, Tally, Tpcc, Who};
use tarn_workloads::{Invariant, Settings, Workload};

const WAREHOUSE: TableId = TableId(0);
const DISTRICT: TableId = TableId(1);
const CUSTOMER: TableId = TableId(2);
const HISTORY: TableId = TableId(3);
const NEW_ORDER: TableId = TableId(4);
const ORDERS: TableId = TableId(5);
const ORDER_LINE: TableId = TableId(6);
const ITEM: TableId = TableId(7);
const STOCK: TableId = TableId(8);

/// The number of rounds until the reply, plus the rounds that release locks. The order is New-Order,
/// Payment, Order-Status, Delivery, Stock-Level, then Payment and Order-Status by last name. The
/// cluster has one copy of every record, on three nodes.
const ROUNDS: [usize; 7] = [8, 4, 5, 11, 9, 6, 6];

const fn district(d: u64) -> u64 {
    1 << 40 | d << 36
}

const fn order(d: u64, o: u64) -> u64 {
    district(d) | o << 4
}

/// The keys of two loaded orders of a district in the profile `tiny`: a delivered order, and a new
/// order.
const DELIVERED: u64 = order(3, 5);
const NEW: u64 = order(3, 29);

/// Returns the names of the conditions that fail after the damage.
fn noticed(damage: impl FnOnce(&Cluster)) -> Vec<&'static str> {
    // No transaction has run, so the test damages loaded data.
    let workload: Tpcc = small("tiny", 1);
    let cluster = Cluster::loaded(&workload, Shape::new(ALL[0].name, 1), 3);
    let nothing = Tally::default();
    let before = cluster.check(&workload, &nothing);
    assert!(all_ok(&before), "{before:?}");
    damage(&cluster);
    broken(&cluster.check(&workload, &nothing))
}

/// Returns the names of the invariants that do not hold.
fn broken(invariants: &[Invariant]) -> Vec<&'static str> {
    let broken = invariants.iter().filter(|invariant| !invariant.ok);
    broken.map(|it| it.name.split(':').next().expect("a name")).collect()
}

const STOCKS: &str = "stocks agree with the lines ordered from them";
const ROWS: &str = "rows as loaded and as committed, each with its parent row";

fn tampered(table: TableId, key: u64, column: u8, bytes: &[u8]) -> Vec<&'static str> {
    noticed(|cluster| cluster.tamper(table, key, ColumnId(column), bytes))
}

#[test]
fn money_that_does_not_add_up_is_noticed() {
    let cents = 77i64.to_le_bytes();
    assert_eq!(tampered(DISTRICT, district(1), 0, &cents), ["C1", "C9"]);
    assert_eq!(tampered(WAREHOUSE, 1 << 40, 0, &cents), ["C1", "C8"]);
    assert_eq!(tampered(HISTORY, 1 << 40 | 9, 5, &[1, 0, 0]), ["C8", "C9", "C10"]);
    assert_eq!(tampered(CUSTOMER, district(2) | 7, 0, &cents), ["C10", "C12"]);
    assert_eq!(tampered(CUSTOMER, district(2) | 7, 1, &cents), ["C12"]);
    // The damage is a delivered line with an amount that the line's customer was not charged.
    assert_eq!(tampered(ORDER_LINE, DELIVERED | 1, 4, &[1, 0, 0]), ["C10", "C12"]);
}

#[test]
fn numbers_and_dates_of_orders_that_do_not_agree_are_noticed() {
    assert_eq!(tampered(DISTRICT, district(3), 1, &40u32.to_le_bytes()), ["C2"]);
    assert_eq!(tampered(ORDERS, NEW, 2, &[3]), ["C5", "C7"]);
    assert_eq!(tampered(ORDERS, NEW, 3, &[15 | 0x80]), ["C4", "C6"]);
    assert_eq!(tampered(ORDER_LINE, NEW | 2, 2, &[9]), ["C7", "C10", "C12"]);
}

#[test]
fn rows_that_are_gone_are_noticed() {
    let removed = |table, key| noticed(|cluster| cluster.remove(table, key));
    assert_eq!(removed(NEW_ORDER, NEW), ["C3", "C5", "C11", ROWS]);
    assert_eq!(removed(NEW_ORDER, order(3, 30)), ["C2", "C5", "C11", ROWS]);
    assert_eq!(removed(ORDERS, order(3, 30)), ["C2", "C4", "C5", "C11", ROWS]);
    assert_eq!(removed(ORDER_LINE, NEW | 3), ["C4", "C6", ROWS]);
    assert_eq!(removed(HISTORY, 1 << 40 | 9), ["C8", "C9", "C10", ROWS]);
    assert_eq!(removed(STOCK, 1 << 40 | 50), [STOCKS, ROWS]);
    assert_eq!(removed(CUSTOMER, district(2) | 7), ["C10", ROWS]);
    assert_eq!(removed(ITEM, 50), [ROWS]);
}

#[test]
fn stocks_that_lost_an_order_are_noticed() {
    for (column, bytes) in [(0, [50, 1, 0, 0]), (1, [1, 0, 0, 0]), (2, [1; 4]), (3, [1; 4])] {
        let width = if column == 0 { 2 } else { 4 };
        assert_eq!(tampered(STOCK, 1 << 40 | 50, column, &bytes[..width]), [STOCKS]);
    }
}

#[test]
fn a_stock_that_was_filled_up_too_early_is_noticed() {
    let workload: Tpcc = small("tiny", 1);
    let cluster = Cluster::loaded(&workload, Shape::new(ALL[0].name, 1), 3);
    let tally = cluster.run(&workload, 60, 5);
    assert!(all_ok(&cluster.check(&workload, &tally)));
    let key = 1 << 40 | 50;
    let column = ColumnId(0);
    let mut coordinator = Coordinator::new(Rc::clone(&cluster.cx), 0, Retry::default());
    let quantity = block_on(coordinator.transact(async |tx| {
        let row = tx.read(STOCK, key, Cells::one(column));
        tx.fetch().await?;
        Ok(tx.get(row).map(|row| row.u64(column)))
    }));
    let quantity = quantity.expect("read").expect("a stock") as u16;
    cluster.tamper(STOCK, key, column, &(quantity + 91).to_le_bytes());
    assert_eq!(broken(&cluster.check(&workload, &tally)), [STOCKS]);
}

#[test]
fn a_missing_row_that_a_transaction_needs_is_named() {
    let workload: Tpcc = small("tiny", 1);
    for (table, key) in [(DISTRICT, district(4)), (ITEM, 50), (STOCK, 1 << 40 | 50)] {
        let cluster = Cluster::loaded(&workload, Shape::new(ALL[0].name, 1), 3);
        cluster.remove(table, key);
        let tally = cluster.run(&workload, 60, 5);
        assert!(tally.missing > 0, "{table:?}: {tally:?}");
        let invariants = cluster.check(&workload, &tally);
        let last =
            invariants.iter().find(|it| it.name.starts_with("rows that transactions needed"));
        let last = last.expect("a rule");
        let named = format!("first: key {key} of table {}", table.0);
        assert!(!last.ok && last.detail.contains(&named), "{last:?}");
    }
}

/// Draws many inputs for a database with the specification's sizes.
fn draws(warehouses: u64) -> Vec<Input> {
    let settings = Settings { records: Some(warehouses), ..Settings::default() };
    let workload = Tpcc::new(&settings).expect("a profile");
    let mut rng = seeded(6, 6);
    (0..200_000).map(|_| workload.draw(&mut rng)).collect()
}

/// Returns the percentage of the values for which `holds` is true.
fn percent<T>(all: &[T], holds: impl Fn(&T) -> bool) -> f64 {
    100.0 * all.iter().filter(|it| holds(it)).count() as f64 / all.len() as f64
}

fn near(found: f64, expected: f64, off: f64) {
    assert!((found - expected).abs() < off, "{found}, {expected} expected");
}

#[test]
fn new_orders_are_drawn_as_specified() {
    let mut lines = Vec::new();
    let (mut orders, mut unused, mut counts) = (0u32, 0u32, [0u32; 16]);
    let (mut low, mut customers) = (0u32, vec![0u32; 3001]);
    for input in draws(4) {
        let Input::NewOrder { w_id, d_id, c_id, lines: ordered } = input else { continue };
        assert!((1..=4).contains(&w_id) && (1..=10).contains(&d_id));
        orders += 1;
        customers[c_id as usize] += 1;
        counts[ordered.len()] += 1;
        unused += u32::from(ordered.last().is_some_and(|line| line.i_id == 100_001));
        for line in ordered.iter().filter(|line| line.i_id <= 100_000) {
            assert!(line.i_id > 0 && (1..=10).contains(&line.quantity));
            low += u32::from(line.quantity == 1);
            lines.push((line.supply_w_id != w_id, line.i_id));
        }
    }
    near(100.0 * f64::from(unused) / f64::from(orders), 1.0, 0.15);
    near(100.0 * f64::from(low) / lines.len() as f64, 10.0, 0.3);
    near(percent(&lines, |(is_remote, _)| *is_remote), 1.0, 0.1);
    let share = |count: u32| f64::from(count) * 11.0 / f64::from(orders);
    assert!(counts[..5].iter().all(|&count| count == 0));
    assert!(counts[5..].iter().all(|&count| (share(count) - 1.0).abs() < 0.05), "{counts:?}");
    // NURand is uneven. A result with thirteen ones at its end has the probability .75 ^ 13, and
    // twelve items have such numbers. So the hottest item is drawn 195 times as often as the mean.
    let mut items = vec![0u32; 100_001];
    lines.iter().for_each(|&(_, item)| items[item as usize] += 1);
    let mean = lines.len() as f64 / 100_000.0;
    let hottest = f64::from(*items.iter().max().expect("some"));
    near(hottest / mean, 195.0, 40.0);
    assert_eq!(customers[0], 0);
}

#[test]
fn payments_and_the_others_are_drawn_as_specified() {
    let all = draws(4);
    let shares = [45.0, 43.0, 4.0, 4.0, 4.0];
    for (kind, expected) in shares.into_iter().enumerate() {
        near(percent(&all, |input| Tpcc::kind(input) == kind), expected, 0.5);
    }
    let payments: Vec<_> = all.iter().filter(|input| Tpcc::kind(input) == 1).collect();
    near(
        percent(&payments, |it| matches!(it, Input::Payment { who: Who::Name(_), .. })),
        60.0,
        1.0,
    );
    let is_remote =
        |it: &&Input| matches!(it, Input::Payment { w_id, c_w_id, .. } if w_id != c_w_id);
    near(percent(&payments, is_remote), 15.0, 0.7);
    for input in &all {
        match *input {
            Input::Payment { cents, who, .. } => {
                assert!((100..=500_000).contains(&cents));
                match who {
                    Who::Id(c) => assert!((1..=3_000).contains(&c)),
                    Who::Name(name) => assert!(name < 1_000),
                }
            }
            Input::Delivery { carrier, .. } => assert!((1..=10).contains(&carrier)),
            Input::StockLevel { threshold, .. } => assert!((10..=20).contains(&threshold)),
            Input::NewOrder { .. } | Input::OrderStatus { .. } => {}
        }
    }
    // With one warehouse no payment and no order line is remote.
    let settings = Settings { records: Some(1), ..Settings::default() };
    let workload = Tpcc::new(&settings).expect("a profile");
    let mut rng = seeded(6, 6);
    for _ in 0..2_000 {
        match workload.draw(&mut rng) {
            Input::NewOrder { w_id, lines, .. } => {
                assert!(lines.iter().all(|line| line.supply_w_id == w_id));
            }
            Input::Payment { w_id, c_w_id, d_id, c_d_id, .. } => {
                assert_eq!((w_id, d_id), (c_w_id, c_d_id));
            }
            _ => {}
        }
    }
}

#[test]
fn every_transaction_does_its_work_and_the_history_is_serializable() {
    let workload: Tpcc = small("tiny", 2);
    for (info, replicas) in ALL.iter().flat_map(|info| [(info, 1), (info, 3)]) {
        let cluster = Cluster::loaded(&workload, Shape::new(info.name, replicas), 5);
        let history = cluster.record_threads(&workload, 2, 150, 5);
        assert!(history.len() >= 2 * 8 * 150);
        assert_eq!(recorded::verdict(&history), Ok(()));
        let audit = cluster.audit();
        assert!(audit.is_clean(), "{audit}");
    }
}

#[test]
fn sums_of_a_run_are_as_specified() {
    ALL.iter().for_each(|info| adds_up(info.name));
}

fn adds_up(protocol: &str) {
    let workload: Tpcc = small("tiny", 2);
    let cluster = Cluster::loaded(&workload, Shape::new(protocol, 1), 5);
    let tally = cluster.run(&workload, 1_000, 5);
    let invariants = cluster.check(&workload, &tally);
    assert!(all_ok(&invariants), "{invariants:#?}");
    near(tally.lines as f64 / tally.orders as f64, 10.0, 0.3);
    let ended = tally.orders + tally.rolled_back;
    near(100.0 * tally.rolled_back as f64 / ended as f64, 1.0, 0.6);
    let delivered: u64 = tally.delivered.iter().sum();
    // The run has 8,000 transactions. 4 % of these transactions deliver an order in each of ten
    // districts.
    near(delivered as f64, 3_200.0, 500.0);
    assert!(tally.levels > 200 && tally.statuses > 200 && tally.by_name > 1_500, "{tally:?}");
    assert!(tally.low_stocks > 0);
}

#[test]
fn a_skew_is_refused() {
    let settings = Settings { zipf: Some(0.5), ..Settings::default() };
    let error = Tpcc::new(&settings).err().expect("refused");
    assert!(error.to_string().starts_with("zipf = 0.5; allowed: none"), "{error}");
}

/// Counts the rounds of each kind of transaction under FORD. Only one coordinator runs, after a
/// warm-up. The result for each kind is the most frequent number.
#[test]
fn each_transaction_takes_few_rounds() {
    let workload: Tpcc = small("tiny", 2);
    let cluster = Cluster::loaded(&workload, Shape::new("ford", 1), 5);
    let mut coordinator = Coordinator::new(Rc::clone(&cluster.cx), 0, Retry::default());
    let (mut rng, mut tally) = (seeded(9, 9), Tally::default());
    let mut counts = [[0u32; 32]; 7];
    for turn in 0..2_000 {
        let input = workload.draw(&mut rng);
        let kind = match input {
            Input::Payment { who: Who::Name(_), .. } => 5,
            Input::OrderStatus { who: Who::Name(_), .. } => 6,
            _ => Tpcc::kind(&input),
        };
        let before = cluster.cx.port.counts().rounds;
        block_on(workload.run(&mut coordinator, &input, &mut tally)).expect("it ends");
        let rounds = cluster.cx.port.counts().rounds - before;
        if turn > 500 {
            counts[kind][(rounds as usize).min(31)] += 1;
        }
    }
    let usual = counts.map(|of| (0..32).max_by_key(|&rounds| of[rounds]).unwrap_or_default());
    assert_eq!(usual, ROUNDS, "{counts:?}");
}

/// FORD's public code needs one fetch for the records that an order has once and one fetch for the
/// order's rows. FORD's public code needs two more fetches for each line.
#[test]
fn the_public_code_orders_line_by_line() {
    let workload: Tpcc = small("crest-code", 1);
    let cluster = Cluster::loaded(&workload, Shape::new(ALL[0].name, 1), 5);
    let mut coordinator = Coordinator::new(Rc::clone(&cluster.cx), 0, Retry::default());
    let (mut rng, mut tally, mut orders) = (seeded(9, 9), Tally::default(), 0);
    while orders < 100 {
        let input = workload.draw(&mut rng);
        let Input::NewOrder { ref lines, .. } = input else { continue };
        let fetches = 2 + 2 * lines.len() as u64;
        let before = cluster.cx.port.counts().rounds;
        block_on(workload.run(&mut coordinator, &input, &mut tally)).expect("it ends");
        let rounds = cluster.cx.port.counts().rounds - before;
        // An order with an unknown item does not insert one row, so it needs one fetch less. Most
        // fetches have one round that finds the records and another that locks them.
        assert!((fetches - 1..4 * fetches).contains(&rounds), "{fetches} fetches, {rounds} rounds");
        orders += 1;
    }
    let invariants = cluster.check(&workload, &tally);
    assert!(all_ok(&invariants), "{invariants:#?}");
    assert!(cluster.audit().is_clean());
}

/// Tests that the longest undo images of all transactions fit into a log area of the default size.
#[test]
fn a_delivery_of_ten_orders_of_fifteen_lines_fits_into_a_log() {
    let workload: Tpcc = small("tiny", 1);
    let cluster = Cluster::loaded(&workload, Shape::new(ALL[0].name, 1), 5);
    let mut coordinator = Coordinator::new(Rc::clone(&cluster.cx), 0, Retry::default());
    let (mut rng, mut tally, mut long) = (seeded(9, 9), Tally::default(), [false; 11]);
    while long[1..].contains(&false) {
        let input = workload.draw(&mut rng);
        let Input::NewOrder { d_id, ref lines, .. } = input else { continue };
        if lines.len() == 15 && !long[d_id as usize] {
            block_on(workload.run(&mut coordinator, &input, &mut tally)).expect("it ends");
            long[d_id as usize] = true;
        }
    }
    // Nine loaded orders of a district are new orders, and the tenth new order is the long one.
    for _ in 0..10 {
        let input = Input::Delivery { w_id: 1, carrier: 1 };
        block_on(workload.run(&mut coordinator, &input, &mut tally)).expect("it fits");
    }
    assert_eq!(tally.delivered.iter().sum::<u64>(), 100);
    let invariants = cluster.check(&workload, &tally);
    assert!(all_ok(&invariants), "{invariants:#?}");
}
