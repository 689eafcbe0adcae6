//! The parts of a compute node's memory that other nodes look at, for the explorer of every order.
//!
//! Invariant: where nodes look into each other's memory in one step ([`Transport::Direct`]), every look and every
//! change names its part. (docs/design/0018-explorer-beside-memory.md)

use super::name::LockName;
use crate::services::{NodeServices, Transport};
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::{LOCAL_PARTS, LocalPart};
use tarn_fabric::port::Port;

/// The greatest timestamp that the node has seen.
pub(crate) const SEEN: u16 = 0;
/// The node's view of the shards.
pub(crate) const VIEW: u16 = 1;
/// Grants to other nodes, by their slots.
pub(crate) const GRANTS: std::ops::Range<u16> = 2..10;

pub(crate) fn part(node: NodeId, number: u16) -> LocalPart {
    LocalPart { node: node.slot, number }
}

/// The part of a lock, which is that of its bucket: a write grant of one lock counts for all locks of the bucket.
pub(crate) fn lock(node: NodeId, name: LockName) -> LocalPart {
    bucket(node, name.hash())
}

/// The part of all locks with this hash, and of the remembered versions of their records. The tables of explored nodes
/// have 256 buckets.
pub(crate) fn bucket(node: NodeId, hash: u64) -> LocalPart {
    let first = GRANTS.end;
    part(node, first + ((hash & 0xff) % u64::from(LOCAL_PARTS - first)) as u16)
}

/// The part of the grants to a node's transactions.
pub(crate) fn grants(owner: NodeId, to: NodeId) -> LocalPart {
    part(owner, GRANTS.start + to.slot.0 % GRANTS.len() as u16)
}

/// A node has looked whether transactions of dead lives still hold anything, and has dropped these locks.
pub(crate) fn looked_after(port: &Port, node: &NodeServices, dropped: &[LockName]) {
    // If no life is lost, there was nothing to look for.
    if node.transport() != Transport::Direct || node.membership.ended().is_empty() {
        return;
    }
    let is_lost = |life: &NodeId| !node.membership.is_member(*life);
    let lives: Vec<NodeId> = node.holders().filter(is_lost).collect();
    for number in GRANTS {
        let holds = lives.iter().any(|life| grants(node.id, *life).number == number);
        port.looked_at(part(node.id, number), u64::from(holds), !dropped.is_empty());
    }
    dropped.iter().for_each(|name| port.looked_at(lock(node.id, *name), 0, true));
}
