//! Changes of index nodes: each function takes images of nodes and produces new images.
//!
//! Invariant: all functions are pure functions of images, so that a split gives the same result on every compute
//! node. A change never overwrites a slot that was in use, except in a root that splits. So writing the changed bytes
//! of a node changes no slot that the node's old BITMAP marks as used. All images after a change together cover the
//! same keys as all images before, and hold the same entries.

use crate::layout::node::{
    BITMAP_AT, BOUNDED, Bits, CHILD_BYTES, DEAD, LOW_AT, META_AT, NEXT_AT, Node, NodeShape,
    STRAYS_AT,
};
use tarn_fabric::address::Address;

/// If keys are appended at the end of a node, a split moves only a part of its entries: their number divided by this
/// constant.
const APPENDED_SHARE: usize = 8;

/// The image of a node that the caller wants to change.
pub struct NodeMut<'a> {
    shape: &'a NodeShape,
    bytes: &'a mut [u8],
}

impl<'a> NodeMut<'a> {
    /// Wraps the image of a whole node.
    pub fn new(shape: &'a NodeShape, bytes: &'a mut [u8]) -> NodeMut<'a> {
        NodeMut { shape, bytes }
    }

    /// Returns a view of the node with all changes so far.
    pub fn node(&self) -> Node<'_> {
        Node::new(self.shape, self.bytes)
    }

    fn set_word(&mut self, at: usize, word: u64) {
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// Sets the node's level and tree number, and marks the node as alive.
    pub fn set_kind(&mut self, level: u8, tree: u16) {
        let [low, high] = tree.to_le_bytes();
        let bounded = self.bytes[META_AT + 1] & BOUNDED;
        self.bytes[META_AT..META_AT + 8].copy_from_slice(&[level, bounded, low, high, 0, 0, 0, 0]);
    }

    /// Sets NEXT, the address of the next node at the same level.
    pub fn set_next(&mut self, next: Address) {
        self.set_word(NEXT_AT, next.to_word());
    }

    /// Sets BITMAP, which says which slots are in use.
    pub fn set_bitmap(&mut self, bitmap: u64) {
        self.set_word(BITMAP_AT, bitmap);
    }

    /// Sets STRAYS, which says for each group of slots whether an entry whose home is this group may lie in another
    /// group.
    pub fn set_strays(&mut self, strays: u64) {
        self.set_word(STRAYS_AT, strays);
    }

    /// Recomputes STRAYS from the node's entries, after some entries were removed.
    fn count_strays(&mut self) {
        let (node, shape) = (self.node(), self.shape);
        let stray = |slot: usize| {
            let home = shape.home(node.key(slot));
            u64::from(NodeShape::group_bits(home) >> slot & 1 == 0) << home
        };
        let strays = match node.level() {
            0 => node.used().map(stray).fold(0, |all, stray| all | stray),
            _ => 0,
        };
        self.set_strays(strays);
    }

    /// Sets the node's fences LOW and HIGH.
    pub fn set_fences(&mut self, low: &[u8], high: Option<&[u8]>) {
        let len = self.shape.key_bytes;
        self.bytes[LOW_AT..LOW_AT + len].copy_from_slice(low);
        match high {
            Some(high) => {
                self.bytes[LOW_AT + len..LOW_AT + 2 * len].copy_from_slice(high);
                self.bytes[META_AT + 1] |= BOUNDED;
            }
            None => {
                self.bytes[LOW_AT + len..LOW_AT + 2 * len].fill(0);
                self.bytes[META_AT + 1] &= !BOUNDED;
            }
        }
    }

    /// Marks the node as merged into another node.
    pub fn set_dead(&mut self) {
        self.bytes[META_AT + 1] |= DEAD;
    }

    /// Returns the bytes of one slot of the node.
    pub fn slot_mut(&mut self, slot: usize) -> &mut [u8] {
        let level = self.node().level();
        let (at, len) = (self.shape.slot_at(level, slot), self.shape.slot_bytes(level));
        &mut self.bytes[at..at + len]
    }

    /// Adds entries to the node. Each entry is given as the bytes of a slot. Returns whether the node had room for
    /// all these entries.
    pub fn add_slots<'s>(&mut self, slots: impl Iterator<Item = &'s [u8]>) -> bool {
        let (node, shape) = (self.node(), self.shape);
        let (level, mut bitmap, mut strays) = (node.level(), node.bitmap(), node.strays());
        for from in slots {
            let Some((slot, stray)) = shape.place(level, &from[..shape.key_bytes], bitmap) else {
                return false;
            };
            self.slot_mut(slot).copy_from_slice(from);
            bitmap |= 1 << slot;
            strays |= stray;
        }
        self.set_bitmap(bitmap);
        self.set_strays(strays);
        true
    }

    /// Copies the slots `slots` of another node of the same level into this node, in the order of `slots`.
    fn take_slots(&mut self, from: Node<'_>, image: &[u8], slots: &[usize]) {
        let (level, shape) = (from.level(), self.shape);
        let bytes = |&slot: &usize| {
            let at = shape.slot_at(level, slot);
            &image[at..at + shape.slot_bytes(level)]
        };
        self.set_bitmap(0);
        self.set_strays(0);
        let has_room = self.add_slots(slots.iter().map(bytes));
        assert!(has_room, "entries of one node fit another");
    }

    /// Adds a child to an inner node. Returns the child's slot, or `None` if no slot is free.
    pub fn post(&mut self, key: &[u8], child: Address) -> Option<usize> {
        let bitmap = self.node().bitmap();
        let slot = bitmap.trailing_ones() as usize;
        if slot >= self.shape.inner_slots {
            return None;
        }
        self.set_child(slot, key, child);
        self.set_bitmap(bitmap | 1 << slot);
        Some(slot)
    }

    fn set_child(&mut self, slot: usize, key: &[u8], child: Address) {
        let len = self.shape.key_bytes;
        let to = self.slot_mut(slot);
        to[..len].copy_from_slice(key);
        to[len..len + CHILD_BYTES].copy_from_slice(&child.to_word().to_le_bytes());
    }
}

