//! Tests of trees in which the separator of a split node is missing in the level above.
//!
//! Invariant checked: a thread that needs the split-off node reaches it along the field NEXT and continues from
//! there, at every level. A missing separator costs one step, and no transaction fails. If a thread has passed a node
//! whose separator is missing, the thread inserts the separator into the level above.

use crate::common::race::poll;
use crate::common::*;
use std::pin::pin;
use tarn_engine::session::coordinator::{Coordinator, Retry};
use tarn_engine::session::transaction::{IndexKey, Scan, ScanHandle, Transaction};
use tarn_engine::steps::trees;
use tarn_fabric::address::GroupId;
use tarn_fabric::clock::Nanos;
use tarn_fabric::executor::block_on;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::schema::{IndexId, IndexPart, Key, TableId};

const T: TableId = TableId(0);
/// A retry rule that allows only one try, so that no thread repairs the tree between tries.
const ONCE: Retry = Retry { tries_max: 1, ..Retry::PATIENT };
/// The number of times that the index key repeats the record's key. So an index key is long, and few entries fill a
/// node.
const TIMES: usize = 7;

/// Returns the index key of the record with this key.
fn whole(key: u64) -> IndexKey {
    (0..TIMES).fold(IndexKey::new(), |parts, _| parts.u64(key))
}

fn keys_of(tx: &Transaction<'_>, handle: ScanHandle) -> Vec<u64> {
    let word = |key: Key<'_>| match key {
        Key::Word(word) => word,
        Key::Bytes(_) => panic!("keys are words"),
    };
    tx.scanned(handle).map(|entry| word(entry.record)).collect()
}

async fn insert(by: &mut Coordinator, key: u64) -> Result<(), Failure> {
    by.transact(async |tx| {
        tx.insert_zeros(T, key);
        tx.fetch().await
    })
    .await
}

/// A tree of three levels or more. The tree's coordinator was dropped in the middle of its work on the tree.
struct Tree {
    world: World,
    index: IndexId,
    /// The keys of the tree in ascending order. Every second possible key is not in the tree.
    keys: Vec<u64>,
}

impl Tree {
    fn new() -> Tree {
        let schema = narrow("t", 4_000).index("by_key", &[IndexPart::Key; TIMES], true);
        Tree::of(World::new(&Shape::of(&[schema])))
    }

    fn of(world: World) -> Tree {
        let index = world.database.catalog.index_id("t", "by_key").unwrap();
        Tree { world, index, keys: Vec::new() }
    }

    /// The number of levels, including the level of the leaves.
    fn levels(&self, by: &Coordinator) -> usize {
        let index = self.world.database.catalog.ordered(self.index);
        block_on(trees::leftmost(by.context(), index)).unwrap().len()
    }

    /// Inserts descending keys until a split happens for which `is_it` returns true. `is_it` gets the number of
    /// levels before the insert, and the number of splits by the insert. The function drops the coordinator before it
    /// inserts the new node's separator into the level above.
    fn split_and_drop(&mut self, is_it: impl Fn(usize, u64) -> bool) {
        let mut by = self.world.coordinator(0, 0);
        for key in (0..2_000).rev().map(|half| half * 2) {
            let (levels, cx) = (self.levels(&by), std::rc::Rc::clone(by.context()));
            let splits = || cx.metrics.snapshot().node_splits;
            let before = splits();
            let mut inserting = pin!(insert(&mut by, key));
            while poll(&mut inserting.as_mut()).is_pending() {
                if is_it(levels, splits() - before) {
                    self.keys.sort_unstable();
                    return self.world.database.membership.leave(cx.node.id);
                }
            }
            self.keys.push(key);
        }
        panic!("no such split");
    }

    /// Creates a tree in which an inner node other than the root was split. The level above does not have the new
    /// node's separator.
    fn with_inner_sibling() -> Tree {
        let mut tree = Tree::new();
        tree.split_and_drop(|levels, splits| levels > 2 && splits == 2);
        tree
    }

