//! Walks over whole ordered indexes: every node of every level, leftmost first.
//!
//! Invariant: read-only, one node after the other along NEXT. A walk beside transactions relies on free nodes alone.
//! Each node covers the key at which the one before ended. If not, a node was removed during the walk, and the walk
//! looks for that key from the root.

use crate::site::Context;
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::btree::cache::sorted_slots;
use tarn_store::index::btree::scan::{plan_node, settle_node};
use tarn_store::layout::index_plan::Index;
use tarn_store::layout::node::Node;

/// Returns the leftmost node of every level with its level, the root first.
///
/// # Errors
/// The fabric's.
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

/// Reads a node's image at the replica at `position`.
///
/// # Errors
/// The fabric's.
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

/// Shows every node of the level that begins at `address`. No transaction may change the tree meanwhile.
///
/// # Errors
/// The fabric's.
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

/// Returns the slots of all entries of an index, one after the other. No transaction may change the tree meanwhile.
///
/// # Errors
/// The fabric's.
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

/// Returns all nodes but the root. No transaction may change the tree meanwhile.
///
/// # Errors
/// The fabric's.
pub async fn below_root(cx: &Context, index: &Index) -> Result<Vec<Address>, Failure> {
    let mut all = Vec::new();
    for (_, first) in leftmost(cx, index).await?.into_iter().skip(1) {
        each_node(cx, index, first, |address, _, _| all.push(address)).await?;
    }
    Ok(all)
}

/// The most nodes that the search for one next node reads, each of them free. Beyond that, other transactions change
/// the tree as fast as it is read, or it is broken; an audit tells which.
const LOOKS_MAX: usize = 4_096;

/// The place that a walk has reached.
pub struct Place {
    level: u8,
    /// The next node, if it is known; else null.
    next: Address,
    /// The key at which the next node begins.
    low: Vec<u8>,
}

/// The outcome of one step of a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The node was free when it was read: the walk has passed it.
    Past(Address),
    /// A transaction held this node, under this LOCK word, or (0) was changing it. The node's bytes may yet be
    /// undone, so the walk has not passed it: ask again. The node need not be of the level that is walked.
    Held(Address, u64),
    /// The walk is over.
    End,
}

/// A walk over a whole tree beside transactions: each level from left to right, the leaves first.
///
/// Invariant: the walk relies on committed bytes alone. It believes a node that was free, and the same throughout the
/// read. It waits for any other. So it passes each node that exists both when the walk begins and when it ends. That
/// holds for new roots too: new levels arise at the top, which the walk comes to last.
pub struct Walk<'a> {
    cx: &'a Context,
    index: &'a Index,
    /// `None`: the walk is over.
    place: Option<Place>,
    round: Round,
}

impl<'a> Walk<'a> {
    /// Begins at the leftmost leaf.
    pub fn new(cx: &'a Context, index: &'a Index) -> Walk<'a> {
        Walk::resume(cx, index, None)
    }

    /// Goes on at `place`; begins at the leftmost leaf if there is none.
    pub fn resume(cx: &'a Context, index: &'a Index, place: Option<Place>) -> Walk<'a> {
        let place = place.or_else(|| Some(Place::left_end(index, 0)));
        Walk { cx, index, place, round: Round::new() }
    }

    /// Where the walk is; `None` at its end.
    pub fn place(self) -> Option<Place> {
        self.place
    }

    /// Goes past the next node, or returns the node that is held.
    ///
    /// # Errors
    /// The fabric's; `StaleAddress` if no node covers a key.
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

/// Where a walk goes on behind a node; `None` behind the root, which is alone on the top level.
fn place_after(index: &Index, (address, node): (Address, Node<'_>), level: u8) -> Option<Place> {
    match node.high() {
        Some(high) => Some(Place { level, next: node.next(), low: high.to_vec() }),
        None => (address != index.root).then(|| Place::left_end(index, level + 1)),
    }
}
