//! What a thread remembers of the inner nodes of ordered indexes.
//!
//! Invariant: it is never trusted. What it leads to says itself which keys it covers; if that is not
//! the key, the path is forgotten and read anew. A node that was read takes the place of its earlier
//! image. It holds a bounded number of nodes of each index, and forgets all of them beyond.

use super::node::{Bits, Node};
use super::plan::Index;
use std::collections::BTreeMap;
use tarn_fabric::address::Address;

/// Most inner nodes of one index that a thread remembers.
const NODES_MAX: usize = 1 << 16;
const NO_NODE: u32 = u32::MAX;

/// An inner node, decoded.
#[derive(Default)]
struct Inner {
    /// Where it lies; null: nobody's.
    address: u64,
    level: u8,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
    /// The first 8 bytes of each separator, ascending.
    firsts: Vec<u64>,
    /// The separators, one after the other.
    keys: Vec<u8>,
    children: Vec<Address>,
    /// Where the children are remembered, as far as known.
    kids: Vec<u32>,
}

impl Inner {
    fn fill(&mut self, address: Address, node: Node<'_>) {
        let mut slots: Vec<usize> = node.used().collect();
        slots.sort_unstable_by(|&one, &other| node.key(one).cmp(node.key(other)));
        (self.address, self.level) = (address.to_word(), node.level());
        self.low = node.low().to_vec();
        self.high = node.high().map(<[u8]>::to_vec);
        self.firsts = slots.iter().map(|&slot| first_of(node.key(slot))).collect();
        self.keys = slots.iter().flat_map(|&slot| node.key(slot)).copied().collect();
        self.children = slots.iter().map(|&slot| node.child(slot)).collect();
        self.kids = vec![NO_NODE; slots.len()];
    }

    fn covers(&self, key: &[u8]) -> bool {
        self.low[..] <= *key && self.high.as_ref().is_none_or(|high| *key < high[..])
    }

    /// The child whose separator is the last that is not beyond `key`.
    #[inline]
    fn child_of(&self, key: &[u8]) -> Option<usize> {
        let first = first_of(key);
        if key.len() == 8 {
            return self.firsts.partition_point(|&it| it <= first).checked_sub(1);
        }
        let mut at = self.firsts.partition_point(|&it| it < first);
        let equal = |at: usize| self.firsts.get(at) == Some(&first);
        while equal(at) && self.key(at, key.len()) <= key {
            at += 1;
        }
        at.checked_sub(1)
    }

    fn key(&self, at: usize, len: usize) -> &[u8] {
        &self.keys[at * len..(at + 1) * len]
    }
}

#[inline]
fn first_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(*key.first_chunk().expect("keys have 8 bytes or more"))
}

/// What is remembered of one index.
#[derive(Default)]
struct Tree {
    nodes: Vec<Inner>,
    free: Vec<u32>,
    by_address: BTreeMap<u64, u32>,
}

/// Where to go for a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// This inner node, or root, must be read first.
    Read(Address),
    /// The node of the wanted level is believed here; so many were noted.
    There,
}

/// What a thread remembers of all indexes.
#[derive(Default)]
pub struct TreeCache {
    trees: Vec<Tree>,
}

/// Which nodes a walk wants to see.
#[derive(Clone, Copy)]
pub struct Course<'a> {
    /// The key that the first of them covers.
    pub key: &'a [u8],
    /// The last key of interest, in the direction of the walk.
    pub last: &'a [u8],
    /// Towards lesser keys.
    pub backward: bool,
    /// At most so many nodes, the first and those after it.
    pub nodes: usize,
    /// Their level.
    pub level: u8,
}

impl TreeCache {
    /// For so many indexes.
    pub fn new(indexes: usize) -> TreeCache {
        TreeCache { trees: (0..indexes).map(|_| Tree::default()).collect() }
    }

