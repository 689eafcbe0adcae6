//! Helpers for tests of one race at one exact moment: they create a small cluster, take single steps, and repair it.
//!
//! Invariant: only the test itself causes a step. Between the test's steps no coroutine is polled and no verb takes
//! effect.

use super::weak::WeakFabric;
use super::{A, Shape, narrow};
use std::pin::Pin;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_engine::admin::repair;
use tarn_engine::protocol::ALL;
use tarn_engine::recovery::reconfigure::{Changed, Terms, change, replaced};
use tarn_engine::recovery::{self, Attempt, Pace};
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::site::Context;
use tarn_fabric::address::{Address, GroupId, NodeId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;
use tarn_store::ids::Failure;
use tarn_store::placement::catalog::Placement;
use tarn_store::schema::{Cells, TableId};

pub const TABLE: TableId = TableId(0);
pub const KEY: u64 = 1;
pub const PACE: Pace = Pace { blocks: 6, pause_ns: 4, look_every_ns: 10, ..Pace::UNPACED };
pub const TERMS: Terms = Terms { patience_ns: 3_000, look_every_ns: 4 };
/// The index of the phase that sends data, in the list of phases in the metrics.
pub const WRITE_PHASE: usize = 8;
/// The maximum number of steps of a run of these tests.
pub const STEPS_MAX: usize = 20_000;

/// Creates a cluster with one table on memory node 0 and its backup, node 1. Spare nodes have the numbers after 1.
pub fn pair(seed: u64, spares: u16) -> WeakFabric {
    pair_of(ALL[0].name, seed, spares)
}

pub fn pair_of(protocol: &'static str, seed: u64, spares: u16) -> WeakFabric {
    let mut shape = Shape::of(&[narrow("narrow", 8)]).nodes(2, 2).protocol(protocol);
    shape.options.placement = Placement::Table;
    (shape.options.log_bytes, shape.options.coordinators_max) = (1024, 4);
    (shape.options.chunk_bytes, shape.options.spare_bytes) = (4096, 0);
    let fabric = WeakFabric::with_spares(&shape, seed, spares);
    (0..spares).for_each(|at| fabric.database.configurations.add_spare(NodeSlot(2 + at)));
    fabric.calm();
    fabric
}

pub async fn put(by: &mut Coordinator, value: u64) -> Result<(), Failure> {
    by.transact(async |tx| {
        let row = tx.insert(TABLE, KEY);
        tx.fetch().await?;
        tx.set(row, A, value);
        Ok(())
    })
    .await
}

pub async fn update(by: &mut Coordinator, value: u64) -> Result<(), Failure> {
    by.transact(async |tx| {
        let row = tx.update(TABLE, KEY, Cells::ALL);
        tx.fetch().await?;
        tx.set(row, A, value);
        Ok(())
    })
    .await
}

/// Polls the future once.
pub fn poll<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.as_mut().poll(&mut Waiting::from_waker(Waker::noop()))
}

/// Polls the future, with a step of the fabric after each poll. The function ends when the future is ready, when
/// `stop` returns true, or after `times` polls.
pub fn drive<T>(
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

pub fn writes(cx: &Context) -> u64 {
    cx.metrics.snapshot().phases[WRITE_PHASE]
}

/// Repairs the cluster until the map contains no dead node and every joining copy is filled.
pub fn mend_all(fabric: &WeakFabric, by: &Context) {
    let configurations = &fabric.database.configurations;
    for _ in 0..20 {
        fabric.block_on(repair::step(by, TERMS, PACE, &mut |_| {})).unwrap();
        let is_joining = configurations.open().groups.is_joining();
        if configurations.dead().is_empty() && !is_joining {
            return;
        }
    }
    panic!("not mended: {:?}", configurations.open());
}

/// Makes one change of the configuration. The change removes dead nodes from the map, and spare nodes begin to join.
pub fn change_once(fabric: &WeakFabric, by: &Context) -> Changed {
    let configurations = &fabric.database.configurations;
    let mut nobody = |_: NodeId, _: &recovery::Recovery| {};
    let next = change(by, TERMS, &mut nobody, |map| replaced(configurations, map));
    fabric.block_on(next).unwrap()
}

/// Returns a memory node's answer to a READ that a compute node's incarnation sends.
pub fn ask(fabric: &WeakFabric, cx: &Context, at: u16) -> Result<(), FabricError> {
    let mut round = Round::new();
    round.read(Address::new(GroupId(0), 0).at(NodeSlot(at)), 8);
    fabric.block_on(cx.port.execute(&mut round)).map_err(|error| *error)
}

pub fn recovered(fabric: &WeakFabric, by: &Context, dead: NodeId) {
    let attempt = fabric.block_on(recovery::recover(by, dead)).unwrap();
    assert!(matches!(attempt, Attempt::Recovered(_)), "{attempt:?}");
}
