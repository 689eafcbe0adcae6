//! Ordered indexes against a map, one transaction after the other.
//!
//! What is asked: scans in both directions, with and without limits, show what a `BTreeMap` would, with
//! what the transaction itself has changed; entries follow inserts, deletes and updates; nodes split and
//! merge on the way, and the audit is clean at the end.

mod common;

use common::*;
use tarn_engine::schema::{IndexPart, TableId};
use tarn_engine::transaction::{IndexKey, Scan};
use tarn_fabric::executor::block_on;

const T: TableId = TableId(0);

#[test]
fn what_was_inserted_is_scanned() {
    let schema = narrow("t", 1000).ordered("by_key").index("by_a", &[IndexPart::Column(A)], false);
    let world = World::new(&Shape::of(&[schema]));
    let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
    let by_a = world.database.catalog.index_id("t", "by_a").unwrap();
    let mut by = world.coordinator(0, 0);
    fill(&mut by, T, [5, 3, 9, 1]);
    let seen = block_on(by.transact(async |tx| {
        let all = tx.scan(by_key, Scan::prefix(IndexKey::new()));
        let back = tx.scan(by_a, Scan::range(IndexKey::new().u64(2), IndexKey::new().u64(5)).backward());
        tx.fetch().await?;
        let keys = |handle| tx.scanned(handle).map(|it| format!("{:?}", it.record)).collect::<Vec<_>>();
        Ok((keys(all), keys(back)))
    }))
    .unwrap();
    assert_eq!(seen.0, ["Word(1)", "Word(3)", "Word(5)", "Word(9)"]);
    assert_eq!(seen.1, ["Word(5)", "Word(3)"]);
}
