//! Walks over whole ordered indexes: every node of every level, leftmost first.
//!
//! Invariant: read-only, one node after the other along NEXT. Whoever walks beside transactions goes by
//! nodes that nobody holds: each covers the key at which the one before ended, or a node went out from under
//! the walk, which looks for that key from the root.

use crate::site::Context;
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::btree::cache::sorted_slots;
use tarn_store::index::btree::scan::{plan_node, settle_node};
use tarn_store::layout::index_plan::Index;
use tarn_store::layout::node::Node;

/// The leftmost node of every level, the root first.
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

/// A node's image at the replica at `position`.
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

/// Shows every node of the level that begins at `address`, while nobody changes the tree.
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

/// The slots of all entries of an index, one after the other, while nobody changes the tree.
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

/// All nodes but the root, while nobody changes the tree.
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

/// Nodes that one look for the next one reads, each of them free. Beyond that others change the tree as
/// fast as it is read, or it is broken, which an audit tells.
const LOOKS_MAX: usize = 4_096;

/// Where a walk is.
pub struct Place {
    level: u8,
    /// The next node, if it is known; else null.
    next: Address,
    /// Where it begins.
    low: Vec<u8>,
}

/// What a walk has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// This node was free as it was read: the walk is past it.
    Past(Address),
    /// Somebody holds this node, under this LOCK word, or (0) was changing it. What it says may be undone, so
    /// that the walk is not past it: ask again. It need not be of the level that is walked.
    Held(Address, u64),
    /// The walk is over.
    End,
}

/// A walk over a whole tree beside transactions: each level from left to right, the leaves first.
///
/// Invariant: what it goes by is committed. It believes a node that was free and the same throughout, and
/// waits for any other. So a node that was there as the walk began, and is when it ends, was gone past.
/// That holds for new roots too: levels come at the top, which the walk comes to last.
pub struct Walk<'a> {
    cx: &'a Context,
    index: &'a Index,
    /// `None`: it is over.
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

    /// Where it is; `None` at its end.
    pub fn place(self) -> Option<Place> {
        self.place
    }

    /// Goes past the next node, or says who holds it up.
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
                    return None; // it went out from under the walk
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

/// Where a walk goes on behind a node; `None` behind the top level, which has the root alone.
fn place_after(index: &Index, (address, node): (Address, Node<'_>), level: u8) -> Option<Place> {
    match node.high() {
        Some(high) => Some(Place { level, next: node.next(), low: high.to_vec() }),
        None => (address != index.root).then(|| Place::left_end(index, level + 1)),
    }
}
