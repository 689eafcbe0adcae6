//! A thread's cache of the inner nodes of ordered indexes.
//!
//! Invariant: a walk never trusts a cached node. The node to which the cache leads states by its fences which keys it
//! covers. If the node does not cover the wanted key, the thread drops the cached path and reads it again. When a
//! thread has read a node, the new image replaces the cached image. The cache holds at most `NODES_MAX` nodes of each
//! index, and drops all nodes of an index when the index has reached this number.

use super::inner::{NO_NODE, Rest, Searched};
use super::seek::Seek;
use crate::layout::index_plan::{Index, KeyBytes};
use crate::layout::node::{Bits, Node, first_of};
use crate::schema::INDEX_KEY_BYTES_MAX;
use std::collections::BTreeMap;
use tarn_fabric::address::Address;

/// The maximum number of inner nodes of one index that a thread caches.
const NODES_MAX: usize = 1 << 16;

/// The cached nodes of one index.
#[derive(Default)]
struct Tree {
    nodes: Vec<Searched>,
    /// The parts of the cached nodes that a search seldom needs.
    rests: Vec<Rest>,
    /// The position of the root, if the root is cached.
    root: Option<u32>,
    free: Vec<u32>,
    by_address: BTreeMap<u64, u32>,
}

/// A pointer to a node, with the LOW fence that the node must have if its memory still holds the intended node. The
/// LOW of a node does not change until the node is merged into another node. If the node was split, it still begins
/// at LOW, and its NEXT leads to the other half. If the memory of a dead node is used again, the new node may begin
/// at any key. The NEXT of the new node leads through another part of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lead {
    /// The address of the node to which the pointer leads.
    pub address: Address,
    /// The LOW of the node to which the pointer leads, padded. The thread has read this LOW as the node's separator,
    /// or as the HIGH of the node before it.
    pub low: KeyBytes,
}

impl Lead {
    /// A pointer to no node.
    pub const NONE: Lead = Lead { address: Address::NULL, low: [0; INDEX_KEY_BYTES_MAX] };

    fn new(address: Address, low: &[u8]) -> Lead {
        let mut bytes = [0; INDEX_KEY_BYTES_MAX];
        bytes[..low.len()].copy_from_slice(low);
        Lead { address, low: bytes }
    }

    /// Returns a pointer to the index's root, which covers all keys.
    pub fn root(index: &Index) -> Lead {
        Lead::new(index.root, &[])
    }

    /// Returns a pointer to the node to which NEXT of `node` leads.
    pub fn after(node: Node<'_>) -> Lead {
        Lead::new(node.next(), node.high().unwrap_or_default())
    }

    /// Whether `node`, which a walk has read at the pointer's address, is the intended node.
    pub fn is_to(&self, node: Node<'_>) -> bool {
        let low = node.low();
        self.low[..low.len()] == *low
    }
}

/// The next step of a walk towards a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The walk must first read this inner node, or the root.
    Read(Lead),
    /// The cache has the addresses of the wanted nodes, and has added them to the caller's list. The field is a
    /// pointer to the first wanted node.
    There(Lead),
}

/// A thread's cache of the inner nodes of all indexes.
#[derive(Default)]
pub struct TreeCache {
    trees: Vec<Tree>,
}

/// The nodes that a walk wants to read.
#[derive(Clone, Copy)]
pub struct Course<'a> {
    /// The key that the first wanted node covers.
    pub key: &'a [u8],
    /// The last key, in the direction of the walk, that the wanted nodes should cover.
    pub last: &'a [u8],
    /// Whether the walk goes towards lower keys.
    pub backward: bool,
    /// The maximum number of wanted nodes. The first node is counted too.
    pub nodes: usize,
    /// The level of the wanted nodes.
    pub level: u8,
}

impl TreeCache {
    /// Creates an empty cache for this many indexes.
    pub fn new(indexes: usize) -> TreeCache {
        TreeCache { trees: (0..indexes).map(|_| Tree::default()).collect() }
    }

