//! Tests of tables that grow under LOTUS, whose locks are in compute nodes and whose snapshots take no locks.
//!
//! Invariant checked: growth behaves as under every protocol ([`crate::growth`]). A reader without locks finds a
//! record while a split moves the record's slot.

use crate::common::weak::WeakFabric;
use crate::common::*;
use crate::growth::{
    SHARD, crowd, drop_at_any_moment, give_way, grow_against_a_model, grow_under_threads, splits,
};
use std::pin::pin;
use std::rc::Rc;
use tarn_engine::recovery;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_fabric::executor::block_on;
use tarn_store::layout::{LayoutKind, Records};
use tarn_store::schema::{Cells, TableId};

const T: TableId = TableId(0);
const LOTUS: &str = "lotus";
/// The number of keys. This number is large enough for chains of several blocks.
const KEYS: u64 = 120;

#[test]
fn a_tiny_table_grows_large_under_lotus_and_loses_nothing() {
    for replicas in [1, 3] {
        grow_against_a_model(LOTUS, &half("half", 8), replicas);
    }
}

#[test]
fn transactions_during_splits_under_lotus_are_strictly_serializable() {
    for replicas in [1, 3] {
        grow_under_threads(LOTUS, &half("half", 8), replicas);
    }
}

#[test]
fn a_split_under_lotus_that_is_dropped_at_any_moment_leaves_nothing() {
    drop_at_any_moment(LOTUS, &half("half", 8));
}

#[test]
fn a_split_under_lotus_gives_way_to_a_transaction() {
    give_way(LOTUS, &half("half", 8));
}

/// A snapshot reads all keys and some absent keys. Between two of the snapshot's steps a split runs to its end.
/// Returns whether the snapshot is right for every number of steps that the snapshot and the split take before.
fn is_whole_beside_splits(variant: &str) -> bool {
    let there = |key: u64| (key < KEYS).then_some(key);
    let all: Vec<Option<u64>> = (0..KEYS + 8).map(there).collect();
    let (mut split, mut is_whole) = (0, true);
    for (first, looks) in (0..20).flat_map(|first| (1..10).map(move |looks| (first, looks))) {
        let mut shape = Shape::of(&[half("half", 8)]).protocol(LOTUS).variant(variant);
        shape.near = false;
        let world = World::new(&shape);
        let (mut by, mut reader) = (world.coordinator(0, 0), world.coordinator(1, 0));
        crowd(&mut by, 0..KEYS);
        by.context().growth.request(SHARD);
        {
            let mut splitting = pin!(by.transact(async |_| Ok(())));
            let mut seen = pin!(reader.transact_read_only(async |tx| {
                let rows: Vec<_> = (0..KEYS + 8).map(|key| tx.read(T, key, Cells::ALL)).collect();
                tx.fetch().await?;
                Ok(rows.into_iter().map(|row| tx.get(row).map(|it| it.u64(A))).collect::<Vec<_>>())
            }));
            let is_split = poll_times(splitting.as_mut(), first, || {}).is_some();
            let early = poll_times(seen.as_mut(), looks, || {});
            if !is_split {
                block_on(splitting).expect("nothing of the caller's");
            }
            let found = early.unwrap_or_else(|| block_on(seen)).expect("a snapshot");
            is_whole &= found == all;
        }
        split += splits(by.context());
        world.assert_clean();
    }
    assert!(split > 0);
    is_whole
}

#[test]
fn a_snapshot_beside_a_split_misses_no_record_if_it_reads_again() {
    assert!(is_whole_beside_splits("corrected"));
    assert!(!is_whole_beside_splits("corrected,-second-look"));
}

