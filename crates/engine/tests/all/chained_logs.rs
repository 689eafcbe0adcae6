//! Tests of transaction logs that continue in blocks outside their log areas, when nodes die and futures are dropped.
//!
//! Invariant checked: a log entry that lacks a part, or contains another entry's part, does not count. Recovery
//! handles a complete entry like any other entry. The log areas of these tests have only a few lines, so nearly every
//! log continues in blocks. Short logs in large log areas have the same properties. Long logs must have these
//! properties under every protocol, at whatever point a transaction dies or is dropped.

use crate::common::crash::{self, Found};
use crate::common::mix::{self, ANYTHING, COMING_AND_GOING, HALVES};
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::pin::pin;
use std::task::{Context as Waiting, Waker};
use tarn_engine::admin::inspect;
use tarn_engine::protocol::{ALL, AnyProtocol};
use tarn_engine::recovery::{self, Pace};
use tarn_engine::session::coordinator::Coordinator;
use tarn_fabric::executor::block_on;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

const T: TableId = TableId(0);
/// The size of a log area in bytes: enough for the head of an entry and one or two locks.
const AREA_BYTES: u64 = 256;
const ROWS: u64 = 60;

/// Returns the shape of a cluster with a table whose rows together have a log of several blocks.
fn shape(protocol: &'static str, (nodes, replicas): (usize, usize)) -> Shape {
    let mut shape = Shape::of(&[double("double", 80)]).protocol(protocol).nodes(nodes, replicas);
    (shape.options.log_bytes, shape.options.coordinators_max) = (AREA_BYTES, 8);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 512 << 10);
    shape
}

/// Sets all rows to `value`, inserts one more row and deletes one row.
async fn change(by: &mut Coordinator, value: u64) -> Result<(), Failure> {
    by.transact(async |tx| {
        let rows: Vec<_> = (0..ROWS).map(|key| tx.update(T, key, Cells::ALL)).collect();
        let comes = tx.insert(T, 1_000 + value);
        tx.delete(T, 1_000 + value - 1);
        tx.fetch().await?;
        for row in rows {
            tx.set(row, A, value);
            tx.set(row, B, &[value as u8; 80]);
        }
        tx.set(comes, A, value);
        Ok(())
    })
    .await
}

/// Returns the value of the rows. All rows must have the same value.
async fn value(by: &mut Coordinator) -> Result<u64, Failure> {
    by.transact(async |tx| {
        let rows: Vec<_> = (0..ROWS).map(|key| tx.read(T, key, Cells::ALL)).collect();
        tx.fetch().await?;
        let seen: Vec<u64> = rows.iter().map(|row| tx.get(*row).expect("there").u64(A)).collect();
        assert!(seen.iter().all(|value| *value == seen[0]), "torn: {seen:?}");
        let [before, now, after] = [seen[0] - 1, seen[0], seen[0] + 1].map(|it| 1_000 + it);
        let others = [before, now, after].map(|key| tx.read(T, key, Cells::ALL));
        tx.fetch().await?;
        assert_eq!(others.map(|row| tx.existed(row)), [false, true, false], "{now}");
        Ok(seen[0])
    })
    .await
}

async fn begin(by: &mut Coordinator) -> Result<(), Failure> {
    by.transact(async |tx| {
        let rows: Vec<_> = (0..ROWS).map(|key| tx.insert(T, key)).collect();
        let comes = tx.insert(T, 1_001u64);
        tx.fetch().await?;
        rows.into_iter().for_each(|row| tx.set(row, A, 1u64));
        tx.set(comes, A, 1u64);
        Ok(())
    })
    .await
}

#[test]
fn a_long_log_dropped_at_any_moment_counts_whole_or_not_at_all() {
    for info in ALL {
        if !info.caps.survives_drops {
            println!("{} does not survive drops", info.name);
            continue;
        }
        for at in [(1, 1), (3, 2)] {
            let world = World::new(&shape(info.name, at));
            let (mut by, mut other) = (world.coordinator(0, 0), world.coordinator(1, 0));
            block_on(begin(&mut by)).unwrap();
            let mut last = 1;
            for polls in 0.. {
                let ended = poll_times(pin!(change(&mut by, last + 1)), polls, || {});
                // The same coordinator runs another transaction; the coordinator first resolves the transaction that
                // was left in doubt.
                block_on(by.transact(async |tx| Ok(tx.read(T, 0u64, Cells::ALL)))).unwrap();
                world.assert_clean();
                let now = block_on(value(&mut other)).unwrap();
                assert!(now == last || now == last + 1, "{}: {last}, then {now}", info.name);
                assert!(ended.is_none() || now == last + 1, "{}: lost", info.name);
                last = now;
                if ended.is_some() {
                    println!("{} on {at:?}: {polls} polls", info.name);
                    break;
                }
            }
        }
    }
}

/// Tests a transaction whose data and log reach memory in any order that the contract allows, until its node dies.
#[test]
fn a_dead_transaction_with_a_long_log_is_finished_or_undone() {
    for info in ALL.iter().filter(|it| it.caps.crash_recovery) {
        if AnyProtocol::by_name(info.name, "corrected").unwrap().needs().locks {
            println!(
                "{}: nodes with its locks take part in recovery; see random deaths",
                info.name
            );
            continue;
        }
        let (mut finished, mut undone) = (0, 0);
        for seed in 0..40 {
            let fabric = WeakFabric::new(&shape(info.name, (3, 2)), seed);
            let (mut by, cx) = (coordinator(&fabric.context(1, 0), 1), fabric.context(0, 0));
            fabric.block_on(begin(&mut by)).unwrap();
            let victim = Box::leak(Box::new(coordinator(&cx, 0)));
            let mut future = Box::pin(change(victim, 2));
            let mut ended = false;
            for _ in 0..seed * seed * 8 {
                let mut waiting = Waiting::from_waker(Waker::noop());
                ended = ended || future.as_mut().poll(&mut waiting).is_ready();
                fabric.step();
            }
            std::mem::forget(future);
            fabric.database.membership.expel(cx.node.id);
            let first = fabric.context(2, 0);
            fabric.block_on(recovery::recover(&first, cx.node.id)).unwrap();
            fabric.block_on(recovery::sweep(&first, Pace::UNPACED)).unwrap();
            let audit = fabric.block_on(inspect::audit(&first)).unwrap();
            assert!(audit.is_clean(), "{} {seed}: {audit}", info.name);
            let now = fabric.block_on(value(&mut by)).unwrap();
            assert!(now == 2 || !ended, "{} {seed}: acknowledged and lost", info.name);
            *(if now == 2 { &mut finished } else { &mut undone }) += 1;
            fabric.end();
        }
        println!("{}: {finished} finished, {undone} undone", info.name);
        assert!(finished > 0 && undone > 0, "{}: {finished}, {undone}", info.name);
    }
}

#[test]
fn random_deaths_with_small_log_areas_lose_nothing() {
    for info in ALL.iter().filter(|it| it.caps.crash_recovery) {
        let mut found = Found::default();
        for seed in 0..12 {
            for mix in [ANYTHING, COMING_AND_GOING, HALVES] {
                let replicas = 1 + seed as usize % 3;
                let shape = mix::shape(replicas, replicas, "corrected").protocol(info.name);
                let mut shape = shape.leasing_reads(60);
                (shape.options.log_bytes, shape.options.spare_bytes) = (AREA_BYTES, 1 << 20);
                crash::run(&shape, mix, seed, &mut found).unwrap_or_else(|text| panic!("{text}"));
            }
        }
        println!("{}: {} committed, {} aborted", info.name, found.committed, found.aborted);
    }
}
