//! Tables that grow under LOTUS, whose locks are in compute nodes and whose snapshots take none.
//!
//! Invariant checked: what of growth holds under every protocol ([`crate::growth`]), and who holds no lock finds what is
//! there while its slot moves.

use crate::common::*;
use crate::growth::{
    SHARD, crowd, drop_at_any_moment, give_way, grow_against_a_model, grow_under_threads, splits,
    tiny_of,
};
use std::pin::pin;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_engine::schema::{Cells, TableId};
use tarn_fabric::executor::block_on;

const T: TableId = TableId(0);
const LOTUS: &str = "lotus";

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

/// A snapshot of all keys and of some that are not there, step by step beside a split: for every number of steps of
/// either before the other goes on.
#[test]
fn a_snapshot_beside_a_split_misses_nothing() {
    let mut split = 0;
    for first in 0..24 {
        for next in [1, 2, 5] {
            let world = tiny_of(LOTUS, &half("half", 8), 2, 4);
            let (mut by, mut reader) = (world.coordinator(0, 0), world.coordinator(1, 0));
            crowd(&mut by, 0..60);
            by.context().growth.request(SHARD);
            let mut task = Waiting::from_waker(Waker::noop());
            {
                let mut splits = pin!(by.transact(async |_| Ok(())));
                let mut seen = pin!(reader.transact_read_only(async |tx| {
                    let rows: Vec<_> = (0..64).map(|key| tx.read(T, key, Cells::ALL)).collect();
                    tx.fetch().await?;
                    Ok(rows.into_iter().map(|row| tx.get(row).map(|it| it.u64(A))).collect())
                }));
                let (mut is_split, mut found) = (false, None::<Vec<Option<u64>>>);
                for step in 0.. {
                    if !is_split && (step < first || step % (next + 1) == 0) {
                        is_split = splits.as_mut().poll(&mut task).is_ready();
                    } else if let Poll::Ready(ended) = seen.as_mut().poll(&mut task) {
                        found = Some(ended.expect("a snapshot"));
                        break;
                    }
                }
                let there = |key: u64| (key < 60).then_some(key);
                let all: Vec<Option<u64>> = (0..64).map(there).collect();
                assert_eq!(found, Some(all), "{first} steps, {next} at a time");
                if !is_split {
                    block_on(splits).expect("nothing of the caller's");
                }
            }
            split += splits(by.context());
            world.assert_clean();
        }
    }
    assert!(split > 0);
}
