//! Builds the whole tree of an index from its entries. Loaders use these functions.
//!
//! Invariant: a tree is a pure function of the entries, the given addresses, and the share of each node that is
//! filled. Nodes are built one after the other: the leaves first, the root last, and each level from left to right.

use super::edit::NodeMut;
use crate::layout::index_plan::Index;
use crate::layout::node::CHILD_BYTES;
use crate::layout::{VERSION_AT, Version};
use tarn_fabric::address::Address;

/// Of every four slots of a node, the builder fills this number. The other slots are free for later entries.
const FILLED_OF_FOUR: usize = 3;

/// Sorts slots by their bytes. A slot begins with its key, so slots are sorted by key.
pub fn sort(slots: &mut [u8], slot_bytes: usize) {
    match slot_bytes {
        8 => slots.as_chunks_mut::<8>().0.sort_unstable(),
        16 => slots.as_chunks_mut::<16>().0.sort_unstable(),
        24 => slots.as_chunks_mut::<24>().0.sort_unstable(),
        32 => slots.as_chunks_mut::<32>().0.sort_unstable(),
        48 => slots.as_chunks_mut::<48>().0.sort_unstable(),
        _ => {
            let mut order: Vec<&[u8]> = slots.chunks_exact(slot_bytes).collect();
            order.sort_unstable();
            let sorted = order.concat();
            slots.copy_from_slice(&sorted);
        }
    }
}

/// The number of nodes of `level` that `entries` entries need.
pub fn nodes_of(index: &Index, level: u8, entries: usize) -> usize {
    let filled = index.shape.slots(level) * FILLED_OF_FOUR / 4;
    entries.div_ceil(filled).max(1)
}

/// One level of the tree under construction, with the entries of all its nodes.
#[derive(Clone, Copy, Debug)]
pub struct Level<'a> {
    /// The level's number; leaves have level 0.
    pub level: u8,
    /// The entries of all nodes of the level, sorted by key.
    pub slots: &'a [u8],
    /// The addresses of the level's nodes.
    pub nodes: &'a [Address],
}

impl Level<'_> {
    fn slot_bytes(&self, index: &Index) -> usize {
        index.shape.slot_bytes(self.level)
    }

    /// Returns the entries of node number `at` of this level. All nodes of the level get about the same number of
    /// entries.
    fn share(&self, index: &Index, at: usize) -> &[u8] {
        let (len, nodes) = (self.slot_bytes(index), self.nodes.len());
        let entries = self.slots.len() / len;
        &self.slots[entries * at / nodes * len..entries * (at + 1) / nodes * len]
    }

    /// The lowest key of node number `at`, which is the node's LOW fence.
    fn low(&self, index: &Index, at: usize) -> Vec<u8> {
        match at {
            0 => vec![0; index.shape.key_bytes],
            _ => self.share(index, at)[..index.shape.key_bytes].to_vec(),
        }
    }

    /// Writes the image of node number `at`, with the version `version`.
    pub fn image(&self, index: &Index, at: usize, version: Version, image: &mut [u8]) {
        image.fill(0);
        let (len, share) = (self.slot_bytes(index), self.share(index, at));
        let high = (at + 1 < self.nodes.len()).then(|| self.low(index, at + 1));
        let mut node = NodeMut::new(&index.shape, image);
        node.set_kind(self.level, index.tree());
        node.set_fences(&self.low(index, at), high.as_deref());
        node.set_next(self.nodes.get(at + 1).copied().unwrap_or(Address::NULL));
        let has_room = node.add_slots(share.chunks_exact(len));
        assert!(has_room, "a node's share fits it");
        image[VERSION_AT..VERSION_AT + 8].copy_from_slice(&version.word().to_le_bytes());
    }

    /// Returns the entries of the next higher level. Each entry is the separator and the address of one node of this
    /// level.
    pub fn separators(&self, index: &Index) -> Vec<u8> {
        let mut above =
            Vec::with_capacity(self.nodes.len() * (index.shape.key_bytes + CHILD_BYTES));
        for (at, node) in self.nodes.iter().enumerate() {
            above.extend_from_slice(&self.low(index, at));
            above.extend_from_slice(&node.to_word().to_le_bytes());
        }
        above
    }
}
