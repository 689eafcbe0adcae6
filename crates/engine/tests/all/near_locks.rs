//! Tests of locks of compute nodes that call each other within one process, on real threads, while shards move.
//!
//! Invariants checked: a transaction holds its locks from the moment when it may take its commit timestamp until it
//! releases them. In that time no other transaction holds a conflicting lock, whichever node granted the lock. At the
//! end no lock is held, and every shard is open. The tests find three planted bugs: a lock table without bits, moves
//! that do not wait, and moves that a message decides.

#![allow(clippy::disallowed_methods, reason = "drives real threads and watches real time")]

use crate::common::*;
use rand::RngExt as _;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tarn_engine::requests::resharding::{Move, move_shard};
use tarn_engine::requests::serve;
use tarn_engine::services::lock::name::{LockMode, LockName};
use tarn_engine::services::lock::table::Bits;
use tarn_engine::services::{Planted, ServiceOptions, Transport};
use tarn_engine::site::{ComputeNode, Context};
use tarn_engine::transaction::lock_set::LockSet;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::Executor;
use tarn_fabric::rng::seeded;
use tarn_store::placement::shard_map::{ShardId, ShardState};

const NODES: u16 = 2;
const COROUTINES: u64 = 6;
const KEYS: usize = 12;
/// The time within which a test must find a planted bug. On two processors a test finds it within milliseconds.
const FIND_LIMIT: Duration = Duration::from_secs(60);
const TRANSACTIONS: u64 = 3_000;
/// The amount that a writer adds to a key's count of holders; a reader adds one.
const WRITER: i64 = 1 << 32;

/// Returns the shard of a key. The keys belong to shards of different owners.
fn shard_of(key: usize) -> ShardId {
    ShardId((key % 4) as u16)
}

#[derive(Default)]
struct Oracle {
    held: [AtomicI64; KEYS],
    clashes: AtomicU64,
    refused: AtomicU64,
    done: AtomicU64,
    moved: AtomicU64,
    at_work: AtomicI64,
}

impl Oracle {
    fn weight(mode: LockMode) -> i64 {
        if mode == LockMode::Write { WRITER } else { 1 }
    }

    fn enter(&self, locks: &[(usize, LockMode)]) {
        for &(key, mode) in locks {
            let before = self.held[key].fetch_add(Oracle::weight(mode), Ordering::SeqCst);
            let clashes = before >= WRITER || (mode == LockMode::Write && before != 0);
            self.clashes.fetch_add(u64::from(clashes), Ordering::SeqCst);
        }
    }

    fn leave(&self, locks: &[(usize, LockMode)]) {
        for &(key, mode) in locks {
            self.held[key].fetch_sub(Oracle::weight(mode), Ordering::SeqCst);
        }
    }
}

/// Locks a few keys as a transaction does, repeatedly.
async fn work(cx: Rc<Context>, oracle: &Oracle, seed: u64) {
    let mut rng = seeded(seed, 1);
    let mut held = LockSet::default();
    for _ in 0..TRANSACTIONS {
        let mut locks: Vec<(usize, LockMode)> = Vec::new();
        for _ in 0..rng.random_range(1..4) {
            let mode = if rng.random_range(0..2) == 0 { LockMode::Read } else { LockMode::Write };
            let key = rng.random_range(0..KEYS);
            if locks.iter().all(|(it, _)| *it != key) {
                locks.push((key, mode));
            }
        }
        for &(key, mode) in &locks {
            held.ask(&cx, LockName::row(0, key as u64), shard_of(key), mode);
        }
        let granted = match held.collect(&cx, cx.next_tag()).await {
            Ok(()) => held.secure(&cx),
            refused => refused,
        };
        if granted.is_ok() {
            oracle.enter(&locks);
            if rng.random_range(0..2) == 0 {
                cx.port.yield_now().await;
            }
            oracle.leave(&locks);
            oracle.done.fetch_add(1, Ordering::Relaxed);
        } else {
            oracle.refused.fetch_add(1, Ordering::Relaxed);
        }
        held.release(&cx, None);
        if rng.random_range(0..4) == 0 {
            cx.port.yield_now().await;
        }
    }
    oracle.at_work.fetch_sub(1, Ordering::SeqCst);
}

