//! Walks over whole ordered indexes: every node of every level, leftmost first.
//!
//! Invariant: read-only, one node after the other along NEXT. Whoever walks beside transactions looks at
//! LOW: it is the last node's HIGH, or a node went out from under the walk, which begins that level anew.

use crate::context::Context;
use crate::index::btree::cache::sorted_slots;
use crate::index::btree::node::Node;
use crate::index::btree::plan::Index;
use crate::outcome::Failure;
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;

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