    /// Returns the keys under those inner nodes of level 1 to which no separator in the root leads.
    fn unposted(&self) -> Vec<u64> {
        let (cx, index) =
            (self.world.context(2, 0), self.world.database.catalog.ordered(self.index));
        let word = |key: &[u8]| u64::from_be_bytes(*key.first_chunk().unwrap());
        let (mut posted, mut all) = (Vec::new(), Vec::new());
        block_on(async {
            let levels = trees::leftmost(&cx, index).await?;
            let [(2, root), (1, first), _] = levels[..] else { panic!("{levels:?}") };
            trees::each_node(&cx, index, root, |_, node, _| {
                posted = node.used().map(|slot| word(node.key(slot))).collect();
            })
            .await?;
            trees::each_node(&cx, index, first, |_, node, _| {
                all.push((word(node.low()), node.high().map_or(u64::MAX, word)));
            })
            .await
        })
        .unwrap();
        all.retain(|(low, _)| !posted.contains(low));
        let is_there = |key: &&u64| all.iter().any(|&(low, high)| (low..high).contains(key));
        self.keys.iter().filter(is_there).copied().collect()
    }

    /// Runs one try of a transaction on a thread whose caches are empty.
    fn cold<R>(
        &self,
        mut body: impl AsyncFnMut(&mut Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let cx = self.world.context(1, 0);
        let mut by = Coordinator::new(std::rc::Rc::clone(&cx), 1, ONCE);
        let result = block_on(by.transact(async |tx| body(tx).await));
        self.world.database.membership.leave(cx.node.id);
        result
    }
}

/// An action on one of the tree's keys, given by its index. Returns whether the result was right.
type Act = fn(&Tree, usize) -> Result<bool, Failure>;

/// Looks up the key at this index.
fn sought(tree: &Tree, at: usize) -> Result<bool, Failure> {
    tree.cold(async |tx| {
        let handle = tx.seek(tree.index, whole(tree.keys[at]));
        tx.fetch().await?;
        Ok(keys_of(tx, handle) == [tree.keys[at]])
    })
}

/// Scans in both directions from the key at this index over the next leaves.
fn scanned(tree: &Tree, at: usize) -> Result<bool, Failure> {
    let near = &tree.keys[at..tree.keys.len().min(at + 40)];
    let range = Scan::range(whole(near[0]), whole(near[near.len() - 1]));
    tree.cold(async |tx| {
        let handle = tx.scan(tree.index, range);
        tx.fetch().await?;
        Ok(keys_of(tx, handle) == near)
    })
}

fn scanned_back(tree: &Tree, at: usize) -> Result<bool, Failure> {
    let near = &tree.keys[at.saturating_sub(39)..=at];
    let range = Scan::range(whole(near[0]), whole(tree.keys[at])).backward();
    tree.cold(async |tx| {
        let handle = tx.scan(tree.index, range);
        tx.fetch().await?;
        Ok(keys_of(tx, handle).iter().rev().eq(near))
    })
}

/// Deletes the key at this index and inserts it again.
fn changed(tree: &Tree, at: usize) -> Result<bool, Failure> {
    let key = tree.keys[at];
    tree.cold(async |tx| {
        tx.delete(T, key);
        tx.fetch().await
    })?;
    tree.cold(async |tx| {
        let row = tx.insert_zeros(T, key);
        tx.fetch().await?;
        Ok(!tx.existed(row))
    })
}

#[test]
fn a_missing_separator_costs_a_step_at_every_level() {
    let acts: [(&str, Act); 4] =
        [("look up", sought), ("scan", scanned), ("scan back", scanned_back), ("change", changed)];
    let mut wrong = Vec::new();
    for (name, act) in acts {
        let tree = Tree::with_inner_sibling();
        let hard = tree.unposted();
        assert!(hard.len() > 100, "{}", hard.len());
        for (at, &key) in tree.keys.iter().enumerate() {
            let found = act(&tree, at);
            if found != Ok(true) {
                wrong.push((name, key, found));
                break; // a try that failed may have repaired the tree
            }
        }
        assert!(!wrong.is_empty() || tree.unposted() == hard, "nobody had to post it");
        tree.world.assert_clean();
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Tests a node whose separator is missing in the level above. Every transaction of a thread needs this node, and
/// none of the coordinators begins another transaction. So no coordinator is free to insert the separator.
#[test]
fn transactions_that_need_an_unposted_node_commit() {
    let tree = Tree::with_inner_sibling();
    let cx = tree.world.context(1, 0);
    let hard = tree.unposted();
    assert!(hard.len() > 100, "{}", hard.len());
    let mut all: Vec<_> = (0..4)
        .map(|number| {
            let mut by = Coordinator::new(std::rc::Rc::clone(&cx), number + 1, Retry::PATIENT);
            // Each transaction has its own leaf, so the transactions do not refuse each other for long.
            let key = hard[hard.len() / 4 * number as usize] + 1;
            Some(Box::pin(async move { insert(&mut by, key).await }))
        })
        .collect();
    for _ in 0..2_000 {
        for run in &mut all {
            if let Some(future) = run
                && let std::task::Poll::Ready(result) = poll(&mut future.as_mut())
            {
                assert_eq!(result, Ok(()));
                *run = None;
            }
        }
    }
    let tally = cx.metrics.snapshot();
    assert!(all.iter().all(Option::is_none), "{tally:?}");
    let stale = AbortReason::ALL.iter().position(|&it| it == AbortReason::StaleAddress).unwrap();
    assert_eq!(tally.aborts[stale], 0, "{tally:?}");
    drop(all);
    tree.world.assert_clean();
}

/// Tests a queue whose leftmost leaf was split, while the separator of the new half is missing in the level above.
/// Both halves become empty. A thread that continues to take entries from the queue merges the halves.
#[test]
fn empty_leaves_are_merged_though_one_of_them_is_not_posted() {
    let mut tree = Tree::new();
    tree.split_and_drop(|levels, splits| levels == 2 && splits == 1);
    let (index, third) = (tree.index, tree.keys.len() / 3);
    let pop = async |tx: &mut Transaction<'_>| {
        let handle = tx.scan(index, Scan::prefix(IndexKey::new()).limit(1));
        tx.fetch().await?;
        let first = keys_of(tx, handle)[0];
        tx.delete(T, first);
        tx.fetch().await?;
        Ok(first)
    };
    // The threads that take the entries have ended before the merges should be made.
    for &key in &tree.keys[..2 * third + 2] {
        assert_eq!(tree.cold(pop), Ok(key));
    }
    let mut by = tree.world.coordinator(2, 0);
    for _ in 0..10 {
        block_on(by.transact(async |tx| pop(tx).await)).unwrap();
    }
    let tally = by.context().metrics.snapshot();
    assert!(tally.node_merges >= 2, "{tally:?}");
    tree.world.assert_clean();
}

/// Creates a heap with space for `nodes` nodes when the root is full. An inner node is split, and there is no space
/// for the new node's separator. Transactions can still find, change and delete all inserted keys.
fn without_room_for_a_separator(nodes: usize) -> Failure {
    let schema = narrow("t", 40_000).index("by_key", &[IndexPart::Key; TIMES], true);
    let mut shape = Shape::of(&[schema]);
    shape.options.spare_bytes = 0;
    let tree = Tree::of(World::new(&shape));
    let (world, index) = (&tree.world, tree.world.database.catalog.ordered(tree.index));
    let retry = Retry { deadline: Some(Nanos(1_000_000_000)), ..Retry::PATIENT };
    let cx = world.context(0, 0);
    let mut by = Coordinator::new(std::rc::Rc::clone(&cx), 0, retry);
    let (bytes, mut is_full, mut kept) = (index.shape.node_bytes as u32, false, Vec::new());
    let mut keys = (0..15_000u64).rev();
    let (failed, failure) = loop {
        let key = keys.next().expect("the heap is not full");
        if !is_full {
            block_on(trees::each_node(&cx, index, index.root, |_, node, _| {
                is_full = node.level() == 2 && node.count() == index.shape.inner_slots;
            }))
            .unwrap();
            if is_full {
                while let Ok(block) = block_on(cx.allocate(GroupId(0), bytes)) {
                    kept.push(block);
                }
                kept.drain(..nodes).for_each(|block| cx.give_back(block, bytes));
            }
        }
        if let Err(failure) = block_on(insert(&mut by, key)) {
            break (key, failure);
        }
    };
    let least = failed + 1;
    let mut reader = Coordinator::new(world.context(1, 0), 1, retry);
    for key in (least..least + 1_500).chain((least..15_000).step_by(97)) {
        let found = block_on(reader.transact(async |tx| {
            let handle = tx.seek(tree.index, whole(key));
            tx.fetch().await?;
            Ok(keys_of(tx, handle))
        }));
        assert_eq!(found, Ok(vec![key]), "{nodes} nodes");
    }
    for key in (least..least + 1_500).step_by(7) {
        let deleted = block_on(reader.transact(async |tx| {
            tx.delete(T, key);
            tx.fetch().await
        }));
        assert_eq!(deleted, Ok(()), "{nodes} nodes");
    }
    world.assert_clean();
    failure
}

#[test]
fn records_are_found_although_a_separator_has_no_room() {
    // Before the inner node above the leaves is full, about fourteen leaves are split.
    for nodes in 12..20 {
        assert_eq!(without_room_for_a_separator(nodes), Failure::OutOfMemory, "{nodes} nodes");
    }
}