/// Moves shards of this node to the other node.
async fn move_shards(cx: Rc<Context>, oracle: &Oracle, to: NodeId, seed: u64) {
    let mut rng = seeded(seed, 2);
    while oracle.at_work.load(Ordering::SeqCst) > 0 {
        cx.port.sleep(Nanos(rng.random_range(1_000..50_000))).await;
        let shard = ShardId(rng.random_range(0..4));
        if let Move::Made { .. } = move_shard(&cx, shard, to, Nanos(2_000_000)).await {
            oracle.moved.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Runs two nodes with one thread each. The services of both nodes have these options.
fn run(seed: u64, services: &ServiceOptions) -> Oracle {
    let world = World::new(&Shape::of(&[half("t", 100)]).protocol("lotus"));
    let join = |slot| {
        let id = world.database.membership.join(NodeSlot(slot)).unwrap();
        Arc::new(ComputeNode::serving(Arc::clone(&world.database), id, services).unwrap())
    };
    let nodes: Vec<_> = (0..NODES).map(join).collect();
    let ids: Vec<_> = nodes.iter().map(|node| node.id).collect();
    let bits = |node: &Arc<ComputeNode>| node.services().map(|it| it.locks.bits());
    let wanted = services.planted_bits.unwrap_or(Bits::Shared);
    assert!(nodes.iter().all(|node| bits(node) == Some(wanted)), "others reach its table");
    serve::share_out(&world.database, &ids);
    let oracle = Oracle::default();
    oracle.at_work.store(i64::from(NODES) * COROUTINES as i64, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for (node, to) in nodes.iter().zip(ids.iter().rev()) {
            let (world, oracle) = (&world, &oracle);
            scope.spawn(move || {
                let cx = world.thread(node, 0, 0);
                let mut executor = Executor::new();
                let own = seed * 100 + u64::from(node.id.slot.0) * COROUTINES;
                for number in 0..COROUTINES {
                    executor.spawn(work(Rc::clone(&cx), oracle, own + number));
                }
                executor.spawn(move_shards(Rc::clone(&cx), oracle, *to, own));
                let its = Rc::clone(&cx);
                let stop = || oracle.at_work.load(Ordering::SeqCst) == 0;
                executor.spawn(async move { serve::run(&its, stop).await });
                executor.run();
            });
        }
    });
    if services.planted_bits.is_none() && services.planted_move.is_none() {
        for node in &nodes {
            let its = node.services().expect("it serves");
            assert_eq!((its.locks.held(), its.granted()), (0, 0), "seed {seed}, {}", node.id);
        }
        for shard in (0..4).map(ShardId) {
            let entry = world.database.membership.shard(shard).expect("it is somebody's");
            assert_eq!(entry.state, ShardState::Open, "seed {seed}, {shard:?}");
        }
    }
    oracle
}

fn near() -> ServiceOptions {
    ServiceOptions { lock_table_bytes: 1 << 10, ..ServiceOptions::near(1, usize::from(NODES)) }
}

#[test]
fn no_two_threads_hold_a_lock_whichever_node_granted_it() {
    assert_eq!(near().transport, Transport::Near);
    let (mut moved, mut refused) = (0, 0);
    for seed in 0..8 {
        let oracle = run(seed, &near());
        assert_eq!(oracle.clashes.load(Ordering::SeqCst), 0, "seed {seed}");
        assert!(oracle.done.load(Ordering::SeqCst) > TRANSACTIONS, "seed {seed}");
        moved += oracle.moved.load(Ordering::SeqCst);
        refused += oracle.refused.load(Ordering::SeqCst);
    }
    println!("{moved} shards moved, {refused} tries refused");
    assert!(moved > 20 && refused > 1_000, "{moved} {refused}");
}

#[test]
fn planted_wrong_grants_are_noticed() {
    if std::thread::available_parallelism().is_ok_and(|it| it.get() < 2) {
        println!("skipped: one processor shows no race");
        return;
    }
    let planted = [
        ("no bits", ServiceOptions { planted_bits: Some(Bits::PlantedNoBit), ..near() }),
        ("forced", ServiceOptions { planted_move: Some(Planted::Forced), ..near() }),
        ("twice", ServiceOptions { planted_move: Some(Planted::TransferDecides), ..near() }),
    ];
    for (what, services) in planted {
        let (began, mut seed) = (Instant::now(), 0);
        let noticed = loop {
            if run(seed, &services).clashes.load(Ordering::SeqCst) > 0 {
                break true;
            }
            seed += 1;
            if began.elapsed() > FIND_LIMIT {
                break false;
            }
        };
        println!("{what}: noticed {noticed}, seed {seed}, {} ms", began.elapsed().as_millis());
        assert!(noticed, "{what}: two held a lock and nobody saw it");
    }
}