    /// Notes the addresses of the nodes that `course` wants in `found`, or says what to read first.
    #[inline]
    pub fn locate(&mut self, index: &Index, course: Course<'_>, found: &mut Vec<Address>) -> Way {
        let tree = &mut self.trees[usize::from(index.id.0)];
        let Some(mut at) = tree.known(index.root) else { return Way::Read(index.root) };
        if tree.nodes[at].level < course.level {
            return Way::Read(index.root); // the tree is not that high
        }
        if tree.nodes[at].level == course.level {
            found.push(index.root);
            return Way::There;
        }
        loop {
            let node = &tree.nodes[at];
            let Some(child) = node.child_of(course.key) else {
                let address = Address::from_word(node.address);
                return Way::Read(address); // it covers no such key: it is another by now
            };
            if node.level == course.level + 1 {
                node.note(child, course, found);
                return Way::There;
            }
            let address = node.children[child];
            let kid = node.kids[child];
            let is_it =
                tree.nodes.get(kid as usize).is_some_and(|it| it.address == address.to_word());
            let kid = match is_it {
                true => kid as usize,
                false => match tree.known(address) {
                    Some(kid) => {
                        tree.nodes[at].kids[child] = kid as u32;
                        kid
                    }
                    None => return Way::Read(address),
                },
            };
            if !tree.nodes[kid].covers(course.key) {
                return Way::Read(address);
            }
            if tree.nodes[kid].level + 1 != tree.nodes[at].level {
                // A dead node that serves another level by now: who leads to it is of before.
                let stale = Address::from_word(tree.nodes[at].address);
                tree.remove(at);
                return Way::Read(stale);
            }
            at = kid;
        }
    }

    /// Takes in an inner node that was read.
    pub fn learn(&mut self, index: &Index, address: Address, node: Node<'_>) {
        let tree = &mut self.trees[usize::from(index.id.0)];
        if tree.by_address.len() >= NODES_MAX {
            *tree = Tree::default();
        }
        let at = match tree.known(address) {
            Some(at) => at,
            None => {
                let at = tree.free.pop().map(|at| at as usize).unwrap_or(tree.nodes.len());
                if at == tree.nodes.len() {
                    tree.nodes.push(Inner::default());
                }
                tree.by_address.insert(address.to_word(), at as u32);
                at
            }
        };
        tree.nodes[at].fill(address, node);
    }

    /// Forgets the nodes on the way to `key` that lie at `level` or above: they are read anew.
    pub fn forget(&mut self, index: &Index, key: &[u8], level: u8) {
        let tree = &mut self.trees[usize::from(index.id.0)];
        let mut at = tree.known(index.root);
        while let Some(here) = at {
            let node = &tree.nodes[here];
            if node.level < level {
                return;
            }
            at = node.child_of(key).and_then(|child| tree.known(node.children[child]));
            tree.remove(here);
        }
    }

    /// Forgets one node, if it is remembered.
    pub fn forget_node(&mut self, index: &Index, address: Address) {
        let tree = &mut self.trees[usize::from(index.id.0)];
        if let Some(at) = tree.known(address) {
            tree.remove(at);
        }
    }

    /// Forgets the remembered parent, at `level`, of the node that covers `key`.
    pub fn forget_parent(&mut self, index: &Index, key: &[u8], level: u8) {
        let tree = &mut self.trees[usize::from(index.id.0)];
        let mut at = tree.known(index.root);
        while let Some(here) = at {
            let node = &tree.nodes[here];
            if node.level <= level {
                return tree.remove(here);
            }
            at = node.child_of(key).and_then(|child| tree.known(node.children[child]));
        }
    }
}

impl Tree {
    fn known(&self, address: Address) -> Option<usize> {
        self.by_address.get(&address.to_word()).map(|&at| at as usize)
    }

    fn remove(&mut self, at: usize) {
        self.by_address.remove(&self.nodes[at].address);
        self.nodes[at] = Inner::default();
        self.free.push(at as u32);
    }
}

impl Inner {
    /// The children from `child` on, as far as the course goes.
    fn note(&self, child: usize, course: Course<'_>, found: &mut Vec<Address>) {
        found.push(self.children[child]);
        let len = course.key.len();
        for more in 1..course.nodes {
            if course.backward {
                // The node before ends where this one begins: if that is beyond the last key.
                let Some(at) = child.checked_sub(more) else { return };
                if self.key(at + 1, len) <= course.last {
                    return;
                }
                found.push(self.children[at]);
            } else {
                let at = child + more;
                if at >= self.children.len() || self.key(at, len) > course.last {
                    return;
                }
                found.push(self.children[at]);
            }
        }
    }
}

/// The slots of an inner node, by key: for whoever changes one.
pub fn sorted_slots(node: Node<'_>) -> Vec<usize> {
    let mut slots: Vec<usize> = Bits(node.bitmap()).collect();
    slots.sort_unstable_by(|&one, &other| node.key(one).cmp(node.key(other)));
    slots
}
