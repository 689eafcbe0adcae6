//! Structural transactions on ordered indexes: splits, separators in the level above, merges.
//!
//! Invariants: they are transactions like any other. They take no-wait locks under an owner's tag. At each node the
//! undo log comes before the data. They write every replica, and unlock after that. Recovery finishes or undoes them
//! without knowing their purpose. Every node that changes is locked, and read under its lock. A new node is as well,
//! so that the VERSION of a node that is used again counts on.

use super::{Structure, begin, merges, raise};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::node_locks::HELD;
use crate::transaction::working_set::{LockKind, PendingWrite, Txn};
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::btree::cache::{Course, Lead, Way};
use tarn_store::index::btree::edit::{self, Cut, NodeMut};
use tarn_store::index::btree::scan::{Visit, plan_node, request_post, settle_node};
use tarn_store::index::btree::work::{TreeDone, TreeTask, TreeWork};
use tarn_store::layout::Version;
use tarn_store::layout::index_plan::{Index, KeyBytes};
use tarn_store::layout::node::{META_AT, Node};
use tarn_store::schema::INDEX_KEY_BYTES_MAX;

/// Steps after which a descent gives up: the tree changes faster than it can be followed.
const STEPS_MAX: usize = 48;

/// A node that a structural transaction has locked.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) address: Address,
    /// Its image, read under the lock.
    pub(super) image: BufferOffset,
    /// Index into the locks.
    lock: usize,
}

/// Carries out a request; see [`crate::protocol::Protocol::reshape`].
pub(crate) async fn reshape(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    work: TreeWork,
) -> Result<TreeDone, Failure> {
    begin(protocol, cx, txn);
    let index = cx.database().catalog.ordered(work.index);
    match work.task {
        TreeTask::Split | TreeTask::Part => split(protocol, cx, txn, index, work).await,
        TreeTask::Post => post(protocol, cx, txn, index, work).await,
        TreeTask::Merge => merges::merge(protocol, cx, txn, index, work).await,
    }
}

pub(super) fn padded(key: &[u8]) -> KeyBytes {
    let mut bytes = [0; INDEX_KEY_BYTES_MAX];
    bytes[..key.len()].copy_from_slice(key);
    bytes
}

pub(super) fn image<'a>(index: &'a Index, txn: &'a Txn, at: BufferOffset) -> Node<'a> {
    Node::new(&index.shape, txn.round.bytes(at, index.shape.node_bytes))
}

/// Returns whether a node is alive and of this tree.
pub(super) fn is_mine(index: &Index, address: Address, node: Node<'_>) -> bool {
    !node.is_dead() && index.owns(address, node)
}

/// Returns the node of `level` that covers `key`, read just now; `None` if the tree is not that high. Asks for
/// separators that are missing above that level. Goes down from each node that covers the key.
pub(super) async fn descend(
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    (level, key): (u8, &[u8]),
) -> Result<Option<(Address, BufferOffset)>, Failure> {
    let course = Course { key, last: key, backward: false, nodes: 1, level };
    let (mut next, mut found) = (None, Vec::new());
    for _ in 0..STEPS_MAX {
        found.clear();
        let (lead, is_promised) = match next.take() {
            Some(next) => (next, false),
            None => match cx.trees.borrow_mut().locate(index, course, &mut found) {
                Way::There(lead) => (lead, true),
                Way::Read(lead) => (lead, false),
            },
        };
        let address = lead.address;
        txn.round.begin();
        let bytes = index.shape.node_bytes;
        let at = plan_node(&cx.groups, &mut txn.round, address, bytes);
        cx.port.execute(&mut txn.round).await?;
        if let Err(met) = settle_node(&txn.round, (address, at, bytes), txn.tag.word()) {
            met.into_iter().for_each(|(address, word)| cx.note_blocking_lock(address, word));
            return Err(AbortReason::ReadLocked.into());
        }
        let (node, mut cache) = (image(index, txn, at), cx.trees.borrow_mut());
        let beyond = node.high().is_some_and(|high| high <= key) && !node.next().is_null();
        // A node that ends before the key counts only if it is the node that was meant. Else its NEXT leads
        // elsewhere.
        let is_on_way = node.covers(key) || (beyond && lead.is_to(node));
        if !is_mine(index, address, node) || !is_on_way {
            cache.forget(index, key, 0);
            continue;
        }
        if node.level() > 0 {
            cache.learn(index, address, node);
        }
        if beyond {
            cache.forget_parent(index, key, node.level() + 1);
            next = Some(Lead::after(node));
            if node.level() > level {
                request_post(&cx.tree_works, index, node);
            }
        } else if node.level() == level {
            return Ok(Some((address, at)));
        } else if node.level() < level {
            if address == index.root {
                return Ok(None);
            }
            cache.forget(index, key, 0);
        } else {
            if is_promised {
                // The node has died, and serves a higher level. The parent in the cache that leads to it is out of
                // date.
                cache.forget_parent(index, key, level + 1);
            }
            found.clear();
            next = Some(match cache.below(index, address, course, &mut found) {
                Way::There(lead) | Way::Read(lead) => lead,
            });
        }
    }
    Err(AbortReason::StaleAddress.into())
}

