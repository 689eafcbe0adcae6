//! Structural transactions on ordered indexes: splits of nodes, separators in the level above, and merges of nodes.
//!
//! Invariants: structural transactions on trees follow the same rules as other transactions. Structural transactions
//! take locks under an owner's tag, and abort instead of waiting for a lock. At each node, the undo log of a
//! structural transaction comes before its data. Structural transactions write every replica, and release their locks
//! only after that. Recovery completes or undoes a structural transaction without knowing the transaction's purpose.
//! A structural transaction locks every node that it changes, and reads the node under its lock. A structural
//! transaction also locks and reads a new node before it writes the node. If the memory of a new node was used
//! before, the node's new VERSION follows the VERSION that this memory contained.

use super::{Structure, begin, merges, raise};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::node_locks::HELD;
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::{PendingWrite, Txn};
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

/// The maximum number of steps of a descent from the root to a node. After this number of steps, the transaction
/// aborts, because the tree changes faster than the descent.
const STEPS_MAX: usize = 48;

/// A node that a structural transaction has locked.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) address: Address,
    /// The node's image, which was read under the lock.
    pub(super) image: BufferOffset,
    /// The index of the node's lock in the transaction's list of locks.
    lock: usize,
}

/// Performs a requested change of a tree; see [`crate::protocol::Protocol::reshape`].
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

/// Returns whether a node is in use and belongs to this tree.
pub(super) fn is_mine(index: &Index, address: Address, node: Node<'_>) -> bool {
    !node.is_dead() && index.owns(address, node)
}

/// Reads the path to the node of `level` that covers `key`, and returns that node. Returns `None` if the tree has no
/// level `level`. Also requests that missing separators above that level be entered. From each node that covers the
/// key, the descent goes one level down.
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
        // A node that ends before the key is on the path only if it is the node to which the parent pointed. The NEXT
        // pointer of any other node leads elsewhere.
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
                // The expected node was removed, and its memory is now used for a node of a higher level. The cached
                // parent that leads to this node is out of date.
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

/// Locks several nodes and reads each node under its lock, all in one round.
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

/// If the changed node is a leaf, notes the leaf for the history, because scans have read it.
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

/// Returns memory for a new node: the memory of a dead node, or a newly allocated block. If the transaction fails,
/// the memory of the new node is kept for a later node.
async fn fresh(cx: &Context, txn: &mut Txn, index: &Index) -> Result<Address, Failure> {
    if let Some(dead) = cx.take_dead(index.id) {
        return Ok(dead);
    }
    let seed = txn.tag.word();
    match cx.allocate_anyhow(index.group(seed), index.shape.node_bytes as u32).await {
        // If the memory node has no free memory, the memory of a dead node is better than none, even if its lock was
        // refused last time.
        Err(Failure::OutOfMemory) => cx.take_dead(index.id).ok_or(Failure::OutOfMemory),
        block => block,
    }
}

/// Returns whether the node that covers the key of the request must be split. A node that is at most half full is not
/// split. A node is also not split if it already begins at the key where the request wants to divide the node.
fn is_to_split(index: &Index, node: Node<'_>, work: &TreeWork) -> bool {
    match work.task {
        TreeTask::Part => *node.low() < work.key[..index.shape.key_bytes],
        _ => node.count() * 2 > index.shape.slots(work.level),
    }
}

/// Returns the place where the requested split divides the node.
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
        // The memory of the new nodes is kept for the next try, because this try may have written their LOCK words.
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

/// Splits the tree node at `address`. Adds the addresses of the new nodes to `nodes`. Returns the request to enter
/// the new node's separator in the parent.
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

/// Makes the new images of a node and of its new sibling. Returns the request to enter the sibling's separator in the
/// parent.
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

/// Planted bug (the switch `sibling-with-split` is off): a separate transaction shrinks the old node and points it to
/// the new node, before the new node is written.
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

/// Adds the writes of a node: first those slots in `filled` that are in use, then the node's header. The writes of
/// the header end with the header's first cache line. The transaction adds the write of the node's VERSION later,
/// together with the VERSIONs of other directory records. The transaction does not log the old bytes of slots that
/// were not in use, or whose node was not part of the tree.
pub(super) fn write_node(txn: &mut Txn, index: &Index, held: Held, new: &[u8], filled: u64) {
    let shape = &index.shape;
    let to = txn.round.reserve_lines(shape.node_bytes);
    txn.round.bytes_mut(to, shape.node_bytes).copy_from_slice(new);
    let before = image(index, txn, held.image);
    let level = Node::new(shape, new).level();
    // When the root splits, its new slots overwrite its old index entries, because the old slots have another width
    // than the new slots.
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

/// If the level above has no separator for the node that covers the key, enters this separator in the level above.
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
    // Most requests to enter a separator come from a descent that used an outdated image of the parent. So the
    // function reads the parent first, which costs no more than the READ that would renew the outdated image.
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
    // A node that is no longer an inner node has no room for a child.
    let slot = same.then(|| NodeMut::new(&index.shape, &mut new).post(&low, child)).flatten();
    let Some(slot) = slot else { return Err(AbortReason::IndexChanged.into()) };
    write_node(txn, index, held[0], &new, 1 << slot);
    protocol.commit_structure(cx, txn).await?;
    cx.trees.borrow_mut().forget_node(index, parent);
    Ok(TreeDone::Changed(None))
}
