//! Tests of features that only Motor has: record heads of several lines, and versions named by timestamps.
//!
//! Invariant checked: one coordinator runs at a time, and the audit at the end of every test finds no error.

use crate::common::*;
use tarn_engine::session::transaction::{IndexKey, Scan, Transaction};
use tarn_fabric::executor::block_on;
use tarn_store::layout::LayoutKind;
use tarn_store::schema::{Cells, TableId, TableSchema};

const T: TableId = TableId(0);

fn world(schema: TableSchema, cells: u8) -> World {
    world_of("corrected", schema, cells)
}

fn world_of(variant: &str, schema: TableSchema, cells: u8) -> World {
    let mut shape = Shape::of(&[schema]).nodes(2, 2).protocol("motor").variant(variant);
    shape.options.layout = LayoutKind::Deltas { cells };
    World::new(&shape)
}

/// Tests a record whose head of several lines is torn, because a bucket's lines are read in any order. So the head
/// that a reader finds in the bucket only tells where the record's head is.
#[test]
fn a_record_with_a_torn_head_is_changed_and_deleted() {
    for variant in ["corrected", "corrected,-deltas", "corrected,-deltas,-at-once"] {
        change_and_delete(&world_of(variant, narrow("t", 100), 4));
    }
}

fn change_and_delete(world: &World) {
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

/// Tests that a record keeps a fixed number of versions. A snapshot sees its value of the record as long as fewer
/// writes than that number have happened since the snapshot began. An older snapshot starts again.
#[test]
fn a_snapshot_reads_the_kept_versions() {
    for variant in ["corrected", "corrected,-deltas", "corrected,-deltas,-at-once"] {
        for cells in [1, 2, 3, 5] {
            let world = world_of(variant, narrow("t", 100), cells);
            let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
            fill(&mut by, T, 0..10);
            for later in 0..6 {
                let (mut tries, before) = (0, value_of(&mut by, T, 7).unwrap());
                let seen = block_on(by.transact_read_only(async |tx| {
                    tries += 1;
                    // The transaction takes T_start here.
                    tx.get_row(T, 1).await?;
                    for step in (0..later).filter(|_| tries == 1) {
                        let write = async |tx: &mut Transaction<'_>| {
                            let row = tx.update(T, 7, Cells::one(A));
                            tx.fetch().await?;
                            tx.set(row, A, before + step + 1);
                            Ok(())
                        };
                        other.transact(write).await?;
                    }
                    Ok(tx.get_row(T, 7).await?.expect("there").u64(A))
                }));
                let is_kept = later < u64::from(cells);
                let expected = if is_kept { (before, 1) } else { (before + later, 2) };
                let what = format!("{variant}, {cells} versions, {later} later");
                assert_eq!((seen, tries), (Ok(expected.0), expected.1), "{what}");
            }
            world.assert_clean();
        }
    }
}

/// Tests a snapshot of index leaves, which have only one version. If the leaves are too new for a snapshot, the
/// snapshot starts again and then shows all of them.
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
