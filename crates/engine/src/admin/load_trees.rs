//! Builds the ordered indexes of loaded records. Every loader contributes the entries of its records, and the
//! loader that finishes last builds the trees.
//!
//! Invariant: no other code uses the database while trees are built. If an index already has entries, its tree is
//! built anew from the old and the new entries. The function then marks the old nodes dead, because threads may have
//! cached their addresses. No transaction uses the old nodes again.

use crate::cluster::loads::Run;
use crate::site::Context;
use crate::steps::trees;
use tarn_fabric::address::Address;
use tarn_fabric::round::Round;
use tarn_store::ids::Failure;
use tarn_store::index::btree::build::{Level, nodes_of, sort};
use tarn_store::index::btree::edit::NodeMut;
use tarn_store::layout::index_plan::Index;
use tarn_store::layout::node::Node;
use tarn_store::layout::{VERSION_AT, Version};

/// The number of index nodes that one round writes.
const BATCH: usize = 16;

/// Builds the tree of every index that has new entries.
///
/// # Errors
/// `UniqueViolation`, if two records have the same key in a unique index. `OutOfMemory`, or an error of the fabric.
pub(crate) async fn build(cx: &Context, runs: Vec<Run>) -> Result<(), Failure> {
    for (index, run) in cx.database().catalog.indexes().iter().zip(runs) {
        if !run.is_empty() {
            build_tree(cx, index, run).await?;
        }
    }
    Ok(())
}

async fn build_tree(cx: &Context, index: &Index, mut run: Run) -> Result<(), Failure> {
    let mut round = Round::new();
    let root = trees::read(cx, &mut round, index, index.root, 0).await?;
    let version = Node::new(&index.shape, root).version().present_after(Version::NEVER);
    if version != Version::LOADED {
        run.extend(trees::entries(cx, index).await?);
    }
    let old = trees::below_root(cx, index).await?;
    let (slot_bytes, key_bytes) = (index.shape.slot_bytes(0), index.shape.key_bytes);
    sort(&mut run, slot_bytes);
    let mut before = None;
    for slot in run.chunks_exact(slot_bytes) {
        if before == Some(&slot[..key_bytes]) {
            return Err(cx.duplicate(index));
        }
        before = Some(&slot[..key_bytes]);
    }
    let (mut level, mut slots) = (0, run);
    loop {
        let entries = slots.len() / index.shape.slot_bytes(level);
        let count = nodes_of(index, level, entries);
        let mut nodes = vec![index.root];
        if count > 1 {
            nodes.clear();
            for seed in 0..count as u64 {
                let group = index.group(seed << 8 | u64::from(level));
                nodes.push(cx.allocate(group, index.shape.node_bytes as u32).await?);
            }
        }
        let built = Level { level, slots: &slots, nodes: &nodes };
        write_level(cx, &mut round, index, built, version).await?;
        if count == 1 {
            return bury(cx, &mut round, index, &old).await;
        }
        slots = built.separators(index);
        level += 1;
    }
}

/// Marks nodes as dead at every replica, as a merge does.
async fn bury(
    cx: &Context,
    round: &mut Round,
    index: &Index,
    nodes: &[Address],
) -> Result<(), Failure> {
    let (groups, shape) = (cx.groups.whole(), &index.shape);
    for &node in nodes {
        let mut image = trees::read(cx, round, index, node, 0).await?.to_vec();
        let version = Node::new(shape, &image).version().present_after(Version::NEVER);
        let mut dead = NodeMut::new(shape, &mut image);
        dead.set_dead();
        dead.set_bitmap(0);
        image[VERSION_AT..VERSION_AT + 8].copy_from_slice(&version.word().to_le_bytes());
        round.clear();
        let head = round.reserve_lines(shape.header_bytes);
        round.bytes_mut(head, shape.header_bytes).copy_from_slice(&image[..shape.header_bytes]);
        for target in groups.all(node) {
            round.write(target, head, shape.header_bytes);
        }
        cx.port.execute(round).await?;
    }
    Ok(())
}

async fn write_level(
    cx: &Context,
    round: &mut Round,
    index: &Index,
    built: Level<'_>,
    version: Version,
) -> Result<(), Failure> {
    let (groups, bytes) = (cx.groups.whole(), index.shape.node_bytes);
    let nodes: &[Address] = built.nodes;
    for first in (0..nodes.len()).step_by(BATCH) {
        round.clear();
        for (at, &node) in nodes.iter().enumerate().skip(first).take(BATCH) {
            let image = round.reserve_lines(bytes);
            built.image(index, at, version, round.bytes_mut(image, bytes));
            for target in groups.all(node) {
                round.write(target, image, bytes);
            }
        }
        cx.port.execute(round).await?;
    }
    Ok(())
}
