//! The layout of a node of an ordered index in memory.
//!
//! ```text
//! 0        8        16        24       32       40       48       48+K     48+2K
//! | LOCK   | VERSION| META    | NEXT   | BITMAP | STRAYS | LOW    | HIGH   | padding to a line
//! META     | level u8 | flags u8 | tree u16 | 0 u32 |
//! slots, from the next line on:   leaf {key K, value V}     inner {key K, child's address 8}
//! ```
//! Invariant: LOCK, VERSION, META, NEXT, BITMAP and STRAYS lie in one line. So one READ of this line tells which
//! slots are in use as of VERSION. Unused slots may contain any bytes. Slots are not sorted, so an insert writes only
//! one slot and the header. A leaf's slots form groups of [`GROUP_SLOTS`] slots, and each group takes whole lines.
//! Slots that remain behind the last group belong to no group, so these slots are no key's home. The home of a key is
//! the group that the key hashes to. If an entry lies outside its home, the home's bit in STRAYS is set. So a reader
//! of the first line and one group gets one of three results. The reader finds the entry, or knows that the entry is
//! absent, or knows that it must read the whole leaf. A node covers the keys from LOW (inclusive) to HIGH
//! (exclusive). A node without the flag `BOUNDED` has no upper end. If the root's memory contains only zeros, the
//! root is an empty leaf that covers every key, and the tree is empty. Zeros at any other address are not a node,
//! because a node's `tree` is its index's number plus one, and never 0. A node that is `DEAD` was merged into another
//! node, and its memory is used again only in its own tree.

use crate::layout::{LOCK_AT, VERSION_AT, Version};
use tarn_fabric::address::{Address, LINE_BYTES};

/// The offset of META in a node.
pub const META_AT: usize = 16;
/// The offset of NEXT in a node.
pub const NEXT_AT: usize = 24;
/// The offset of BITMAP in a node.
pub const BITMAP_AT: usize = 32;
/// The offset of STRAYS in a node. STRAYS has one bit for each group of slots. The bit is set if an entry whose home
/// is this group may lie in another group.
pub const STRAYS_AT: usize = 40;
/// The number of slots of a group. A group always takes whole lines, since slots take whole words.
pub const GROUP_SLOTS: usize = 8;
/// The offset of the LOW fence. The HIGH fence follows the LOW fence.
pub const LOW_AT: usize = 48;
/// The maximum number of slots of a node, which is the number of bits of BITMAP.
pub const SLOTS_MAX: usize = 64;
/// The number of bytes of a child's address.
pub const CHILD_BYTES: usize = 8;
/// A flag of META: the node has an upper end, which is the HIGH fence.
pub const BOUNDED: u8 = 1;
/// A flag in META, which says that the node was merged into another node.
pub const DEAD: u8 = 2;

const NODE_BYTES: usize = 1024;
const WIDE_NODE_BYTES: usize = 2048;
/// Keys wider than this number of bytes have nodes of [`WIDE_NODE_BYTES`].
const NARROW_KEY_BYTES: usize = 16;

const _: () = assert!(STRAYS_AT == BITMAP_AT + 8 && LOW_AT == STRAYS_AT + 8);
const _: () = assert!(LOW_AT <= LINE_BYTES && GROUP_SLOTS * 8 == LINE_BYTES);
const _: () = assert!(VERSION_AT + 8 == META_AT && LOCK_AT == 0);

/// Returns a word whose lowest `count` bits are set.
pub fn mask(count: usize) -> u64 {
    if count == 64 { u64::MAX } else { (1 << count) - 1 }
}

/// The layout of the nodes of one index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeShape {
    /// The width of a key in bytes: a multiple of 8.
    pub key_bytes: usize,
    /// The width of a leaf's values in bytes: a multiple of 8, or 0.
    pub value_bytes: usize,
    /// The size of a node.
    pub node_bytes: usize,
    /// The size of a node's header, in bytes of whole lines.
    pub header_bytes: usize,
    /// The number of slots of a leaf.
    pub leaf_slots: usize,
    /// The number of slots of an inner node.
    pub inner_slots: usize,
    /// The number of groups of a leaf's slots. Each group is the home of some keys.
    pub homes: usize,
}