    /// Adds the addresses of the nodes that `course` wants to `found`. If the cache cannot lead to these nodes, the
    /// function returns the node that the walk must read first.
    #[inline]
    pub fn locate(&mut self, index: &Index, course: Course<'_>, found: &mut Vec<Address>) -> Way {
        let tree = &mut self.trees[usize::from(index.id.0)];
        let Some(root) = tree.root else { return Way::Read(Lead::root(index)) };
        let mut at = root as usize;
        if tree.nodes[at].level < course.level {
            return Way::Read(Lead::root(index)); // the tree has fewer levels
        }
        if tree.nodes[at].level == course.level {
            found.push(index.root);
            return Way::There(Lead::root(index));
        }
        loop {
            let (node, rest) = (&tree.nodes[at], &tree.rests[at]);
            let Some(child) = node.child_of(rest, course.key) else {
                // The cached node does not cover the key, so the memory at the node's address now holds another node.
                return Way::Read(Lead::new(Address::from_word(node.address), rest.low()));
            };
            if node.level == course.level + 1 {
                note(node, rest, (child, course), found);
                return Way::There(tree.lead(at, child, course.key.len()));
            }
            let kid = tree.kid_of(at, child).filter(|&kid| tree.rests[kid].covers(course.key));
            let Some(kid) = kid else {
                return Way::Read(tree.lead(at, child, course.key.len()));
            };
            if tree.nodes[kid].level + 1 != tree.nodes[at].level {
                // The memory of a dead node is now used for a node at another level. The cached image of the parent
                // or of the child may be old, so the cache drops both images.
                let address = Address::from_word(tree.nodes[at].address);
                let stale = Lead::new(address, tree.rests[at].low());
                tree.remove(kid);
                tree.remove(at);
                return Way::Read(stale);
            }
            at = kid;
        }
    }

    /// Adds the addresses of the nodes that `course` wants below an inner node to the list. The walk has just read
    /// this inner node, which covers the key. If the wanted nodes are further below, the function returns the child
    /// that the walk must read. `below` does not use cached nodes further below the inner node. So a walk that has
    /// read a node continues below this node even if no cached node leads to that node. The level above may lack the
    /// node's separator. For example, after a split it lacks the separator of the new half.
    pub fn below(
        &self,
        index: &Index,
        address: Address,
        course: Course<'_>,
        found: &mut Vec<Address>,
    ) -> Way {
        let tree = &self.trees[usize::from(index.id.0)];
        let child = tree.known(address).and_then(|at| {
            let child = tree.nodes[at].child_of(&tree.rests[at], course.key)?;
            Some((at, child))
        });
        // If the inner node has no such child, the node is not on the way to the key, so the walk begins again at the
        // root.
        let Some((at, child)) = child else { return Way::Read(Lead::root(index)) };
        let (node, rest) = (&tree.nodes[at], &tree.rests[at]);
        let lead = tree.lead(at, child, course.key.len());
        if node.level != course.level + 1 {
            return Way::Read(lead);
        }
        note(node, rest, (child, course), found);
        Way::There(lead)
    }

    /// Finds the leaves for several keys. The search processes all keys level by level, so that the memory accesses
    /// for different keys overlap. If the path of a key is not cached, the key's address stays null.
    pub fn locate_all(&mut self, index: &Index, seeks: &mut [Seek]) {
        let tree = &mut self.trees[usize::from(index.id.0)];
        let root = tree.root.unwrap_or(NO_NODE);
        seeks.iter_mut().for_each(|seek| (seek.node, seek.address) = (root, Address::NULL));
        let Some(top) = tree.root.map(|root| tree.nodes[root as usize].level) else { return };
        for level in (2..=top).rev() {
            for seek in seeks.iter_mut().filter(|seek| seek.node != NO_NODE) {
                seek.node = tree.next_of(seek.node as usize, level, seek.key(index));
            }
        }
        if index.shape.key_bytes != 8 {
            for seek in seeks.iter_mut().filter(|seek| seek.node != NO_NODE) {
                let (node, rest) =
                    (&tree.nodes[seek.node as usize], &tree.rests[seek.node as usize]);
                let child = node.child_of(rest, seek.key(index)).filter(|_| node.level == 1);
                seek.address = child.map_or(Address::NULL, |child| node.child(child));
            }
            return;
        }
        for seek in seeks.iter_mut().filter(|seek| seek.node != NO_NODE) {
            seek.line = tree.nodes[seek.node as usize].line_of(first_of(&seek.key)) as u8;
        }
        for seek in seeks.iter_mut().filter(|seek| seek.node != NO_NODE) {
            let node = &tree.nodes[seek.node as usize];
            let child = node.child_in(usize::from(seek.line), first_of(&seek.key));
            let child = child.filter(|_| node.level == 1);
            seek.address = child.map_or(Address::NULL, |child| node.child(child));
        }
    }

