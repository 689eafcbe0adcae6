//! A thread's cached form of an inner index node: decoded, sorted, in few cache lines.
//!
//! Invariant: the separators and children of an inner node are stored as pairs, in ascending order, four pairs per
//! cache line. The first separator of each line is also stored in a separate array, which takes two lines for each
//! node. So a search of one node takes only two memory accesses that depend on each other. Rao and Ross, "Making
//! B+-trees cache conscious in main memory", SIGMOD 2000, reduce the number of cache lines by a similar layout of
//! nodes. The pairs contain only the first 8 bytes of a separator. Keys longer than 8 bytes are also compared in
//! full.

use super::cache::sorted_slots;
use crate::layout::node::{Node, first_of};
use tarn_fabric::address::Address;

/// The maximum number of separators of a cached node. A node of 1 KiB has at most 60 slots, because a slot has 16
/// bytes or more.
const PAIRS_MAX: usize = 64;
/// The number of pairs in a cache line.
const LINE_PAIRS: usize = 4;
const LINES: usize = PAIRS_MAX / LINE_PAIRS;
/// The cache position of a node that is not cached.
pub const NO_NODE: u32 = u32::MAX;

/// The first word of a separator, and the address of its child.
#[derive(Clone, Copy)]
struct Pair {
    first: u64,
    child: u64,
}

/// The value of unused pairs, which lie behind the last used pair.
const NO_PAIR: Pair = Pair { first: u64::MAX, child: 0 };

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([Pair; LINE_PAIRS]);

/// The part of a cached node that a search reads.
#[repr(align(64))]
pub struct Searched {
    /// For each used line, the first word of the line's first separator. All elements for unused lines are the
    /// greatest number.
    heads: [u64; LINES],
    lines: [Line; LINES],
    /// The cache positions of the children, or [`NO_NODE`] if a position is not known.
    kids: [u32; PAIRS_MAX],
    /// The node's address. The address is null if this cache entry is unused.
    pub address: u64,
    count: u8,
    /// The node's level. The level is 0 if this cache entry is unused.
    pub level: u8,
}

impl Default for Searched {
    fn default() -> Searched {
        Searched {
            heads: [u64::MAX; LINES],
            lines: [Line([NO_PAIR; LINE_PAIRS]); LINES],
            kids: [NO_NODE; PAIRS_MAX],
            address: 0,
            count: 0,
            level: 0,
        }
    }
}

/// The part of a cached node that a search seldom reads.
#[derive(Default)]
pub struct Rest {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    /// The bytes of all separators, in ascending order.
    keys: Vec<u8>,
}

impl Rest {
    /// Builds this part of the cached form of `node`.
    pub fn of(node: Node<'_>) -> Rest {
        let slots = sorted_slots(node);
        Rest {
            low: node.low().to_vec(),
            high: node.high().map(<[u8]>::to_vec),
            keys: slots.iter().flat_map(|&slot| node.key(slot)).copied().collect(),
        }
    }

    /// Whether the node covers a key.
    pub fn covers(&self, key: &[u8]) -> bool {
        self.low[..] <= *key && self.high.as_ref().is_none_or(|high| *key < high[..])
    }

    /// The key at which the node begins.
    pub fn low(&self) -> &[u8] {
        &self.low
    }

    /// Returns the separator with number `at`, of `len` bytes.
    pub fn key(&self, at: usize, len: usize) -> &[u8] {
        &self.keys[at * len..(at + 1) * len]
    }
}

impl Searched {
    /// Builds the part that a search reads, from the image of a node.
    pub fn of(address: Address, node: Node<'_>) -> Searched {
        let mut searched =
            Searched { address: address.to_word(), level: node.level(), ..Searched::default() };
        let slots = sorted_slots(node);
        assert!(slots.len() <= PAIRS_MAX, "an inner node has {PAIRS_MAX} slots at most");
        searched.count = slots.len() as u8;
        for (at, &slot) in slots.iter().enumerate() {
            let (first, child) = (first_of(node.key(slot)), node.child(slot).to_word());
            searched.lines[at / LINE_PAIRS].0[at % LINE_PAIRS] = Pair { first, child };
            if at.is_multiple_of(LINE_PAIRS) {
                searched.heads[at / LINE_PAIRS] = first;
            }
        }
        searched
    }

