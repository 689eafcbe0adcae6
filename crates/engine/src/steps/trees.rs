//! Walks over whole ordered indexes: each walk visits every node of every level of one index, and begins at the
//! leftmost node.
//!
//! Invariant: a walk only reads, and follows the NEXT pointers from one node to the next node. A walk that runs at
//! the same time as transactions relies only on nodes that are not locked. Each node of a walk must cover the key at
//! which the previous node ended. If a node does not cover this key, a node was removed during the walk, and the walk
//! searches for the key from the root.

use crate::site::Context;
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::btree::cache::sorted_slots;
use tarn_store::index::btree::scan::{plan_node, settle_node};
use tarn_store::layout::index_plan::Index;
use tarn_store::layout::node::Node;

/// Returns the number and the leftmost node of every level of the index. The root is the first node in the returned
/// list.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub async fn leftmost(cx: &Context, index: &Index) -> Result<Vec<(u8, Address)>, Failure> {
    let (mut round, mut address, mut levels) = (Round::new(), index.root, Vec::new());
    loop {
        let bytes = read(cx, &mut round, index, address, 0).await?;
        let node = Node::new(&index.shape, bytes);
        levels.push((node.level(), address));
        let first = match node.level() {
            0 => None,
            _ => sorted_slots(node).first().map(|&slot| node.child(slot)),
        };
        let Some(child) = first else { return Ok(levels) };
        address = child;
    }
}

/// Reads the image of a tree node at the replica `position`.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub async fn read<'a>(
    cx: &Context,
    round: &'a mut Round,
    index: &Index,
    address: Address,
    position: usize,
) -> Result<&'a [u8], Failure> {
    round.clear();
    let bytes = index.shape.node_bytes;
    let at = round.read(cx.groups.whole().replica(address, position), bytes);
    round.hot();
    cx.port.execute(round).await?;
    Ok(round.bytes(at, bytes))
}

/// Calls `visit` with every node of the index level that begins at the node at `address`. No transaction may change
/// the tree during this call.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub async fn each_node(
    cx: &Context,
    index: &Index,
    mut address: Address,
    mut visit: impl FnMut(Address, Node<'_>, &[u8]),
) -> Result<(), Failure> {
    let mut round = Round::new();
    while !address.is_null() {
        let bytes = read(cx, &mut round, index, address, 0).await?;
        let node = Node::new(&index.shape, bytes);
        visit(address, node, bytes);
        address = node.next();
    }
    Ok(())
}

/// Returns the slots of all entries of an index as one sequence of bytes. No transaction may change the tree during
/// this call.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub async fn entries(cx: &Context, index: &Index) -> Result<Vec<u8>, Failure> {
    let mut all = Vec::new();
    let Some((_, leaf)) = leftmost(cx, index).await?.pop() else { return Ok(all) };
    let len = index.shape.slot_bytes(0);
    each_node(cx, index, leaf, |_, node, bytes| {
        for slot in node.used() {
            let at = index.shape.slot_at(0, slot);
            all.extend_from_slice(&bytes[at..at + len]);
        }
    })
    .await?;
    Ok(all)
}

/// Returns the addresses of all nodes of an index except the root. No transaction may change the tree during this
/// call.
///
/// # Errors
/// Returns an error if the fabric cannot complete a verb.
pub async fn below_root(cx: &Context, index: &Index) -> Result<Vec<Address>, Failure> {
    let mut all = Vec::new();
    for (_, first) in leftmost(cx, index).await?.into_iter().skip(1) {
        each_node(cx, index, first, |address, _, _| all.push(address)).await?;
    }
    Ok(all)
}

/// The maximum number of unlocked nodes that a walk reads in search of one next node. If a walk reads more nodes than
/// this, either other transactions change the tree as fast as the walk reads it, or the tree is broken. An audit can
/// show whether the tree is broken.
const LOOKS_MAX: usize = 4_096;

/// The place that a walk over a tree has reached.
pub struct Place {
    level: u8,
    /// The address of the next node of the walk if it is known; otherwise null.
    next: Address,
    /// The key at which the next node of the walk begins.
    low: Vec<u8>,
}