impl NodeShape {
    /// The shape for keys and values of these widths.
    pub fn of(key_bytes: usize, value_bytes: usize) -> NodeShape {
        assert!(key_bytes.is_multiple_of(8) && value_bytes.is_multiple_of(8) && key_bytes > 0);
        let header_bytes = (LOW_AT + 2 * key_bytes).next_multiple_of(LINE_BYTES);
        let wide = key_bytes > NARROW_KEY_BYTES;
        let node_bytes = if wide { WIDE_NODE_BYTES } else { NODE_BYTES };
        let slots = |slot: usize| ((node_bytes - header_bytes) / slot).min(SLOTS_MAX);
        let (leaf_slots, inner_slots) =
            (slots(key_bytes + value_bytes), slots(key_bytes + CHILD_BYTES));
        let homes = leaf_slots / GROUP_SLOTS;
        assert!(homes > 0, "a leaf has at least one group of slots");
        NodeShape {
            key_bytes,
            value_bytes,
            node_bytes,
            header_bytes,
            leaf_slots,
            inner_slots,
            homes,
        }
    }

    /// The group of a leaf's slots in which a key's entry lies if the group has room (the key's home). Successive
    /// keys get different groups, because a multiplication by the golden ratio separates them (Knuth, "The Art of
    /// Computer Programming", vol. 3, section 6.4). The upper half of a key word is combined with the lower half,
    /// since the lower half decides the group and keys may end in zeros.
    #[inline]
    pub fn home(&self, key: &[u8]) -> usize {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let of = |hash: u64, word: &[u8; 8]| {
            let word = u64::from_be_bytes(*word);
            (hash.rotate_left(32) ^ word ^ word >> 32).wrapping_mul(GOLDEN)
        };
        let hash = key.as_chunks::<8>().0.iter().fold(0, of);
        (((hash >> 32) * self.homes as u64) >> 32) as usize
    }

    /// Returns a bitmap with the bits of the slots of group number `group` of a leaf.
    #[inline]
    pub fn group_bits(group: usize) -> u64 {
        0xff << (group * GROUP_SLOTS)
    }

    /// The offset and the size in bytes of a group of a leaf's slots.
    #[inline]
    pub fn group_at(&self, group: usize) -> (usize, usize) {
        let bytes = GROUP_SLOTS * (self.key_bytes + self.value_bytes);
        (self.header_bytes + group * bytes, bytes)
    }

    /// Returns a free slot for a new entry in a node of this level, and the bit that must then be set in STRAYS.
    /// `taken` is the bitmap of the slots in use. Returns `None` if no slot is free.
    pub fn place(&self, level: u8, key: &[u8], taken: u64) -> Option<(usize, u64)> {
        let free = !taken & mask(self.slots(level));
        if level > 0 {
            return (free != 0).then_some((free.trailing_zeros() as usize, 0));
        }
        let home = self.home(key);
        let near = free & NodeShape::group_bits(home);
        if near != 0 {
            return Some((near.trailing_zeros() as usize, 0));
        }
        // The search begins at the last slot, because the last slots may belong to no group.
        let last = free.checked_ilog2()?;
        Some((last as usize, 1 << home))
    }

    /// The number of slots of a node of this level.
    #[inline]
    pub fn slots(&self, level: u8) -> usize {
        if level == 0 { self.leaf_slots } else { self.inner_slots }
    }

    /// The size of a slot of a node of this level.
    #[inline]
    pub fn slot_bytes(&self, level: u8) -> usize {
        self.key_bytes + if level == 0 { self.value_bytes } else { CHILD_BYTES }
    }

    /// The offset of a slot in a node of this level.
    #[inline]
    pub fn slot_at(&self, level: u8, slot: usize) -> usize {
        self.header_bytes + slot * self.slot_bytes(level)
    }

    /// The number of bytes that a node of this level uses when all its slots are taken.
    #[inline]
    pub fn used_bytes(&self, level: u8) -> usize {
        self.slot_at(level, self.slots(level))
    }
}