/// Locks nodes and reads them under the locks, all in one round.
pub(super) async fn lock_all(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    nodes: &[Address],
) -> Result<Vec<Held>, Failure> {
    txn.round.begin();
    let mut held = Vec::with_capacity(nodes.len());
    for &address in nodes {
        let what = (LockKind::Directory, index.shape.node_bytes);
        let (lock, image) = protocol.ask(cx, txn, address, what);
        held.push(Held { address, image, lock: lock as usize });
    }
    if protocol.await_locks(cx, txn, 0).await? < nodes.len() {
        return Err(AbortReason::LockRefused.into());
    }
    for each in &held {
        txn.locks[each.lock].verb = HELD;
        note(index, txn, *each);
    }
    Ok(held)
}

/// Notes a leaf that changes for the history, because scans have read it.
fn note(index: &Index, txn: &mut Txn, held: Held) {
    let node = image(index, txn, held.image);
    if node.level() > 0 {
        return;
    }
    let visit = Visit { address: held.address, version: node.version() };
    let at = txn.ordered.note(index.id, visit, false);
    let leaf = &mut txn.ordered.leaves[at];
    (leaf.lock, leaf.is_held) = (held.lock as u32, true);
}

/// Returns memory for a new node: a dead node, or a block. The memory is kept if the transaction fails.
async fn fresh(cx: &Context, txn: &mut Txn, index: &Index) -> Result<Address, Failure> {
    if let Some(dead) = cx.take_dead(index.id) {
        return Ok(dead);
    }
    let seed = txn.tag.word();
    match cx.allocate_anyhow(index.group(seed), index.shape.node_bytes as u32).await {
        // A dead node that was locked last time is better than none.
        Err(Failure::OutOfMemory) => cx.take_dead(index.id).ok_or(Failure::OutOfMemory),
        block => block,
    }
}

/// Returns whether a node that covers the key is to be split. A node that is at most half full is not split. A node
/// that begins at the key where it should be parted is not, either.
fn is_to_split(index: &Index, node: Node<'_>, work: &TreeWork) -> bool {
    match work.task {
        TreeTask::Part => *node.low() < work.key[..index.shape.key_bytes],
        _ => node.count() * 2 > index.shape.slots(work.level),
    }
}

/// Where the node is split.
fn cut_of<'k>(index: &Index, work: &'k TreeWork) -> Cut<'k> {
    let key = &work.key[..index.shape.key_bytes];
    if work.task == TreeTask::Part { Cut::Before(key) } else { Cut::For(key) }
}

async fn split(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    work: TreeWork,
) -> Result<TreeDone, Failure> {
    let key = &work.key[..index.shape.key_bytes];
    let Some((address, at)) = descend(cx, txn, index, (work.level, key)).await? else {
        return Ok(TreeDone::Needless);
    };
    if !is_to_split(index, image(index, txn, at), &work) {
        return Ok(TreeDone::Needless);
    }
    let mut nodes = Vec::new();
    let outcome = split_at(protocol, cx, txn, index, (address, work), &mut nodes).await;
    if outcome.is_err() && !txn.in_doubt {
        // Memory of new nodes is kept for the next try: their LOCK words may have been written.
        let has_blocking_lock = outcome == Err(AbortReason::LockRefused.into());
        for node in nodes {
            let is_held = txn.locks.iter().any(|lock| lock.address == node);
            cx.keep_dead(index.id, node, has_blocking_lock && !is_held);
        }
    }
    let follow = outcome?;
    let mut cache = cx.trees.borrow_mut();
    cache.forget_node(index, address);
    cache.forget_parent(index, key, work.level + 1);
    cx.metrics.node_split();
    Ok(TreeDone::Changed(follow))
}