/// The place where a node is split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut<'k> {
    /// The node is split about in the middle, so that the half that covers this key has room for it.
    For(&'k [u8]),
    /// The node is split so that the right half begins at this key, which is above the node's first key. Each half of
    /// the split node may be empty.
    Before(&'k [u8]),
}

impl Cut<'_> {
    /// Returns the number of a node's entries that stay in the left half, in the order of `slots`, and the separator.
    ///
    /// # Panics
    /// If the node has fewer than two entries and the cut is not [`Cut::Before`] (a bug of Tarn).
    fn of(self, node: Node<'_>, slots: &[usize]) -> (usize, Vec<u8>) {
        match self {
            Cut::For(key) => {
                assert!(slots.len() >= 2, "a node of one entry is not split");
                let stay = staying(node, slots, key);
                (stay, node.key(slots[stay]).to_vec())
            }
            Cut::Before(key) => {
                let stay = slots.iter().take_while(|&&slot| node.key(slot) < key).count();
                (stay, key.to_vec())
            }
        }
    }
}

/// Returns the number of a node's entries, in the order of `slots`, that stay in the left half when the node is split
/// for `key`.
fn staying(node: Node<'_>, slots: &[usize], key: &[u8]) -> usize {
    let count = slots.len();
    let appends = slots.last().is_some_and(|&last| node.key(last) < key);
    let moving = if appends { (count / APPENDED_SHARE).max(1) } else { count / 2 };
    count - moving
}