/// A view of a node's image.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    shape: &'a NodeShape,
    bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// Creates a view of an image. The image must have at least the number of bytes that a node of its level uses.
    #[inline]
    pub fn new(shape: &'a NodeShape, bytes: &'a [u8]) -> Node<'a> {
        Node { shape, bytes }
    }

    #[inline]
    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self.bytes[at..].first_chunk().expect("inside the image"))
    }

    /// Returns the node's LOCK word.
    #[inline]
    pub fn lock(&self) -> u64 {
        self.word(LOCK_AT)
    }

    /// The node's VERSION.
    #[inline]
    pub fn version(&self) -> Version {
        Version::from_word(self.word(VERSION_AT))
    }

    /// The node's level; a leaf has level 0.
    #[inline]
    pub fn level(&self) -> u8 {
        self.bytes[META_AT]
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.bytes[META_AT + 1] & flag != 0
    }

    /// Whether the node was merged into another node.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.has(DEAD)
    }

    /// The number, plus one, of the index that the node belongs to. In a root that was never split, this number may
    /// be 0.
    #[inline]
    pub fn tree(&self) -> u16 {
        u16::from_le_bytes([self.bytes[META_AT + 2], self.bytes[META_AT + 3]])
    }

    /// The address of the next node at the same level.
    #[inline]
    pub fn next(&self) -> Address {
        Address::from_word(self.word(NEXT_AT))
    }

    /// The bits of the node's used slots. If the word is damaged, bits for slots that do not exist are ignored.
    #[inline]
    pub fn bitmap(&self) -> u64 {
        self.word(BITMAP_AT) & mask(self.shape.slots(self.level()))
    }

    /// Returns the node's word STRAYS. If a group's bit is set, an entry whose home is this group may lie in another
    /// group.
    #[inline]
    pub fn strays(&self) -> u64 {
        self.word(STRAYS_AT)
    }

    /// The number of slots of the node that are in use.
    #[inline]
    pub fn count(&self) -> usize {
        self.bitmap().count_ones() as usize
    }

    /// The lowest key that the node covers.
    #[inline]
    pub fn low(&self) -> &'a [u8] {
        &self.bytes[LOW_AT..LOW_AT + self.shape.key_bytes]
    }

    /// The lowest key above the keys that the node covers, if the node has an upper end.
    #[inline]
    pub fn high(&self) -> Option<&'a [u8]> {
        let at = LOW_AT + self.shape.key_bytes;
        self.has(BOUNDED).then(|| &self.bytes[at..at + self.shape.key_bytes])
    }

    /// Whether the node covers a key.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        self.low() <= key && self.high().is_none_or(|high| key < high)
    }

    /// The key in a slot.
    #[inline]
    pub fn key(&self, slot: usize) -> &'a [u8] {
        let at = self.shape.slot_at(self.level(), slot);
        &self.bytes[at..at + self.shape.key_bytes]
    }

    /// The address of the child in an inner node's slot.
    #[inline]
    pub fn child(&self, slot: usize) -> Address {
        Address::from_word(self.word(self.shape.slot_at(self.level(), slot) + self.shape.key_bytes))
    }

    /// The numbers of the slots in use, in ascending order.
    #[inline]
    pub fn used(&self) -> Bits {
        Bits(self.bitmap())
    }

    /// Returns the slot that holds `key`, among the slots whose bits are set in `among`.
    pub fn find(&self, key: &[u8], among: u64) -> Option<usize> {
        let level = self.level();
        let (stride, start) = (self.shape.slot_bytes(level), self.shape.header_bytes);
        if let Ok(wanted) = <[u8; 8]>::try_from(key) {
            let wanted = u64::from_le_bytes(wanted);
            return Bits(among).find(|&slot| self.word(start + slot * stride) == wanted);
        }
        Bits(among).find(|&slot| self.key(slot) == key)
    }
}

/// The first word of a key, as a number. If two keys differ in their first words, these numbers compare in the same
/// order as the keys.
#[inline]
pub fn first_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(*key.first_chunk().expect("keys have 8 bytes or more"))
}

/// An iterator over the positions of the bits that are set in a word.
#[derive(Clone, Copy)]
pub struct Bits(pub u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let at = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(at)
    }
}

