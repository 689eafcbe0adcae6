//! Merges of two neighbouring nodes of an ordered index.
//!
//! Invariant: the two nodes of a merge are neighbours by NEXT and have the same parent. The transaction of a merge
//! locks both nodes and the parent. One commit makes three changes of these nodes. The left node receives the right
//! node's entries, its upper end and its NEXT pointer. The parent loses the separator of the right node. The right
//! node is marked as dead (removed from the tree). So no separator leads to a dead node, and each node that is still
//! in the tree keeps its separator.

use super::Structure;
use super::trees::{descend, image, is_mine, lock_all, padded, write_node};
use crate::site::Context;
use crate::transaction::working_set::Txn;
use tarn_fabric::address::Address;
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::btree::cache::sorted_slots;
use tarn_store::index::btree::edit::{self, NodeMut};
use tarn_store::index::btree::scan::plan_node;
use tarn_store::index::btree::work::{TreeDone, TreeTask, TreeWork};
use tarn_store::layout::index_plan::Index;
use tarn_store::layout::node::Node;

/// An inner node is merged if less than one in this number of its slots is in use.
const LIGHT: usize = 8;

/// Merges the node that covers the key with the next or the previous node under the same parent.
pub(crate) async fn merge(
    protocol: &impl Structure,
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    work: TreeWork,
) -> Result<TreeDone, Failure> {
    let key = &work.key[..index.shape.key_bytes];
    let above = work.level + 1;
    let Some((parent, at)) = descend(cx, txn, index, (above, key)).await? else {
        return Ok(TreeDone::Needless);
    };
    let top = image(index, txn, at);
    let slots = sorted_slots(top);
    let Some(here) = slots.iter().rposition(|&slot| top.key(slot) <= key) else {
        return Ok(TreeDone::Needless);
    };
    if slots.len() == 1 {
        let task = TreeWork { level: above, ..work };
        return Ok(if parent == index.root { TreeDone::Needless } else { TreeDone::First(task) });
    }
    let near = slots[here.saturating_sub(1)..slots.len().min(here + 2)].to_vec();
    let children: Vec<Address> = near.iter().map(|&slot| top.child(slot)).collect();
    let Some((left, right)) = choose(cx, txn, index, &children, work.level).await? else {
        return Ok(TreeDone::Needless);
    };
    let held = lock_all(protocol, cx, txn, index, &[parent, left, right]).await?;
    let [top, one, other] = [0, 1, 2].map(|at| image(index, txn, held[at].image));
    let posted = top.find(other.low(), top.bitmap());
    let same = is_mine(index, parent, top)
        && (top.level(), top.covers(one.low())) == (above, true)
        && is_mine(index, left, one)
        && is_mine(index, right, other)
        && (one.level(), other.level()) == (work.level, work.level)
        && one.next() == right
        && one.high() == Some(other.low())
        && posted.is_some_and(|slot| top.child(slot) == right);
    let Some(slot) = posted.filter(|_| same) else {
        let first = unposted_between((index, work), (left, one), other);
        return first.map(TreeDone::First).ok_or(AbortReason::IndexChanged.into());
    };
    let (before, count) = (one.bitmap(), top.count() - 1);
    let [mut up, mut into, from] =
        [0, 1, 2].map(|at| txn.round.bytes(held[at].image, index.shape.node_bytes).to_vec());
    let mut gone = from.clone();
    let mut node = NodeMut::new(&index.shape, &mut into);
    if !edit::merge(&mut node, (&mut NodeMut::new(&index.shape, &mut gone), &from)) {
        return Ok(TreeDone::Needless);
    }
    let filled = node.node().bitmap() & !before;
    let bitmap = Node::new(&index.shape, &up).bitmap() & !(1 << slot);
    NodeMut::new(&index.shape, &mut up).set_bitmap(bitmap);
    write_node(txn, index, held[1], &into, filled);
    write_node(txn, index, held[2], &gone, 0);
    write_node(txn, index, held[0], &up, 0);
    protocol.commit_structure(cx, txn).await?;
    cx.keep_dead(index.id, right, false);
    let mut cache = cx.trees.borrow_mut();
    [parent, left, right].iter().for_each(|&node| cache.forget_node(index, node));
    cx.metrics.node_merge();
    let follows = parent != index.root && count < index.shape.inner_slots / LIGHT;
    Ok(TreeDone::Changed(follows.then_some(TreeWork { level: above, ..work })))
}

/// Returns the separator that must be entered in the parent before the two nodes can be merged. The two nodes are
/// neighbours in their parent, but between them is a third node that the parent does not contain yet.
fn unposted_between(
    (index, work): (&Index, TreeWork),
    (address, one): (Address, Node<'_>),
    other: Node<'_>,
) -> Option<TreeWork> {
    let high = one.high().filter(|&high| high < other.low())?;
    let is_one = is_mine(index, address, one) && one.level() == work.level;
    is_one.then(|| TreeWork { task: TreeTask::Post, key: padded(high), ..work })
}

/// From two or three neighbouring nodes, chooses two adjacent nodes whose entries fit into three quarters of one
/// node. If two pairs of nodes fit, chooses the pair with fewer entries.
async fn choose(
    cx: &Context,
    txn: &mut Txn,
    index: &Index,
    children: &[Address],
    level: u8,
) -> Result<Option<(Address, Address)>, Failure> {
    txn.round.begin();
    let bytes = index.shape.node_bytes;
    let read: Vec<BufferOffset> =
        children.iter().map(|&child| plan_node(&cx.groups, &mut txn.round, child, bytes)).collect();
    cx.port.execute(&mut txn.round).await?;
    let count = |at: usize| image(index, txn, read[at]).count();
    let pairs = (0..children.len() - 1).map(|at| (count(at) + count(at + 1), at));
    let most = index.shape.slots(level) * 3 / 4;
    let best = pairs.filter(|&(sum, _)| sum <= most).min();
    Ok(best.map(|(_, at)| (children[at], children[at + 1])))
}
