//! Races around recovery and changes of the configuration, each driven to its moment.
//!
//! Invariant checked: one bad moment a test. What others do is let happen after every number of steps of
//! whoever is raced against, so that the moment is among them whatever the rounds are.

mod common;

use common::weak::WeakFabric;
use common::*;
use std::pin::{Pin, pin};
use std::task::{Context as Waiting, Poll, Waker};
use tarn_engine::catalog::Placement;
use tarn_engine::context::Context;
use tarn_engine::coordinator::Coordinator;
use tarn_engine::outcome::{Failure, Resolution};
use tarn_engine::recovery::{self, Attempt};
use tarn_engine::schema::{Cells, TableId};
use tarn_fabric::address::NodeSlot;

const TABLE: TableId = TableId(0);
const KEY: u64 = 1;
/// Where the phase in which data are sent stands in the metrics.
const WRITE_PHASE: usize = 8;
/// Nothing here takes longer.
const STEPS_MAX: usize = 20_000;

/// One table, on memory nodes 0 and 1, the latter its backup; spares behind them.
fn pair(seed: u64, spares: u16) -> WeakFabric {
    let mut shape = Shape::of(&[narrow("narrow", 8)]).nodes(2, 2);
    shape.options.placement = Placement::Table;
    (shape.options.log_bytes, shape.options.coordinators_max) = (1024, 4);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 0);
    let fabric = WeakFabric::with_spares(&shape, seed, spares);
    (0..spares).for_each(|at| fabric.database.configurations.add_spare(NodeSlot(2 + at)));
    fabric.calm();
    fabric
}

async fn put(by: &mut Coordinator, value: u64) -> Result<(), Failure> {
    by.transact(async |tx| {
        let row = tx.insert(TABLE, KEY);
        tx.fetch().await?;
        tx.set(row, A, value);
        Ok(())
    })
    .await
}

async fn update(by: &mut Coordinator, value: u64) -> Result<(), Failure> {
    by.transact(async |tx| {
        let row = tx.update(TABLE, KEY, Cells::ALL);
        tx.fetch().await?;
        tx.set(row, A, value);
        Ok(())
    })
    .await
}

/// Polls once.
fn poll<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.as_mut().poll(&mut Waiting::from_waker(Waker::noop()))
}

/// Polls with a step of the fabric after each, until it is over, `stop` says so, or so many times.
fn drive<T>(
    fabric: &WeakFabric,
    future: &mut Pin<&mut impl Future<Output = T>>,
    times: usize,
    stop: impl Fn() -> bool,
) -> Option<T> {
    for _ in 0..times {
        if let Poll::Ready(value) = poll(future) {
            return Some(value);
        }
        if stop() {
            return None;
        }
        fabric.step();
    }
    None
}

fn writes(cx: &Context) -> u64 {
    cx.metrics.snapshot().phases[WRITE_PHASE]
}

/// A transaction is acknowledged and its node dies; another has its record next, and its data reach the
/// backup after so many steps of the recoverer, while the primary is gone.
fn follow_after(steps: usize) -> (Resolution, bool) {
    let fabric = pair(1, 0);
    let (dead, alive, by) = (fabric.context(0, 0), fabric.context(1, 0), fabric.context(2, 0));
    let mut first = coordinator(&dead, 0);
    fabric.block_on(put(&mut first, 1)).unwrap();
    fabric.block_on(update(&mut first, 100)).unwrap();
    (0..200).for_each(|_| fabric.step());
    fabric.database.membership.expel(dead.node.id);
    let mut second = coordinator(&alive, 1);
    let mut following = pin!(update(&mut second, 200));
    drive(&fabric, &mut following, STEPS_MAX, || writes(&alive) == 1);
    fabric.hold(alive.node.id, NodeSlot(1));
    fabric.fail_node(NodeSlot(0));
    let mut recovery = pin!(recovery::recover(&by, dead.node.id));
    let early = drive(&fabric, &mut recovery, steps, || false);
    fabric.land(alive.node.id, NodeSlot(1));
    let is_early = early.is_some();
    let attempt = match early {
        Some(attempt) => attempt,
        None => fabric.block_on(recovery),
    };
    let Ok(Attempt::Recovered(recovery)) = attempt else { panic!("{attempt:?}") };
    let [(_, resolution)] = recovery.settled[..] else { panic!("{recovery:?}") };
    (resolution, is_early)
}

#[test]
fn a_follower_whose_data_land_meanwhile_undoes_nobody() {
    for steps in 0.. {
        let (resolution, is_early) = follow_after(steps);
        assert_eq!(
            resolution,
            Resolution::Committed,
            "acknowledged, and undone after {steps} steps"
        );
        if is_early {
            return assert!(steps > 10, "it takes some rounds");
        }
    }
}
