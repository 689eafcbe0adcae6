//! Tests of walks along ordered indexes during splits and merges, and of trees on copies that have joined.
//!
//! Invariant checked: whichever parts of a split have reached memory, a walk passes every node and ends. Suppose that
//! a node was merged and then a copy joined. In this case, no thread trusts a cached path to the merged node on that
//! copy. Runs are deterministic, because the test itself takes each step of the fabric.

use crate::common;
use crate::common::scene::{PACE, TERMS};
use crate::common::weak::WeakFabric;
use crate::common::*;
use std::rc::Rc;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_engine::admin::{inspect, repair};
use tarn_engine::recovery;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::{IndexKey, Scan};
use tarn_fabric::address::{GroupId, NodeSlot};
use tarn_store::schema::{IndexId, Key, TableId};

const T: TableId = TableId(0);

async fn put(by: &mut Coordinator, key: u64) {
    by.transact(async |tx| {
        let row = tx.insert(T, key);
        tx.fetch().await?;
        tx.set(row, A, key % 7);
        Ok(())
    })
    .await
    .unwrap();
}

async fn take(by: &mut Coordinator, key: u64) {
    by.transact(async |tx| {
        tx.delete(T, key);
        Ok(())
    })
    .await
    .unwrap();
}

/// Returns the records that one scan of a whole index returns.
async fn all(by: &mut Coordinator, index: u16) -> Vec<u64> {
    by.transact(async |tx| {
        let handle = tx.scan(IndexId(index), Scan::prefix(IndexKey::new()));
        tx.fetch().await?;
        let word = |key: Key<'_>| match key {
            Key::Word(word) => word,
            Key::Bytes(_) => panic!("keys are words"),
        };
        Ok(tx.scanned(handle).map(|entry| word(entry.record)).collect())
    })
    .await
    .unwrap()
}

fn is_whole(fabric: &WeakFabric) -> bool {
    let open = fabric.database.configurations.open();
    let full = |group| open.groups.members(GroupId(group)).len() == 2;
    fabric.database.configurations.dead().is_empty()
        && !open.groups.is_joining()
        && (0..open.groups.count() as u16).all(full)
}

/// Tests a thread that caches a path to nodes, which another thread then merges. After that copies die, and copies
/// join that never had those nodes. So the cached path leads to zeros.
#[test]
fn a_cached_path_to_a_merged_node_is_refused_where_a_copy_has_joined() {
    let shape = common::mix::ordered_shape(2, 2, "corrected");
    let fabric = WeakFabric::with_spares(&shape, 5, 2);
    fabric.calm();
    (2..4).for_each(|spare| fabric.database.configurations.add_spare(NodeSlot(spare)));
    let mut merging = Coordinator::new(fabric.context(0, 0), 0, Retry::default());
    let mut remembering = Coordinator::new(fabric.context(1, 0), 1, Retry::default());
    let repairer = fabric.context(2, 0);
    for key in 0..300 {
        fabric.block_on(put(&mut merging, key));
    }
    let before = fabric.block_on(all(&mut remembering, 0));
    assert_eq!(before, (0..300).collect::<Vec<u64>>());
    // The test deletes keys leaf by leaf, so that each leaf is merged into the previous leaf.
    for key in 20..280 {
        fabric.block_on(take(&mut merging, key));
    }
    let merges = merging.context().metrics.snapshot().node_merges;
    assert!(merges > 4, "{merges} merges");
    for dead in 0..2 {
        fabric.fail_node(NodeSlot(dead));
        let mut steps = 0;
        while steps == 0 || !is_whole(&fabric) {
            steps += 1;
            assert!(steps < 200, "nobody mends it");
            let _ = fabric.block_on(repair::step(&repairer, TERMS, PACE, &mut |_| {}));
        }
    }
    let left: Vec<u64> = (0..20).chain(280..300).collect();
    assert_eq!(fabric.block_on(all(&mut remembering, 0)), left);
    // The thread that merged nodes does not reuse dead nodes of an earlier configuration. The thread puts new entries
    // into nodes of the tree.
    for key in 100..260 {
        fabric.block_on(put(&mut merging, key));
    }
    fabric.block_on(put(&mut remembering, 50));
    let audit = fabric.block_on(inspect::audit(&repairer)).unwrap();
    assert!(audit.is_clean(), "{audit}");
}

