//! The lives that a membership service in one process keeps.
//!
//! Invariant: it is behind the service's lock. A life is a member or over, never both. There are no more entries than
//! lives, and a slot has at most [`tarn_store::ids::INCARNATIONS_MAX`] lives. A life that is over keeps one entry,
//! which says how it ended.

use super::read_leases::ReadLease;
use super::{Patience, Timestamper};
use std::collections::{BTreeMap, BTreeSet};
use tarn_fabric::address::NodeId;

/// A life that is over.
#[derive(Clone, Default, Debug)]
pub(super) struct Ended {
    pub(super) is_recovered: bool,
    /// The nodes that claimed its recovery, the latest last.
    pub(super) claimants: Vec<NodeId>,
    /// The lives on which nothing relies on its locks.
    pub(super) acknowledged: BTreeSet<NodeId>,
}

#[derive(Default, Debug)]
pub(super) struct Register {
    /// The number of lives given out, by slot.
    pub(super) given: Vec<u16>,
    pub(super) ended: BTreeMap<NodeId, Ended>,
    pub(super) members: BTreeMap<NodeId, Patience>,
    /// Members that run nothing any more.
    pub(super) retired: BTreeSet<NodeId>,
    /// The nodes that have given out timestamps, the latest last.
    pub(super) timestampers: Vec<Timestamper>,
    pub(super) read_lease: ReadLease,
    /// The node that adjusts the length of readers' leases.
    pub(super) read_lease_manager: Option<NodeId>,
}

impl Register {
    /// Members that may run transactions.
    pub(super) fn running(&self) -> impl DoubleEndedIterator<Item = NodeId> {
        self.members.keys().filter(|node| !self.retired.contains(node)).copied()
    }

    /// Lives that may still run transactions.
    pub(super) fn may_run(&self) -> Vec<NodeId> {
        let unsettled = self.ended.iter().filter(|(_, ended)| !ended.is_recovered);
        self.running().chain(unsettled.map(|(node, _)| *node)).collect()
    }
}