/// Splits `left`, whose old bytes are in `image`. The upper entries move to `right`, whose address is `address`.
/// Returns the separator between the two nodes.
///
/// # Panics
/// If the node has fewer than two entries and the cut is not [`Cut::Before`] (a bug of Tarn).
pub fn split(
    (left, image): (&mut NodeMut<'_>, &[u8]),
    (right, address): (&mut NodeMut<'_>, Address),
    (tree, cut): (u16, Cut<'_>),
) -> Vec<u8> {
    let shape = left.shape;
    let old = Node::new(shape, image);
    let slots = super::cache::sorted_slots(old);
    let (stay, separator) = cut.of(old, &slots);
    let (stay, go) = slots.split_at(stay);
    right.set_kind(old.level(), tree);
    right.set_next(old.next());
    right.set_fences(&separator, old.high());
    right.take_slots(old, image, go);
    left.set_bitmap(stay.iter().fold(0, |bits, &slot| bits | 1 << slot));
    left.count_strays();
    left.set_next(address);
    left.set_fences(old.low(), Some(&separator));
    separator
}

/// Splits a root, whose old bytes are in `image`. The root's entries move to two new nodes, which become the root's
/// children.
///
/// # Panics
/// If the root has fewer than two entries and the cut is not [`Cut::Before`] (a bug of Tarn).
pub fn split_root<'a>(
    (root, image): (&mut NodeMut<'_>, &[u8]),
    (left, left_at): (&mut NodeMut<'a>, Address),
    (right, right_at): (&mut NodeMut<'a>, Address),
    (tree, cut): (u16, Cut<'_>),
) {
    let old = Node::new(root.shape, image);
    let slots = super::cache::sorted_slots(old);
    let (stay, separator) = cut.of(old, &slots);
    let (stay, go) = slots.split_at(stay);
    for (node, slots) in [(&mut *left, stay), (&mut *right, go)] {
        node.set_kind(old.level(), tree);
        node.take_slots(old, image, slots);
    }
    left.set_next(right_at);
    left.set_fences(old.low(), Some(&separator));
    right.set_next(Address::NULL);
    right.set_fences(&separator, None);
    root.set_kind(old.level() + 1, tree);
    root.set_child(0, old.low(), left_at);
    root.set_child(1, &separator, right_at);
    root.set_bitmap(0b11);
    root.set_strays(0);
}

/// Moves the entries of `right`, whose old bytes are in `image`, to `left`, the node before `right`, and marks
/// `right` as dead. Returns whether `left` had room for the entries.
pub fn merge(left: &mut NodeMut<'_>, (right, image): (&mut NodeMut<'_>, &[u8])) -> bool {
    let shape = left.shape;
    let moving = Node::new(shape, image);
    let level = moving.level();
    let slot = |slot: usize| {
        let at = shape.slot_at(level, slot);
        &image[at..at + shape.slot_bytes(level)]
    };
    if left.node().count() + moving.count() > shape.slots(level) {
        return false;
    }
    left.add_slots(Bits(moving.bitmap()).map(slot));
    left.set_next(moving.next());
    let low = left.node().low().to_vec();
    left.set_fences(&low, moving.high());
    right.set_bitmap(0);
    right.set_strays(0);
    right.set_dead();
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use tarn_fabric::address::GroupId;

    fn at(offset: u64) -> Address {
        Address::new(GroupId(0), offset)
    }

    /// Builds a node of this level with these entries, in slots that `seed` chooses at random.
    fn node(shape: &NodeShape, level: u8, entries: &BTreeMap<u64, u64>, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0xa5; shape.node_bytes];
        bytes[..shape.header_bytes].fill(0);
        let mut node = NodeMut::new(shape, &mut bytes);
        node.set_kind(level, 7);
        let mut free: Vec<usize> = (0..shape.slots(level)).collect();
        let mut bitmap = 0;
        for (each, (key, value)) in entries.iter().enumerate() {
            let slot = free.swap_remove((seed as usize + each * 31) % free.len());
            let to = node.slot_mut(slot);
            to.fill(0);
            to[..8].copy_from_slice(&key.to_be_bytes());
            let last = to.len() - 8;
            to[last..].copy_from_slice(&value.to_le_bytes());
            bitmap |= 1 << slot;
        }
        node.set_bitmap(bitmap);
        node.count_strays();
        bytes
    }

    /// Whether every entry of a leaf lies in a slot where a lookup finds it.
    fn are_at_home(node: Node<'_>, shape: &NodeShape) -> bool {
        let at_home = |slot: usize| {
            let home = shape.home(node.key(slot));
            (NodeShape::group_bits(home) >> slot | node.strays() >> home) & 1 != 0
        };
        node.level() > 0 || node.used().all(at_home)
    }

    fn entries(image: &[u8], shape: &NodeShape) -> BTreeMap<u64, u64> {
        let node = Node::new(shape, image);
        let level = node.level();
        let of = |slot: usize| {
            let (from, len) = (shape.slot_at(level, slot), shape.slot_bytes(level));
            let slot = &image[from..from + len];
            let key = u64::from_be_bytes(*slot.first_chunk().unwrap());
            (key, u64::from_le_bytes(*slot.last_chunk().unwrap()))
        };
        node.used().map(of).collect()
    }

    fn shapes() -> impl Strategy<Value = NodeShape> {
        prop_oneof![
            Just(NodeShape::of(8, 8)),
            Just(NodeShape::of(24, 8)),
            Just(NodeShape::of(16, 16))
        ]
    }

    proptest! {
        /// A split keeps every entry, and the fences of both halves meet. Merging the two halves restores the
        /// original entries.
        #[test]
        fn a_split_and_a_merge_are_inverse(
            shape in shapes(),
            level in 0u8..3,
            keys in prop::collection::btree_map(any::<u64>(), 0..1u64 << 40, 2..14),
            key in any::<u64>(),
            seed in any::<u32>(),
        ) {
            let image = node(&shape, level, &keys, u64::from(seed));
            let (mut left, mut right) = (image.clone(), vec![0x5a; shape.node_bytes]);
            right[..shape.header_bytes].fill(0);
            let mut wanted = vec![0; shape.key_bytes];
            wanted[..8].copy_from_slice(&key.to_be_bytes());
            let mut one = NodeMut::new(&shape, &mut left);
            let mut other = NodeMut::new(&shape, &mut right);
            let separator = split((&mut one, &image), (&mut other, at(4096)), (7, Cut::For(&wanted)));
            let (one, other) = (one.node(), other.node());
            prop_assert_eq!(one.high(), Some(&separator[..]));
            prop_assert_eq!(other.low(), &separator[..]);
            prop_assert_eq!((one.next(), other.next()), (at(4096), Address::NULL));
            prop_assert!(one.count() > 0 && other.count() > 0);
            prop_assert!(are_at_home(one, &shape) && are_at_home(other, &shape));
            prop_assert!(one.used().all(|slot| one.covers(one.key(slot))));
            prop_assert!(other.used().all(|slot| other.covers(other.key(slot))));
            prop_assert_eq!(one.bitmap() & !Node::new(&shape, &image).bitmap(), 0);
            let mut all = entries(&left, &shape);
            all.extend(entries(&right, &shape));
            prop_assert_eq!(&all, &keys);
            let before = right.clone();
            let mut one = NodeMut::new(&shape, &mut left);
            let mut other = NodeMut::new(&shape, &mut right);
            prop_assert!(merge(&mut one, (&mut other, &before)));
            prop_assert!(other.node().is_dead() && !one.node().is_dead());
            prop_assert!(are_at_home(one.node(), &shape));
            prop_assert_eq!(one.node().high(), None);
            prop_assert_eq!(entries(&left, &shape), keys);
        }

        /// A root's children cover the keys that the root covered.
        #[test]
        fn a_root_splits_into_children(
            shape in shapes(),
            level in 0u8..3,
            keys in prop::collection::btree_map(any::<u64>(), 0..1u64 << 40, 2..14),
        ) {
            let image = node(&shape, level, &keys, 3);
            let (mut root, mut left) = (image.clone(), vec![0; shape.node_bytes]);
            let mut right = left.clone();
            let key = vec![0; shape.key_bytes];
            split_root(
                (&mut NodeMut::new(&shape, &mut root), &image),
                (&mut NodeMut::new(&shape, &mut left), at(4096)),
                (&mut NodeMut::new(&shape, &mut right), at(8192)),
                (7, Cut::For(&key)),
            );
            let (top, one, other) =
                (Node::new(&shape, &root), Node::new(&shape, &left), Node::new(&shape, &right));
            prop_assert_eq!((top.level(), one.level(), other.level()), (level + 1, level, level));
            prop_assert_eq!((top.child(0), top.child(1)), (at(4096), at(8192)));
            prop_assert_eq!((top.key(0), top.key(1)), (one.low(), other.low()));
            prop_assert_eq!(one.high(), Some(other.low()));
            prop_assert!(top.high().is_none() && other.high().is_none());
            prop_assert!(are_at_home(one, &shape) && are_at_home(other, &shape));
            let mut all = entries(&left, &shape);
            all.extend(entries(&right, &shape));
            prop_assert_eq!(all, keys);
        }
    }
}
