//! Compares LOTUS by loads and stores with LOTUS by rounds: the same transactions leave the same memory.
//!
//! Invariant checked: for one coordinator the two access methods have the same visible effects. The compared effects
//! are outcomes, reads and writes, timestamps, and after each run every byte of the memory node, including its log
//! areas. The two methods read records away from their home buckets differently. If no record was away from its home
//! bucket, the test fails, because it compared nothing.

use crate::common::mix::{self, ANYTHING, COMING_AND_GOING, CROWDED_HALVES, HALVES, Mix};
use crate::common::*;
use std::rc::Rc;
use std::sync::Arc;
use tarn_engine::requests::serve;
use tarn_engine::services::ServiceOptions;
use tarn_engine::site::ComputeNode;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::executor::block_on;
use tarn_fabric::rng::{Rng, seeded};
use tarn_store::history::RecordedTxn;
use tarn_store::ids::Failure;
use tarn_store::schema::{Cells, TableId};

/// A mix that reads and changes most records. Many of them are away from their home buckets.
const CROWDED_UPDATES: Mix = Mix { modes: [3, 6, 3, 1], wishes: 4, ..CROWDED_HALVES };

/// The results of a run.
struct Left {
    outcomes: Vec<Result<(), Failure>>,
    history: Vec<RecordedTxn>,
    memory: Vec<u64>,
    /// The number of READs, and the number of all other verbs.
    verbs: (u64, u64),
}

fn memory(world: &World) -> Vec<u64> {
    let region = world.fabric.node(NodeSlot(0)).regions(1)[0];
    let mut words = vec![0; region.bytes() as usize / 8];
    region.read_words(0, &mut words).expect("nobody is writing");
    words
}

/// Lets nodes join in one of three settings, which the seed chooses. In the first setting, a node accesses other
/// nodes' memory directly. In the second setting, one node grants all locks itself. In the third setting, a node has
/// a neighbour that grants half of the locks by direct calls. In the last two settings a fetch has no separate
/// future.
fn join(world: &World, seed: u64) -> Vec<Arc<ComputeNode>> {
    let serving = |slot, services: &ServiceOptions| {
        let id = world.database.membership.join(NodeSlot(slot)).unwrap();
        Arc::new(ComputeNode::serving(Arc::clone(&world.database), id, services).unwrap())
    };
    match seed % 3 {
        0 => vec![world.join(0)],
        1 => vec![serving(0, &ServiceOptions::new(1, 1))],
        _ => {
            let small = ServiceOptions { lock_table_bytes: 1 << 16, ..ServiceOptions::near(1, 2) };
            let nodes: Vec<_> = (0..2).map(|slot| serving(slot, &small)).collect();
            serve::share_out(&world.database, &[nodes[0].id, nodes[1].id]);
            nodes
        }
    }
}

fn run(mix: Mix, near: bool, seed: u64) -> Left {
    let shape = Shape { near, ..mix::shape(1, 1, "corrected").protocol("lotus") };
    let world = World::new(&shape);
    let nodes = join(&world, seed);
    let mut by = coordinator(&world.thread(&nodes[0], 0, 0), 0);
    by.record_history();
    let cx = Rc::clone(by.context());
    let mut rng: Rng = seeded(seed, 1);
    let mut outcomes = Vec::new();
    for value in 1..250 {
        let plan = mix.plan(&mut rng);
        let declared = plan.wishes.iter().all(|wish| wish.mode == tarn_store::ids::Mode::Read);
        let outcome = match declared {
            true => block_on(by.transact_read_only(async |tx| plan.run(tx, value).await)),
            false => block_on(by.transact(async |tx| plan.run(tx, value).await)),
        };
        outcomes.push(outcome);
    }
    let [reads, others @ ..] = cx.port.counts().verbs;
    let history = by.take_history();
    let granted = |node: &Arc<ComputeNode>| node.services().map_or(0, |it| it.granted());
    assert_eq!(nodes.iter().map(granted).sum::<usize>(), 0, "locks of a neighbour");
    // If the node has a neighbour, the neighbour granted some of the locks.
    let has_granted =
        |node: &Arc<ComputeNode>| node.services().is_some_and(|it| it.locks.counts_digest() != 0);
    assert!(nodes.iter().all(has_granted), "one was asked for nothing");
    world.assert_clean();
    Left { outcomes, history, memory: memory(&world), verbs: (reads, others.iter().sum()) }
}

/// Returns a transaction as text, as other transactions see it. So the text contains no time.
fn seen(txn: &RecordedTxn) -> String {
    format!("{:?} {} {:?} {:?} {:?}", txn.id, txn.coordinator, txn.outcome, txn.reads, txn.writes)
}

#[test]
fn loads_and_stores_leave_the_same_memory_as_rounds() {
    for mix in [HALVES, CROWDED_UPDATES, ANYTHING, COMING_AND_GOING] {
        for seed in 0..6 {
            let (near, far) = (run(mix, true, seed), run(mix, false, seed));
            let what = format!("seed {seed}, {mix:?}");
            assert_eq!(near.outcomes, far.outcomes, "{what}");
            let (one, other) = (near.history.iter().map(seen), far.history.iter().map(seen));
            assert!(one.eq(other), "{what}: other histories");
            let differs = near.memory.iter().zip(&far.memory).position(|(one, other)| one != other);
            assert_eq!(differs.map(|word| word * 8), None, "{what}: the first byte that differs");
            assert_eq!(near.verbs.1, far.verbs.1, "{what}: WRITEs and atomics");
            // For records away from their home buckets, the two methods need different READs.
            if mix.keys == CROWDED_UPDATES.keys {
                assert_ne!(near.verbs.0, far.verbs.0, "{what}: nothing was compared");
            }
        }
    }
}

#[test]
fn a_commit_that_a_fault_cuts_is_in_doubt_and_then_settled() {
    // Before its commit, the first coordinator loses access to memory, by a revocation or by the death of the memory
    // node. The coordinator has written nothing, but cannot know this.
    for dies in [false, true] {
        let world = World::new(&Shape::of(&[half("t", 100)]).protocol("lotus"));
        let table = TableId(0);
        let mut by = world.coordinator(0, 0);
        fill(&mut by, table, 1..3);
        let before = memory(&world);
        let id = by.context().node.id;
        let cut = block_on(by.transact(async |tx| {
            let row = tx.update(table, 1, Cells::ALL);
            tx.fetch().await?;
            tx.set(row, A, 77u64);
            match dies {
                true => world.fabric.fail_node(NodeSlot(0)),
                false => world.fabric.fence(id),
            }
            Ok(())
        }));
        assert_eq!(cut, Err(Failure::CommitUnknown));
        assert_eq!(memory(&world), before, "nothing was written");
        let read = block_on(by.transact(async |tx| {
            tx.get_row(table, 1).await?;
            Ok(())
        }));
        assert!(read.is_err(), "nothing is reached any more");
    }
}