/// The outcome of one step of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The node was not locked when the walk read it, so the walk has passed the node.
    Past(Address),
    /// A transaction held this node's lock with this LOCK word, or (word 0) changed the node while the walk read it.
    /// A transaction may still undo the node's bytes, so the walk has not passed the node. The caller calls `next`
    /// again to read the node once more. The node may belong to a level that differs from the walk's current level.
    Held(Address, u64),
    /// The walk has passed all nodes of the tree.
    End,
}

/// A walk over a whole tree while transactions run. The walk reads each level from left to right, and begins with the
/// leaves.
///
/// Invariant: the walk relies only on committed bytes. The walk trusts a node that was not locked and did not change
/// during the read. The walk waits for a node that was locked or that changed during the read. Because the walk waits
/// for such nodes, it passes each node that exists both when the walk begins and when it ends. The walk also passes
/// new roots, because the tree grows at the top, and the walk reaches the top last.
pub struct Walk<'a> {
    cx: &'a Context,
    index: &'a Index,
    /// The place that the walk has reached; `None` after the end of the walk.
    place: Option<Place>,
    round: Round,
}

impl<'a> Walk<'a> {
    /// Begins a walk at the leftmost leaf.
    pub fn new(cx: &'a Context, index: &'a Index) -> Walk<'a> {
        Walk::resume(cx, index, None)
    }

    /// Continues a walk at `place`. The walk begins at the leftmost leaf if `place` is `None`.
    pub fn resume(cx: &'a Context, index: &'a Index, place: Option<Place>) -> Walk<'a> {
        let place = place.or_else(|| Some(Place::left_end(index, 0)));
        Walk { cx, index, place, round: Round::new() }
    }

    /// Returns the place that the walk has reached, or `None` at the end of the walk.
    pub fn place(self) -> Option<Place> {
        self.place
    }

    /// Passes the next node, or returns the node if it is locked.
    ///
    /// # Errors
    /// A failure of the fabric; `StaleAddress` if no node covers a key.
    pub async fn next(&mut self) -> Result<Step, Failure> {
        let Walk { cx, index, place, round } = self;
        let Some(Place { level, next, low }) = place else { return Ok(Step::End) };
        let bytes = index.shape.node_bytes;
        let mut address = if next.is_null() { index.root } else { *next };
        for _ in 0..LOOKS_MAX {
            round.clear();
            let at = plan_node(&cx.groups, round, address, bytes);
            cx.port.execute(round).await?;
            if let Err(met) = settle_node(round, (address, at, bytes), 0) {
                return Ok(Step::Held(address, met.map_or(0, |(_, word)| word)));
            }
            let node = Node::new(&index.shape, round.bytes(at, bytes));
            let leads_on = |node: Node<'_>| {
                let beyond = node.high().is_some_and(|high| high <= &low[..]);
                if node.is_dead() || !index.owns(address, node) || node.level() < *level {
                    return None; // the node was removed during the walk
                }
                if beyond || !node.covers(low) {
                    return beyond.then(|| node.next()).filter(|next| !next.is_null());
                }
                if node.level() == *level {
                    return Some(address);
                }
                let child =
                    sorted_slots(node).into_iter().rfind(|&slot| node.key(slot) <= &low[..]);
                child.map(|slot| node.child(slot))
            };
            match leads_on(node) {
                Some(here) if here == address => {
                    *place = place_after(index, (address, node), *level);
                    return Ok(Step::Past(address));
                }
                Some(other) => address = other,
                None => address = index.root,
            }
        }
        Err(AbortReason::StaleAddress.into())
    }
}

impl Place {
    fn left_end(index: &Index, level: u8) -> Place {
        Place { level, next: Address::NULL, low: vec![0; index.shape.key_bytes] }
    }
}

/// Returns the place where a walk continues after a node. The returned place is `None` after the root, because the
/// root is the only node of the top level.
fn place_after(index: &Index, (address, node): (Address, Node<'_>), level: u8) -> Option<Place> {
    match node.high() {
        Some(high) => Some(Place { level, next: node.next(), low: high.to_vec() }),
        None => (address != index.root).then(|| Place::left_end(index, level + 1)),
    }
}
