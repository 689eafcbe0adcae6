//! What Motor alone has: heads of several lines, versions that timestamps name.
//!
//! Invariant checked: one coordinator at a time; every test ends with a clean audit.

use crate::common::*;
use tarn_engine::layout::LayoutKind;
use tarn_engine::schema::{Cells, TableId, TableSchema};
use tarn_engine::transaction::{IndexKey, Scan};
use tarn_fabric::executor::block_on;

const T: TableId = TableId(0);

fn world(schema: TableSchema, cells: u8) -> World {
    let mut shape = Shape::of(&[schema]).nodes(2, 2).protocol("motor");
    shape.options.layout = LayoutKind::Deltas { cells };
    World::new(&shape)
}

/// A bucket is read in any order: what it says of a head of several lines only tells where that is.
#[test]
fn a_record_whose_head_is_not_of_one_moment_is_changed_and_deleted() {
    let world = world(narrow("t", 100), 4);
    let mut by = world.coordinator(0, 0);
    fill(&mut by, T, 0..20);
    for key in 0..20 {
        let seen = block_on(by.transact(async |tx| {
            let row = tx.read(T, key, Cells::ALL);
            tx.fetch().await?;
            tx.update(T, key, Cells::ALL);
            tx.fetch().await?;
            tx.delete(T, key);
            tx.fetch().await?;
            Ok(tx.get(row).is_some())
        }));
        assert_eq!(seen, Ok(false), "{key}");
    }
    assert_eq!(world.assert_clean().records, 0);
}

/// Leaves have one version: a snapshot that they are too new for is begun anew, and shows all of them.
#[test]
fn a_declared_reader_scans_a_snapshot() {
    let world = world(narrow("t", 1000).ordered("by_key"), 2);
    let by_key = world.database.catalog.index_id("t", "by_key").unwrap();
    let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
    fill(&mut by, T, 0..200);
    let mut tries = 0;
    let seen = block_on(by.transact_read_only(async |tx| {
        tries += 1;
        let first = tx.scan(by_key, Scan::prefix(IndexKey::new()).limit(1));
        tx.fetch().await?;
        assert_eq!(tx.scanned(first).count(), 1);
        if tries == 1 {
            fill(&mut other, T, 500..501);
        }
        let all = tx.scan(by_key, Scan::prefix(IndexKey::new()));
        tx.fetch().await?;
        Ok(tx.scanned(all).count())
    }));
    assert_eq!((seen, tries), (Ok(201), 2));
    let tally = by.context().metrics.snapshot();
    let aborted = tally.aborts.iter().sum::<u64>();
    assert!(tally.node_splits > 2 && aborted > 0, "{tally:?}");
    world.assert_clean();
}