/// Changes `key` into the next lower key of the same length. If `key` is the lowest key, all its bits become ones,
/// and the result is false.
pub fn before(key: &mut [u8]) -> bool {
    for byte in key.iter_mut().rev() {
        let (less, borrowed) = byte.overflowing_sub(1);
        *byte = less;
        if !borrowed {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::btree::order::Order;
    use proptest::prelude::*;

    proptest! {
        /// Whatever bytes a node's memory contains, reads of the node stay within the node's bytes.
        #[test]
        fn damaged_nodes_are_read_within_their_bytes(
            seed: u64, meta: u32, bitmap in prop_oneof![Just(u64::MAX), any::<u64>()],
            key in prop::collection::vec(any::<u8>(), 48),
        ) {
            let mut word = seed;
            for (key_bytes, value_bytes) in [(8, 8), (8, 0), (24, 8), (48, 0), (48, 8)] {
                let shape = NodeShape::of(key_bytes, value_bytes);
                let mut image = vec![0; shape.node_bytes];
                for chunk in image.as_chunks_mut::<8>().0 {
                    word = tarn_fabric::rng::mix(word);
                    *chunk = word.to_le_bytes();
                }
                image[META_AT..META_AT + 4].copy_from_slice(&meta.to_le_bytes());
                image[BITMAP_AT..BITMAP_AT + 8].copy_from_slice(&bitmap.to_le_bytes());
                let (node, key) = (Node::new(&shape, &image), &key[..key_bytes]);
                prop_assert!(node.count() <= shape.slots(node.level()));
                for slot in node.used() {
                    prop_assert_eq!(node.key(slot).len(), key_bytes);
                    if node.level() > 0 {
                        _ = node.child(slot);
                    }
                }
                _ = (node.covers(key), node.find(key, node.bitmap()), node.tree(), node.next());
                let mut order = Order::default();
                order.fill(node, key, &vec![0xff; key_bytes]);
                prop_assert!(order.slots().len() <= node.count());
            }
        }
    }

    #[test]
    fn shapes_fill_their_nodes() {
        let narrow = NodeShape::of(8, 8);
        assert_eq!((narrow.node_bytes, narrow.header_bytes), (1024, 64));
        assert_eq!((narrow.leaf_slots, narrow.inner_slots), (60, 60));
        let own = NodeShape::of(8, 0);
        assert_eq!((own.leaf_slots, own.used_bytes(0)), (64, 64 + 512));
        let wide = NodeShape::of(48, 0);
        assert_eq!((wide.node_bytes, wide.header_bytes), (2048, 192));
        assert_eq!((wide.leaf_slots, wide.inner_slots), (38, 33));
        let widest = NodeShape::of(64, 64);
        assert_eq!((widest.header_bytes, widest.leaf_slots, widest.inner_slots), (192, 14, 25));
    }

    #[test]
    fn keys_that_follow_one_another_share_the_homes() {
        let shape = NodeShape::of(8, 0);
        for (stride, shift) in [(1, 0), (97, 0), (1, 8), (1, 32), (3, 16), (1 << 20, 0)] {
            let mut counts = [0; 8];
            let keys = (0..48u64).map(|at| (1_000_003 + at * stride) << shift);
            keys.for_each(|key| counts[shape.home(&key.to_be_bytes())] += 1);
            assert!(counts.iter().all(|&count| count <= 8), "{stride} << {shift}: {counts:?}");
        }
    }

    #[test]
    fn an_entry_without_room_at_home_is_a_stray() {
        let shape = NodeShape::of(8, 8);
        assert_eq!((shape.homes, shape.leaf_slots), (7, 60));
        let key = 5u64.to_be_bytes();
        let home = shape.home(&key);
        let (slot, stray) = shape.place(0, &key, 0).expect("room");
        assert_eq!((slot / GROUP_SLOTS, stray), (home, 0));
        let taken = NodeShape::group_bits(home);
        assert_eq!(shape.place(0, &key, taken), Some((59, 1 << home)));
        assert_eq!(shape.place(0, &key, mask(60)), None);
        assert_eq!(shape.place(1, &key, 0b101), Some((1, 0)));
    }

    #[test]
    fn zeros_are_an_empty_tree() {
        let shape = NodeShape::of(16, 8);
        let zeros = vec![0; shape.node_bytes];
        let node = Node::new(&shape, &zeros);
        assert_eq!((node.level(), node.is_dead(), node.count()), (0, false, 0));
        assert!(node.covers(&[0; 16]) && node.covers(&[255; 16]) && node.high().is_none());
    }

    #[test]
    fn the_key_before_a_key_is_found() {
        let mut key = [0, 1, 0];
        assert!(before(&mut key));
        assert_eq!(key, [0, 0, 255]);
        assert!(!before(&mut [0, 0]));
    }
}