/// Reads records, moves them by a split, and then changes them. The reads have cached the version tables. Returns
/// whether the records have the changed values.
fn are_changed_where_they_moved(variant: &str) -> bool {
    let mut shape = Shape::of(&[narrow("narrow", 8)]).protocol(LOTUS).variant(variant);
    shape.options.layout = LayoutKind::MultiVersion { cells: 1, records: Records::Apart };
    shape.options.spare_bytes = 4 << 20;
    let world = World::new(&shape);
    let mut by = world.coordinator(0, 0);
    crowd(&mut by, 0..60);
    (0..60).for_each(|key| assert_eq!(value_of(&mut by, T, key), Some(key)));
    by.context().growth.request(SHARD);
    block_on(by.transact(async |_| Ok(()))).unwrap();
    assert!(splits(by.context()) > 0);
    by.context().growth.enable(false);
    for key in 0..60 {
        let changed = by.transact(async |tx| {
            let row = tx.update(T, key, Cells::ALL);
            tx.fetch().await?;
            tx.set(row, A, 100 + key);
            Ok(())
        });
        block_on(changed).unwrap();
    }
    let mut reader = world.coordinator(1, 0);
    let are_changed = (0..60).all(|key| value_of(&mut reader, T, key) == Some(100 + key));
    are_changed && world.audit().is_clean()
}

#[test]
fn version_tables_that_have_moved_are_not_remembered() {
    assert!(are_changed_where_they_moved("corrected"));
    assert!(!are_changed_where_they_moved("corrected,-forget-moved"));
}

/// Tests a split whose thread stops after some steps, in memory that executes verbs in any order. Another node
/// recovers the split, finds every record, and splits more buckets.
#[test]
fn a_split_whose_coordinator_dies_at_any_moment_loses_nothing() {
    let mut began = [0, 0];
    for steps in 0..160 {
        let mut shape = Shape::of(&[half("half", 8)]).protocol(LOTUS).nodes(2, 2);
        (shape.options.log_bytes, shape.options.coordinators_max) = (8 << 10, 4);
        (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 256 << 10);
        let fabric = WeakFabric::new(&shape, steps);
        fabric.calm();
        let [owner, dying, other] = [0, 1, 2].map(|slot| fabric.context(slot, 0));
        let by = |cx: &Rc<_>, number| Coordinator::new(Rc::clone(cx), number, RETRY);
        let insert = |by: &mut Coordinator, keys: std::ops::Range<u64>| {
            for key in keys {
                let inserted = by.transact(async |tx| {
                    let row = tx.insert(T, key);
                    tx.fetch().await?;
                    tx.set(row, A, key);
                    Ok(())
                });
                fabric.block_on(inserted).unwrap();
            }
        };
        owner.growth.enable(false);
        insert(&mut by(&owner, 0), 0..40);
        (0..400).for_each(|_| fabric.step());
        owner.serve();
        dying.growth.request(SHARD);
        {
            let mut dead = by(&dying, 1);
            let split = pin!(dead.transact(async |_| Ok(())));
            let _ = poll_times(split, steps as usize, || {
                (0..23 + steps % 7).for_each(|_| fabric.step());
                owner.serve();
            });
            began[usize::from(splits(&dying) > 0)] += 1;
            fabric.database.membership.expel(dying.node.id);
            fabric.block_on(recovery::recover(&other, dying.node.id)).unwrap();
        }
        owner.serve();
        other.serve();
        let mut reader = by(&other, 2);
        for key in 0..44 {
            let seen =
                reader.transact(async |tx| Ok(tx.get_row(T, key).await?.map(|it| it.u64(A))));
            let there = (key < 40).then_some(key);
            assert_eq!(fabric.block_on(seen), Ok(there), "after {steps} steps");
        }
        insert(&mut reader, 40..80);
        (0..400).for_each(|_| fabric.step());
        other.serve();
        assert!(splits(&other) > 0, "after {steps} steps");
        let audit = fabric.block_on(tarn_engine::admin::inspect::audit(&other)).unwrap();
        assert!(audit.is_clean() && audit.records == 80, "after {steps} steps: {audit}");
    }
    assert!(began[0] > 0 && began[1] > 0, "{began:?} before its end, and behind");
}

const RETRY: Retry = Retry {
    deadline: None,
    pause_first_ns: 10,
    pause_max_ns: 40,
    tries_max: 400,
    patient_tries: 64,
};