    /// The number of the node's children.
    pub fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// The address of child number `at`.
    #[inline]
    pub fn child(&self, at: usize) -> Address {
        Address::from_word(self.lines[at / LINE_PAIRS].0[at % LINE_PAIRS].child)
    }

    /// Returns the cache position of child number `at`, or [`NO_NODE`] if it is not known.
    #[inline]
    pub fn kid(&self, at: usize) -> u32 {
        self.kids[at]
    }

    /// Stores the cache position of child number `at`.
    pub fn set_kid(&mut self, at: usize, kid: u32) {
        self.kids[at] = kid;
    }

    /// Returns the number of the line that contains the last separator whose first word is at most `first`.
    #[inline]
    pub fn line_of(&self, first: u64) -> usize {
        self.heads.partition_point(|&head| head <= first).saturating_sub(1)
    }

    /// Does the same as [`Searched::child_of`] for keys of one word, in the line that [`Searched::line_of`]
    /// returned.
    #[inline]
    pub fn child_in(&self, line: usize, first: u64) -> Option<usize> {
        let pairs = &self.lines[line % LINES].0;
        let upto = pairs.iter().map(|pair| usize::from(pair.first <= first)).sum::<usize>();
        // For the greatest possible key, the sum also counts the unused pairs. `min` corrects the sum for this key.
        (line * LINE_PAIRS + upto).min(self.count()).checked_sub(1)
    }

    /// Returns the number of the child with the greatest separator that is at most `key`.
    #[inline]
    pub fn child_of(&self, rest: &Rest, key: &[u8]) -> Option<usize> {
        let first = first_of(key);
        match key.len() {
            8 => self.child_in(self.line_of(first), first),
            _ => self.child_of_long(rest, key),
        }
    }

    /// Whether separator number `at` is greater than `key`.
    #[inline]
    pub fn is_beyond(&self, rest: &Rest, at: usize, key: &[u8]) -> bool {
        let (mine, other) = (self.lines[at / LINE_PAIRS].0[at % LINE_PAIRS].first, first_of(key));
        mine > other || (key.len() > 8 && mine == other && rest.key(at, key.len()) > key)
    }

    fn child_of_long(&self, rest: &Rest, key: &[u8]) -> Option<usize> {
        let (mut from, mut to) = (0, self.count());
        while from < to {
            let middle = (from + to) / 2;
            match rest.key(middle, key.len()) <= key {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from.checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::btree::edit::NodeMut;
    use crate::layout::node::NodeShape;
    use tarn_fabric::address::GroupId;

    /// Builds an inner node with the separators 10, 20, … in unsorted slots. Each separator has `key_bytes` bytes.
    fn node(shape: &NodeShape, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; shape.node_bytes];
        let mut node = NodeMut::new(shape, &mut bytes);
        node.set_kind(1, 0);
        for at in 0..count {
            let number = (at * 7 % count + 1) * 10;
            let mut key = vec![0; shape.key_bytes];
            key[shape.key_bytes - 8..].copy_from_slice(&number.to_be_bytes());
            node.post(&key, Address::new(GroupId(0), number * 64)).expect("room");
        }
        bytes
    }

    #[test]
    fn the_last_separator_not_beyond_a_key_is_found() {
        for (key_bytes, count) in [(8, 1), (8, 5), (8, 59), (8, 60), (24, 33), (40, 40)] {
            let shape = NodeShape::of(key_bytes, 0);
            let bytes = node(&shape, count);
            let node = Node::new(&shape, &bytes);
            let (searched, rest) = (Searched::of(Address::NULL, node), Rest::of(node));
            for number in 0..(count + 2) * 10 {
                let mut key = vec![0; key_bytes];
                key[key_bytes - 8..].copy_from_slice(&number.to_be_bytes());
                let at = searched.child_of(&rest, &key);
                let wanted = (number / 10).min(count).checked_sub(1);
                assert_eq!(at.map(|at| at as u64), wanted, "{key_bytes}, {count}, {number}");
                if let Some(at) = at {
                    assert_eq!(searched.child(at).offset_bytes(), (at as u64 + 1) * 640);
                }
            }
            let top = searched.child_of(&rest, &vec![0xff; key_bytes]);
            assert_eq!(top, Some(count as usize - 1));
        }
    }
}