/// Splits the node at `address`. Notes new nodes in `nodes`. Returns the separator that is to be posted.
async fn split_at(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    (address, work): (Address, TreeWork),
    nodes: &mut Vec<Address>,
) -> Result<Option<TreeWork>, Failure> {
    let key = &work.key[..index.shape.key_bytes];
    for _ in 0..if address == index.root { 2 } else { 1 } {
        nodes.push(fresh(cx, txn, index).await?);
    }
    let all = [&[address], &nodes[..]].concat();
    let held = lock_all(protocol, cx, txn, index, &all).await?;
    let node = image(index, txn, held[0].image);
    let same = is_mine(index, address, node) && node.level() == work.level && node.covers(key);
    if !same || !is_to_split(index, node, &work) {
        return Err(AbortReason::IndexChanged.into());
    }
    let follow = match held[..] {
        [root, left, right] => {
            write_root_split(txn, index, (root, left, right), cut_of(index, &work));
            None
        }
        [left, right] => Some(write_split(protocol, cx, txn, index, (left, right), work).await?),
        _ => unreachable!("a change has two or three nodes"),
    };
    protocol.commit_structure(cx, txn).await?;
    Ok(follow)
}

/// Makes new images of a node and its new sibling. Returns the separator that is to be posted.
async fn write_split(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    (left, right): (Held, Held),
    work: TreeWork,
) -> Result<TreeWork, Failure> {
    let bytes = index.shape.node_bytes;
    let before = txn.round.bytes(left.image, bytes).to_vec();
    let (mut old, mut new) = (before.clone(), txn.round.bytes(right.image, bytes).to_vec());
    let (mut old_node, mut new_node) =
        (NodeMut::new(&index.shape, &mut old), NodeMut::new(&index.shape, &mut new));
    let (old_node, new_node) = ((&mut old_node, &before[..]), (&mut new_node, right.address));
    let separator = edit::split(old_node, new_node, (index.tree(), cut_of(index, &work)));
    if !protocol.keeps(Rule::SiblingWithSplit) {
        publish_early(protocol, cx, txn, index, (left, right), &old).await?;
        write_node(txn, index, Held { lock: 0, ..right }, &new, u64::MAX);
        return Ok(TreeWork { task: TreeTask::Post, key: padded(&separator), ..work });
    }
    write_node(txn, index, right, &new, u64::MAX);
    write_node(txn, index, left, &old, 0);
    Ok(TreeWork { task: TreeTask::Post, key: padded(&separator), ..work })
}

/// Planted bug (the switch `sibling-with-split` is off): the old node shrinks and points to the new one in a
/// transaction of its own, before the new one is there.
#[cold]
async fn publish_early(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    (left, right): (Held, Held),
    image: &[u8],
) -> Result<(), Failure> {
    write_node(txn, index, left, image, 0);
    let kept = txn.locks.remove(right.lock);
    protocol.commit_structure(cx, txn).await?;
    txn.in_doubt = false;
    txn.pieces.clear();
    txn.groups.clear();
    txn.locks.push(kept);
    cx.port.yield_now().await;
    Ok(())
}

fn write_root_split(
    txn: &mut Txn,
    index: &Index,
    (root, left, right): (Held, Held, Held),
    cut: Cut<'_>,
) {
    let bytes = index.shape.node_bytes;
    let copy = |txn: &Txn, held: Held| txn.round.bytes(held.image, bytes).to_vec();
    let before = copy(txn, root);
    let (mut top, mut one, mut other) = (before.clone(), copy(txn, left), copy(txn, right));
    let shape = &index.shape;
    edit::split_root(
        (&mut NodeMut::new(shape, &mut top), &before),
        (&mut NodeMut::new(shape, &mut one), left.address),
        (&mut NodeMut::new(shape, &mut other), right.address),
        (index.tree(), cut),
    );
    write_node(txn, index, left, &one, u64::MAX);
    write_node(txn, index, right, &other, u64::MAX);
    write_node(txn, index, root, &top, 0b11);
}

