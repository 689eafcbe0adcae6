//! The RTT budget of LOTUS between two compute nodes, with timestamps that cost a round, asserted by
//! counting.
//!
//! Invariant checked: from the first request to the reply a transaction takes the round trips of the table in
//! `docs/protocols/lotus.md`. These are four if its node grants its locks and the version table is
//! remembered, and six if neither is so. A snapshot read takes three or two. A round trip is a round of
//! verbs, or the LOCK messages of one fetch and their replies. The only atomic at a memory node is the verb
//! that takes a commit timestamp from the pool. With the version table remembered, only records are read.
//!
//! (Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks",
//! counts the same.)

use crate::common::*;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_engine::requests::timestamp::pool_word;
use tarn_engine::services::ServiceOptions;
use tarn_engine::services::timestamp::Timestamps;
use tarn_engine::session::coordinator::Coordinator;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::address::NodeSlot;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

const T: TableId = TableId(0);

/// Rounds of verbs until the reply, LOCK messages whose replies were awaited, READs, version tables from
/// memory, and timestamps taken from the pool's word by an atomic.
#[derive(PartialEq, Eq, Debug)]
struct Cost {
    rounds: u64,
    asked: u64,
    reads: u64,
    cached: u64,
    stamps: u64,
}

struct Pair {
    world: World,
    nodes: Vec<Rc<Context>>,
}

impl Pair {
    fn new(variant: &str) -> Pair {
        let shape = Shape::of(&[narrow("t", 4000)]).protocol("lotus").variant(variant).nodes(3, 3);
        let world = World::new(&shape);
        let membership = &world.database.membership;
        let ids: Vec<_> = (0..2).map(|slot| membership.join(NodeSlot(slot)).unwrap()).collect();
        membership.open_shards(&ids);
        let options = ServiceOptions { lock_table_bytes: 1 << 16, ..ServiceOptions::new(1, 2) };
        let thread = |&id| {
            let node = ComputeNode::serving(Arc::clone(&world.database), id, &options).unwrap();
            let port = world.fabric.port(id, 0, 7);
            let mut cx = Context::new(Arc::new(node), port, 0, 1024).unwrap();
            cx.timestamps = Timestamps::Pool(pool_word());
            Rc::new(cx)
        };
        let nodes = ids.iter().map(thread).collect();
        let pair = Pair { world, nodes };
        // Both nodes insert, so that each has then claimed its memory for records.
        for key in 0..40 {
            let mut by = pair.coordinator(key as usize % 2);
            pair.drive(by.transact(async |tx| {
                let row = tx.insert(T, key);
                tx.fetch().await?;
                tx.set(row, A, key);
                Ok(())
            }))
            .unwrap();
        }
        pair.calm();
        pair
    }

    fn coordinator(&self, node: usize) -> Coordinator {
        coordinator(&self.nodes[node], node as u32)
    }

    /// Keys whose locks this node grants.
    fn keys_of(&self, node: usize) -> Vec<u64> {
        let (table, id) = (self.world.database.catalog.table(T), self.nodes[node].node.id);
        let owner = |key: &u64| {
            self.world.database.membership.shard(table.shard_of(*key)).map(|entry| entry.owner)
        };
        (0..40).filter(|key| owner(key) == Some(id)).collect()
    }

    /// Runs a future together with both nodes' services.
    fn drive<O>(&self, future: impl Future<Output = O>) -> O {
        let mut future = pin!(future);
        let mut waiting = Waiting::from_waker(Waker::noop());
        for _ in 0..100_000 {
            self.nodes.iter().for_each(|cx| cx.serve());
            if let Poll::Ready(value) = future.as_mut().poll(&mut waiting) {
                return value;
            }
        }
        panic!("it never ends");
    }

    /// Returns the cost of one transaction until its reply; then awaits all rounds that it left behind.
    fn measure(
        &self,
        by: &mut Coordinator,
        read_only: bool,
        body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<(), Failure>,
    ) -> Cost {
        let cx = Rc::clone(by.context());
        let names = cx.database().protocol.info().phases;
        let phase = |name| {
            let at = names.iter().position(|&phase| phase == name).expect("a phase");
            cx.metrics.snapshot().phases[at]
        };
        let (before, shown, cached) = (cx.port.counts(), phase("show"), phase("cached"));
        let ended = match read_only {
            true => self.drive(by.transact_read_only(body)),
            false => self.drive(by.transact(body)),
        };
        assert_eq!(ended, Ok(()));
        let spent = cx.port.counts() - before;
        let [reads, _, cas, faa, masked] = spent.verbs;
        assert_eq!((cas, masked), (0, 0), "atomics of memory nodes");
        let cost = Cost {
            rounds: spent.rounds - (phase("show") - shown),
            asked: spent.messages,
            reads,
            cached: phase("cached") - cached,
            stamps: faa,
        };
        self.calm();
        cost
    }

    /// Lets all messages and rounds in flight arrive.
    fn calm(&self) {
        (0..100).for_each(|_| self.nodes.iter().for_each(|cx| cx.serve()));
    }
}

