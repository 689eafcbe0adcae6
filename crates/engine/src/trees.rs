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
use tarn_fabric::clock::Nanos;
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

/// How long a walk waits for a node that is being changed.
const LOOK_AGAIN: Nanos = Nanos(1_000);
/// A walk that looks so often for one node, and does not find it, walks on a broken tree.
const LOOKS_MAX: u32 = 4_096;

/// Where a walk is: the next node, if it is known (else null), and where it begins.
pub type Place = (Address, Vec<u8>);

/// A walk along one level, beside transactions.
pub struct Walk<'a> {
    cx: &'a Context,
    index: &'a Index,
    level: u8,
    /// The next node, if it is known, and where it begins; `None`: the walk is at its end.
    next: Option<Place>,
    round: Round,
    looks: u32,
}

impl<'a> Walk<'a> {
    /// Begins at the left end of `level`.
    pub fn new(cx: &'a Context, index: &'a Index, level: u8) -> Walk<'a> {
        Walk::resume(cx, index, level, None)
    }

    /// Goes on at `place`; begins at the left end if there is none.
    pub fn resume(cx: &'a Context, index: &'a Index, level: u8, place: Option<Place>) -> Walk<'a> {
        let next = place.or_else(|| Some((Address::NULL, vec![0; index.shape.key_bytes])));
        Walk { cx, index, level, next, round: Round::new(), looks: 0 }
    }

    /// Where it is; `None` at its end.
    pub fn place(self) -> Option<Place> {
        self.next
    }

    /// The next node and its LOCK word. Every node that was there when the walk began, and still is when
    /// it ends, is shown; a node that comes meanwhile may be.
    ///
    /// # Errors
    /// The fabric's.
    ///
    /// # Panics
    /// If no node covers a key: our bug.
    pub async fn next(&mut self) -> Result<Option<(Address, u64)>, Failure> {
        let Some((mut address, low)) = self.next.take() else { return Ok(None) };
        loop {
            if address.is_null() {
                address = self.find(&low).await?;
            }
            let bytes = read(self.cx, &mut self.round, self.index, address, 0).await?;
            let node = Node::new(&self.index.shape, bytes);
            let mine = address == self.index.root || node.tree() == self.index.tree();
            if node.is_dead() || !mine || node.level() != self.level || !node.covers(&low) {
                address = Address::NULL; // it went out from under the walk
                self.look_again().await;
                continue;
            }
            self.looks = 0;
            self.next = node.high().map(|high| (node.next(), high.to_vec()));
            return Ok(Some((address, node.lock())));
        }
    }

    /// The node of the level that covers `key`, from the root.
    async fn find(&mut self, key: &[u8]) -> Result<Address, Failure> {
        let mut address = self.index.root;
        loop {
            let bytes = read(self.cx, &mut self.round, self.index, address, 0).await?;
            let node = Node::new(&self.index.shape, bytes);
            let mine = address == self.index.root || node.tree() == self.index.tree();
            let beyond = node.high().is_some_and(|high| high <= key);
            let child = sorted_slots(node).into_iter().rfind(|&slot| node.key(slot) <= key);
            address = match child {
                _ if node.is_dead() || !mine || node.level() < self.level => self.index.root,
                _ if beyond => node.next(),
                _ if node.level() == self.level => return Ok(address),
                Some(slot) => node.child(slot),
                None => self.index.root,
            };
            if address == self.index.root {
                self.look_again().await;
            }
        }
    }

    async fn look_again(&mut self) {
        self.looks += 1;
        assert!(self.looks < LOOKS_MAX, "index {} has a key of no node", self.index.schema.name);
        self.cx.port.sleep(LOOK_AGAIN).await;
    }
}

/// The level of a root.
///
/// # Errors
/// The fabric's.
pub async fn root_level(cx: &Context, index: &Index) -> Result<u8, Failure> {
    let mut round = Round::new();
    let bytes = read(cx, &mut round, index, index.root, 0).await?;
    Ok(Node::new(&index.shape, bytes).level())
}