/// Adds the writes of a node: the slots of `filled` that are in use, then the header, its first line last. VERSION is
/// added later, with those of other directory records. Old bytes of slots need no log if the node was not part of the
/// tree, or if the slots were not in use.
pub(super) fn write_node(txn: &mut Txn, index: &Index, held: Held, new: &[u8], filled: u64) {
    let shape = &index.shape;
    let to = txn.round.reserve_lines(shape.node_bytes);
    txn.round.bytes_mut(to, shape.node_bytes).copy_from_slice(new);
    let before = image(index, txn, held.image);
    let level = Node::new(shape, new).level();
    // A root that splits overwrites entries: old slots are narrower or wider than new ones.
    let logged = before.bitmap() != 0 && level != before.level();
    let mut slots = Node::new(shape, new).bitmap() & filled;
    while slots != 0 {
        let first = slots.trailing_zeros() as usize;
        let run = (slots >> first).trailing_ones() as usize;
        let bits = u64::MAX >> (64 - run) << first;
        slots &= !bits;
        let (from, bytes) = (shape.slot_at(level, first), run * shape.slot_bytes(level));
        push(txn, held, to, (from, from + bytes), logged);
    }
    if shape.header_bytes > LINE_BYTES {
        push(txn, held, to, (LINE_BYTES, shape.header_bytes), true);
    }
    push(txn, held, to, (META_AT, LINE_BYTES.min(shape.header_bytes)), true);
    raise(txn, held.lock, Version::NEVER);
    let raised = txn.locks[held.lock].new_version;
    if let Some(at) = txn.ordered.leaf_at(held.address) {
        txn.ordered.leaves[at].new_version = raised;
    }
}

fn push(txn: &mut Txn, held: Held, to: BufferOffset, (from, end): (usize, usize), logged: bool) {
    txn.pieces.push(PendingWrite {
        address: held.address.plus(from),
        new: to.plus(from),
        old: held.image.plus(from),
        len_bytes: (end - from) as u32,
        logged,
    });
}

/// Enters the node that covers the key into the level above it, if it is missing there.
async fn post(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    work: TreeWork,
) -> Result<TreeDone, Failure> {
    let key = &work.key[..index.shape.key_bytes];
    let (above, is_posted) =
        (work.level + 1, |node: Node<'_>, low: &[u8]| node.find(low, node.bitmap()).is_some());
    // Most requests come from a descent that followed an old image of the parent. To look at the parent first costs
    // no more than the READ that renews its image.
    match descend(cx, txn, index, (above, key)).await? {
        Some((_, at)) if !is_posted(image(index, txn, at), key) => {}
        _ => return Ok(TreeDone::Needless),
    }
    let Some((child, at)) = descend(cx, txn, index, (work.level, key)).await? else {
        return Ok(TreeDone::Needless);
    };
    let low = image(index, txn, at).low().to_vec();
    if child == index.root || low.iter().all(|&byte| byte == 0) {
        return Ok(TreeDone::Needless);
    }
    let Some((parent, at)) = descend(cx, txn, index, (above, &low)).await? else {
        return Ok(TreeDone::Needless);
    };
    let top = image(index, txn, at);
    if is_posted(top, &low) {
        return Ok(TreeDone::Needless);
    }
    if top.count() == index.shape.inner_slots {
        let split = TreeWork { task: TreeTask::Split, level: above, key: padded(&low), ..work };
        return Ok(TreeDone::First(split));
    }
    let held = lock_all(protocol, cx, txn, index, &[parent, child]).await?;
    let (top, bottom) = (image(index, txn, held[0].image), image(index, txn, held[1].image));
    let same = is_mine(index, parent, top)
        && (top.level(), top.covers(&low)) == (above, true)
        && is_mine(index, child, bottom)
        && (bottom.level(), bottom.low()) == (work.level, &low[..])
        && !is_posted(top, &low);
    let mut new = txn.round.bytes(held[0].image, index.shape.node_bytes).to_vec();
    // A node that is no inner node any more has no room for a child.
    let slot = same.then(|| NodeMut::new(&index.shape, &mut new).post(&low, child)).flatten();
    let Some(slot) = slot else { return Err(AbortReason::IndexChanged.into()) };
    write_node(txn, index, held[0], &new, 1 << slot);
    protocol.commit_structure(cx, txn).await?;
    cx.trees.borrow_mut().forget_node(index, parent);
    Ok(TreeDone::Changed(None))
}