async fn read(tx: &mut Transaction<'_>, key: u64) -> Result<(), Failure> {
    let row = tx.get_row(T, key).await?;
    assert!(row.is_some());
    Ok(())
}

async fn add_one(tx: &mut Transaction<'_>, keys: &[u64]) -> Result<(), Failure> {
    let rows: Vec<_> = keys.iter().map(|&key| tx.update(T, key, Cells::one(A))).collect();
    tx.fetch().await?;
    for row in rows {
        let value = tx.get(row).expect("there").u64(A);
        tx.set(row, A, value + 1);
    }
    Ok(())
}

#[test]
fn four_rounds_with_local_locks_and_remembered_tables_and_six_without() {
    let pair = Pair::new("corrected");
    let mut by = pair.coordinator(0);
    let (own, others) = (pair.keys_of(0), pair.keys_of(1));
    // E2, E3, C1, C2, C3: one more than with a remembered table, which there is from the first commit on.
    let first = pair.measure(&mut by, false, async |tx| add_one(tx, &own[..2]).await);
    assert_eq!(first, Cost { rounds: 5, asked: 0, reads: 4, cached: 0, stamps: 1 });
    for _ in 0..3 {
        let again = pair.measure(&mut by, false, async |tx| add_one(tx, &own[..2]).await);
        assert_eq!(again, Cost { rounds: 4, asked: 0, reads: 2, cached: 2, stamps: 1 });
    }
    // E1 is one exchange of messages, however many locks there are. State of another node's shards is not
    // remembered.
    for _ in 0..2 {
        let remote = pair.measure(&mut by, false, async |tx| add_one(tx, &others[..2]).await);
        assert_eq!(remote, Cost { rounds: 5, asked: 1, reads: 4, cached: 0, stamps: 1 });
    }
    pair.world.assert_clean();
}

#[test]
fn three_rounds_to_read_a_snapshot_and_two_with_remembered_tables() {
    let pair = Pair::new("corrected");
    let mut by = pair.coordinator(0);
    let (own, others) = (pair.keys_of(0), pair.keys_of(1));
    // One READ is for T_start.
    let snapshot =
        |rounds, reads: u64, cached| Cost { rounds, asked: 0, reads: 1 + reads, cached, stamps: 0 };
    let mut reading = |key| pair.measure(&mut by, true, async |tx| read(tx, key).await);
    assert_eq!(reading(own[0]), snapshot(3, 2, 0));
    assert_eq!(reading(own[0]), snapshot(2, 1, 1));
    assert_eq!(reading(others[0]), snapshot(3, 2, 0));
    assert_eq!(reading(others[0]), snapshot(3, 2, 0));
    // With a read lock, without T_start.
    let locked = pair.measure(&mut by, false, async |tx| read(tx, own[1]).await);
    assert_eq!(locked, Cost { rounds: 2, asked: 0, reads: 2, cached: 0, stamps: 0 });
    let locked = pair.measure(&mut by, false, async |tx| read(tx, own[1]).await);
    assert_eq!(locked, Cost { rounds: 1, asked: 0, reads: 1, cached: 1, stamps: 0 });
}

/// A write lock granted to another node invalidates the remembered version table. An aborted write of the
/// node's own transaction does not.
#[test]
fn another_node_s_grant_drops_cached_tables_and_an_own_abort_keeps_them() {
    let pair = Pair::new("corrected");
    let (mut by, mut other) = (pair.coordinator(0), pair.coordinator(1));
    let key = pair.keys_of(0)[0];
    let cached =
        |by: &mut Coordinator| pair.measure(by, true, async |tx| read(tx, key).await).cached;
    assert_eq!((cached(&mut by), cached(&mut by)), (0, 1));
    pair.measure(&mut other, false, async |tx| add_one(tx, &[key]).await);
    assert_eq!((cached(&mut by), cached(&mut by)), (0, 1));
    let aborted = pair.drive(by.transact(async |tx| {
        tx.update(T, key, Cells::ALL);
        tx.fetch().await?;
        tx.abort::<()>()
    }));
    assert!(aborted.is_err());
    assert_eq!(cached(&mut by), 1);
    // The node's own commit leaves the new table behind.
    pair.measure(&mut by, false, async |tx| add_one(tx, &[key]).await);
    assert_eq!(cached(&mut by), 1);
    assert_eq!(value(&pair, &mut by, key), key + 2);
    pair.world.assert_clean();
}

fn value(pair: &Pair, by: &mut Coordinator, key: u64) -> u64 {
    let read =
        async |tx: &mut Transaction<'_>| Ok(tx.get_row(T, key).await?.expect("there").u64(A));
    pair.drive(by.transact_read_only(read)).unwrap()
}

#[test]
fn without_the_cache_every_table_is_read() {
    let pair = Pair::new("corrected,-version-cache");
    let mut by = pair.coordinator(0);
    let own = pair.keys_of(0);
    for _ in 0..3 {
        let spent = pair.measure(&mut by, false, async |tx| add_one(tx, &own[..2]).await);
        assert_eq!(spent, Cost { rounds: 5, asked: 0, reads: 4, cached: 0, stamps: 1 });
    }
}
