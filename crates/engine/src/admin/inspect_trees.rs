//! Inspects ordered indexes while no transaction runs.
//!
//! Invariant checked: at each level of the tree, the nodes cover all keys, left to right, without gap or overlap. No
//! node in the chain of a level is dead or locked. Each index entry appears only once. The key of an entry lies
//! within the fences of the entry's node, and a look-up finds the entry's slot. Each separator leads to a node that
//! begins at the separator. Every record has its index entries, and every index entry has its record. Replicas of a
//! node are equal in all bytes that are in use.

use crate::admin::inspect::{Audit, scan};
use crate::site::Context;
use crate::steps::trees::{each_node, leftmost, read};
use std::collections::BTreeMap;
use tarn_fabric::address::Address;
use tarn_fabric::rng::mix;
use tarn_fabric::round::Round;
use tarn_store::ids::Failure;
use tarn_store::layout::VERSION_AT;
use tarn_store::layout::index_plan::Index;
use tarn_store::layout::node::{META_AT, Node, NodeShape};

/// The nodes of one level, with the key at which each node begins.
type Lows = BTreeMap<u64, Vec<u8>>;

/// Audits one index.
pub(crate) async fn audit_index(
    cx: &Context,
    index: &Index,
    audit: &mut Audit,
) -> Result<(), Failure> {
    let mut below: Option<Lows> = None;
    let mut entries = Sum::default();
    let mut levels = leftmost(cx, index).await?;
    while let Some((level, first)) = levels.pop() {
        let (mut lows, mut last) = (Lows::new(), Some(vec![0; index.shape.key_bytes]));
        each_node(cx, index, first, |address, node, bytes| {
            audit.index_nodes += 1;
            audit.locks_left += u64::from(node.lock() != 0);
            let fits = Some(node.low()) == last.as_deref()
                && node.level() == level
                && !node.is_dead()
                && index.owns(address, node)
                && holds_its_own(node)
                && are_at_home(index, node)
                && below.as_ref().is_none_or(|below| leads_to(node, below));
            audit.nodes_wrong += u64::from(!fits);
            last = node.high().map(<[u8]>::to_vec);
            lows.insert(address.to_word(), node.low().to_vec());
            for slot in node.used().filter(|_| level == 0) {
                let at = index.shape.slot_at(0, slot);
                entries.add(&bytes[at..at + index.shape.slot_bytes(0)]);
            }
        })
        .await?;
        audit.nodes_wrong += u64::from(last.is_some());
        for &node in lows.keys() {
            compare_replicas(cx, index, Address::from_word(node), audit).await?;
        }
        below = Some(lows);
    }
    audit.index_entries += entries.count;
    audit.entries_differ += differing(cx, index, &entries).await?;
    Ok(())
}

/// Whether all keys of a node lie within its fences, and no key appears twice.
fn holds_its_own(node: Node<'_>) -> bool {
    let mut keys: Vec<&[u8]> = node.used().map(|slot| node.key(slot)).collect();
    keys.sort_unstable();
    let twice = keys.windows(2).any(|pair| pair[0] == pair[1]);
    !twice && keys.iter().all(|key| node.covers(key))
}

/// Whether every entry of a leaf lies where a look-up finds it.
fn are_at_home(index: &Index, node: Node<'_>) -> bool {
    let is_found = |slot: usize| {
        let home = index.shape.home(node.key(slot));
        (NodeShape::group_bits(home) >> slot | node.strays() >> home) & 1 != 0
    };
    node.level() > 0 || node.used().all(is_found)
}

/// Whether each separator of an inner node leads to a node that begins at that separator, and one separator equals
/// the LOW fence of the inner node.
fn leads_to(node: Node<'_>, below: &Lows) -> bool {
    let begins = |slot: usize| {
        below.get(&node.child(slot).to_word()).is_some_and(|low| low == node.key(slot))
    };
    node.used().all(begins) && node.used().any(|slot| node.key(slot) == node.low())
}

/// An order-independent sum of index entries.
#[derive(Default)]
struct Sum {
    count: u64,
    hash: u64,
}

impl Sum {
    fn add(&mut self, slot: &[u8]) {
        self.count += 1;
        let of = |sum: u64, word: &[u8; 8]| mix(sum ^ u64::from_le_bytes(*word));
        self.hash = self.hash.wrapping_add(slot.as_chunks::<8>().0.iter().fold(7, of));
    }
}

/// The number of differences between the entries that were found and the entries that the table's records should
/// have.
async fn differing(cx: &Context, index: &Index, found: &Sum) -> Result<u64, Failure> {
    let mut expected = Sum::default();
    let mut slot = vec![0; index.shape.slot_bytes(0)];
    scan(cx, index.table, |stored| {
        let key = index.key_of(stored.key, stored.full_key, stored.row.payload());
        index.fill_slot(&key, (stored.key, stored.full_key), &mut slot);
        expected.add(&slot);
    })
    .await?;
    let differ = u64::from(expected.hash != found.hash);
    Ok(expected.count.abs_diff(found.count).max(differ))
}

/// Compares the copies of a node at all members of its group. The headers must be equal except for LOCK, and all
/// slots in use must be equal.
async fn compare_replicas(
    cx: &Context,
    index: &Index,
    address: Address,
    audit: &mut Audit,
) -> Result<(), Failure> {
    let members = cx.groups.whole().members(address.group()).len();
    if members == 1 {
        return Ok(());
    }
    let mut round = Round::new();
    let first = read(cx, &mut round, index, address, 0).await?.to_vec();
    let shape = &index.shape;
    let node = Node::new(shape, &first);
    let mut parts = vec![(VERSION_AT, META_AT), (META_AT, shape.header_bytes)];
    let slot = |slot| (shape.slot_at(node.level(), slot), shape.slot_bytes(node.level()));
    parts.extend(node.used().map(slot).map(|(at, len)| (at, at + len)));
    for position in 1..members {
        let other = read(cx, &mut round, index, address, position).await?;
        let differ = parts.iter().filter(|&&(from, to)| first[from..to] != other[from..to]);
        audit.replicas_differ += differ.count() as u64;
    }
    Ok(())
}