    /// Adds an inner node to the cache after a walk has read the node.
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
                    tree.nodes.push(Searched::default());
                    tree.rests.push(Rest::default());
                }
                tree.by_address.insert(address.to_word(), at as u32);
                at
            }
        };
        (tree.nodes[at], tree.rests[at]) = (Searched::of(address, node), Rest::of(node));
        if address == index.root {
            tree.root = Some(at as u32);
        }
    }

    /// Drops the cached nodes on the way to `key` at `level` and above, so that the next walk reads these nodes
    /// again.
    pub fn forget(&mut self, index: &Index, key: &[u8], level: u8) {
        let tree = &mut self.trees[usize::from(index.id.0)];
        let mut at = tree.known(index.root);
        while let Some(here) = at {
            if tree.nodes[here].level < level {
                return;
            }
            at = tree.child_on_way(here, key);
            tree.remove(here);
        }
    }

    /// Drops one node, if it is cached.
    pub fn forget_node(&mut self, index: &Index, address: Address) {
        let tree = &mut self.trees[usize::from(index.id.0)];
        if let Some(at) = tree.known(address) {
            tree.remove(at);
        }
    }

    /// Drops the cached parent, at `level`, of the node that covers `key`. Cached images may be from different times.
    /// If the levels of the cached nodes do not decrease along the way, the function drops nothing.
    pub fn forget_parent(&mut self, index: &Index, key: &[u8], level: u8) {
        let tree = &mut self.trees[usize::from(index.id.0)];
        let mut at = tree.known(index.root);
        while let Some(here) = at {
            let height = tree.nodes[here].level;
            if height <= level {
                return tree.remove(here);
            }
            at = tree.child_on_way(here, key).filter(|&kid| tree.nodes[kid].level < height);
        }
    }
}

impl Tree {
    fn known(&self, address: Address) -> Option<usize> {
        self.by_address.get(&address.to_word()).map(|&at| at as usize)
    }

    /// Returns a pointer to a child of a cached node.
    fn lead(&self, at: usize, child: usize, key_bytes: usize) -> Lead {
        Lead::new(self.nodes[at].child(child), self.rests[at].key(child, key_bytes))
    }

    /// Returns the cache position of a child of a cached node, if the child is cached too.
    #[inline]
    fn kid_of(&mut self, at: usize, child: usize) -> Option<usize> {
        let address = self.nodes[at].child(child);
        let kid = self.nodes[at].kid(child);
        match self.nodes.get(kid as usize) {
            Some(node) if node.address == address.to_word() => Some(kid as usize),
            _ => self.learn_kid(at, child),
        }
    }

    #[cold]
    fn learn_kid(&mut self, at: usize, child: usize) -> Option<usize> {
        let kid = self.known(self.nodes[at].child(child))?;
        self.nodes[at].set_kid(child, kid as u32);
        Some(kid)
    }

    /// Returns the cache position of the child on the way to `key`, for a node of `level`. Returns [`NO_NODE`] if the
    /// child is not cached.
    #[inline]
    fn next_of(&mut self, at: usize, level: u8, key: &[u8]) -> u32 {
        let node = &self.nodes[at];
        let child = node.child_of(&self.rests[at], key).filter(|_| node.level == level);
        child.and_then(|child| self.kid_of(at, child)).map_or(NO_NODE, |kid| kid as u32)
    }

    fn child_on_way(&self, at: usize, key: &[u8]) -> Option<usize> {
        let node = &self.nodes[at];
        node.child_of(&self.rests[at], key).and_then(|child| self.known(node.child(child)))
    }

    fn remove(&mut self, at: usize) {
        self.by_address.remove(&self.nodes[at].address);
        (self.nodes[at], self.rests[at]) = (Searched::default(), Rest::default());
        self.free.push(at as u32);
        if self.root == Some(at as u32) {
            self.root = None;
        }
    }
}

