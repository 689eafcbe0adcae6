//! For the explorer of every order: the parts of a compute node's state that other nodes read directly.
//!
//! Invariant: under [`Transport::Direct`], nodes read each other's memory in one step. Under this transport, every
//! read and every change reports the part that it accesses. (docs/design/0018-explorer-beside-memory.md)

use super::name::LockName;
use crate::services::{NodeServices, Transport};
use tarn_fabric::address::NodeId;
use tarn_fabric::backend::{LOCAL_PARTS, LocalPart};
use tarn_fabric::port::Port;

/// The part of the node's state for the greatest timestamp that the node has seen.
pub(crate) const SEEN: u16 = 0;
/// The part of the node's state for its view of the shards.
pub(crate) const VIEW: u16 = 1;
/// The parts of the node's state for its grants to other nodes. The slot of the other node selects the part.
pub(crate) const GRANTS: std::ops::Range<u16> = 2..10;

pub(crate) fn part(node: NodeId, number: u16) -> LocalPart {
    LocalPart { node: node.slot, number }
}

/// The part of the node's state for a lock. All locks of a bucket have the same part, because a write grant of one
/// lock counts for all locks of the bucket.
pub(crate) fn lock(node: NodeId, name: LockName) -> LocalPart {
    bucket(node, name.hash())
}

/// The part of the node's state for all locks with this hash, and for the cached version tables of their records. The
/// lock tables of explored nodes have 256 buckets.
pub(crate) fn bucket(node: NodeId, hash: u64) -> LocalPart {
    let first = GRANTS.end;
    part(node, first + ((hash & 0xff) % u64::from(LOCAL_PARTS - first)) as u16)
}

/// The part of the state of `owner` for its grants to the transactions of the node `to`.
pub(crate) fn grants(owner: NodeId, to: NodeId) -> LocalPart {
    part(owner, GRANTS.start + to.slot.0 % GRANTS.len() as u16)
}

/// Reports to the explorer that a node has checked whether transactions of dead incarnations still hold locks, and
/// has dropped these locks.
pub(crate) fn looked_after(port: &Port, node: &NodeServices, dropped: &[LockName]) {
    // If no incarnation has ended, the node had nothing to check.
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