/// How a split ends whose writes have reached one memory node and not the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The writes of the split reach the other node later.
    Lands,
    /// The compute node of the split dies, and is recovered much later.
    Dies,
}

/// The number of turns that a sweep may take while a split is incomplete.
const TURNS: usize = 30_000;
/// The number of turns that a lease may last.
const LONG: usize = 6_000_000;

/// Holds back the data of the `split`-th split in the middle of a tree, at one memory node. Meanwhile another node
/// makes a sweep. Returns the numbers of LOCK words that this sweep and an earlier sweep read.
fn sweep_beside_split(split: u64, held: u16, end: End) -> Option<(u64, u64)> {
    let shape = common::mix::ordered_shape(2, 1, "corrected");
    let fabric = WeakFabric::new(&shape, 5);
    fabric.calm();
    let (cx, other) = (fabric.context(0, 0), fabric.context(1, 0));
    let mut by = Coordinator::new(Rc::clone(&cx), 0, Retry::default());
    for key in 0..400 {
        fabric.block_on(put(&mut by, key * 2));
    }
    let phases = fabric.database.protocol.info().phases;
    let count = |name: &str| {
        let at = phases.iter().position(|it| *it == name).expect("a phase");
        cx.metrics.snapshot().phases[at]
    };
    let whole = fabric.block_on(recovery::sweep(&other, PACE)).unwrap();
    // The test runs until the split's data are in flight.
    let (before, mut begun) = (count("restructure"), None);
    let mut waiting = Waiting::from_waker(Waker::noop());
    let mut working = Box::pin(async {
        for key in 60..240 {
            put(&mut by, key * 2 + 1).await;
        }
    });
    loop {
        if working.as_mut().poll(&mut waiting).is_ready() {
            return None;
        }
        let begins = count("restructure") >= before + split;
        if begins && begun.is_none() {
            begun = Some(count("write"));
        }
        if begun.is_some_and(|begun| count("write") > begun) {
            break;
        }
        fabric.step();
    }
    fabric.hold(cx.node.id, NodeSlot(held));
    (0..4_000).for_each(|_| fabric.step());
    let mut sweeping = Box::pin(recovery::sweep(&other, PACE));
    let mut swept = None;
    if end == End::Dies {
        std::mem::forget(working);
        fabric.database.membership.expel(cx.node.id);
        for _ in 0..LONG {
            if swept.is_none()
                && let Poll::Ready(found) = sweeping.as_mut().poll(&mut waiting)
            {
                swept = Some(found.unwrap());
            }
            fabric.step();
        }
        let recoverer = fabric.thread(&other.node, 1, 0);
        fabric.block_on(recovery::recover(&recoverer, cx.node.id)).unwrap();
    } else {
        for _ in 0..TURNS {
            if swept.is_none()
                && let Poll::Ready(found) = sweeping.as_mut().poll(&mut waiting)
            {
                swept = Some(found.unwrap());
            }
            fabric.step();
        }
        fabric.land(cx.node.id, NodeSlot(held));
        fabric.block_on(working);
    }
    let swept = swept.unwrap_or_else(|| fabric.block_on(sweeping).unwrap());
    let audit = fabric.block_on(inspect::audit(&other)).unwrap();
    assert!(audit.is_clean(), "{audit}");
    fabric.end();
    Some((swept.looked_at, whole.looked_at))
}

fn every_node_is_swept(end: End, splits: u64) {
    let mut sweeps = 0;
    for (split, held) in (1..=splits).flat_map(|split| [(split, 0), (split, 1)]) {
        let Some((beside, before)) = sweep_beside_split(split, held, end) else { continue };
        println!("split {split}, held at {held}: {beside} beside, {before} before");
        // No node is merged, so this sweep cannot read fewer LOCK words than the earlier sweep.
        assert!(beside >= before, "split {split}, held at {held}: {beside} of {before}");
        sweeps += 1;
    }
    assert!(sweeps > 2, "{sweeps} splits");
}

#[test]
fn a_sweep_beside_half_of_a_split_ends_behind_the_last_node() {
    every_node_is_swept(End::Lands, 24);
}

#[test]
fn a_sweep_waits_for_the_split_of_a_dead_node() {
    every_node_is_swept(End::Dies, 2);
}