/// Adds the addresses of a node's children to the list, from `child` on, up to the end of the course.
fn note(
    node: &Searched,
    rest: &Rest,
    (child, course): (usize, Course<'_>),
    found: &mut Vec<Address>,
) {
    found.push(node.child(child));
    for more in 1..course.nodes {
        if course.backward {
            // In a backward walk, the previous child ends where this child begins. The walk needs the previous child
            // only if this child begins beyond the last key.
            let Some(at) = child.checked_sub(more) else { return };
            if !node.is_beyond(rest, at + 1, course.last) {
                return;
            }
            found.push(node.child(at));
        } else {
            let at = child + more;
            if at >= node.count() || node.is_beyond(rest, at, course.last) {
                return;
            }
            found.push(node.child(at));
        }
    }
}

/// Returns the used slots of an inner node, sorted by key. Code that changes nodes also uses this function.
pub fn sorted_slots(node: Node<'_>) -> Vec<usize> {
    let mut slots: Vec<usize> = Bits(node.bitmap()).collect();
    slots.sort_unstable_by(|&one, &other| node.key(one).cmp(node.key(other)));
    slots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::btree::edit::NodeMut;
    use crate::layout::node::NodeShape;
    use crate::schema::{IndexId, IndexPart, IndexSchema, TableId, TableSchema};
    use tarn_fabric::address::GroupId;

    fn at(number: u64) -> Address {
        Address::new(GroupId(0), number * 1024)
    }

    /// Creates an index with keys of 8 bytes, whose root has the address 1.
    fn index() -> Index {
        let schema =
            IndexSchema { name: "by_key".into(), parts: vec![IndexPart::Key], unique: true };
        Index::plan(IndexId(0), (TableId(0), &TableSchema::new("t", 1)), &schema, at(1), (0, 1))
    }

    /// Creates an inner node that covers every key and has one child.
    fn over_all(shape: &NodeShape, level: u8, child: Address) -> Vec<u8> {
        let mut bytes = vec![0; shape.node_bytes];
        let mut node = NodeMut::new(shape, &mut bytes);
        node.set_kind(level, 1);
        node.post(&[0; 8], child).expect("room");
        bytes
    }

    /// Reads the nodes that the cache requests from `memory`, until the cache leads to the leaf. Returns the number
    /// of READs.
    fn reads(cache: &mut TreeCache, index: &Index, memory: &BTreeMap<u64, Vec<u8>>) -> usize {
        let key = 7u64.to_be_bytes();
        let course = Course { key: &key, last: &key, backward: false, nodes: 1, level: 0 };
        let mut found = Vec::new();
        for reads in 0..16 {
            match cache.locate(index, course, &mut found) {
                Way::There(lead) => {
                    assert_eq!((&found[..], lead.address), (&[at(9)][..], at(9)));
                    return reads;
                }
                Way::Read(Lead { address, .. }) => {
                    let node = &memory[&address.to_word()];
                    cache.learn(index, address, Node::new(&index.shape, node));
                }
            }
        }
        panic!("it reads for ever")
    }

    /// The memory of a merged node is now used for a node two levels higher, and the cache still has the old image.
    #[test]
    fn a_remembered_child_of_another_level_is_read_anew() {
        let index = index();
        let node = |level, child| over_all(&index.shape, level, at(child));
        let memory: BTreeMap<u64, Vec<u8>> = [(1, node(3, 2)), (2, node(2, 3)), (3, node(1, 9))]
            .into_iter()
            .map(|(address, node)| (at(address).to_word(), node))
            .collect();
        let mut cache = TreeCache::new(1);
        cache.learn(&index, at(2), Node::new(&index.shape, &node(1, 8)));
        assert_eq!(reads(&mut cache, &index, &memory), 4, "the root twice");
        assert_eq!(reads(&mut cache, &index, &memory), 0);
    }

    /// The memory of two dead nodes is now used at other levels, and the cached images of the two nodes lead to each
    /// other.
    #[test]
    fn cached_nodes_in_a_circle_do_not_trap_a_walk() {
        let index = index();
        let node = |level, child| over_all(&index.shape, level, at(child));
        let mut cache = TreeCache::new(1);
        for (address, level, child) in [(1, 3, 2), (2, 2, 3), (3, 2, 2)] {
            cache.learn(&index, at(address), Node::new(&index.shape, &node(level, child)));
        }
        cache.forget_parent(&index, &[7; 8], 1);
        cache.forget(&index, &[7; 8], 0);
        assert!(cache.trees[0].by_address.is_empty());
    }
}
