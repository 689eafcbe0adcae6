//! What a membership service in one process keeps of lives.
//!
//! Invariant: behind the service's lock; a life is a member or over, never both. There are no more entries than lives,
//! of which a slot has [`tarn_store::ids::INCARNATIONS_MAX`] at the most: what a life leaves behind is one entry that says how it ended.

use super::read_leases::ReadLease;
use super::{Patience, Timestamper};
use std::collections::{BTreeMap, BTreeSet};
use tarn_fabric::address::NodeId;

/// A life that is over.
#[derive(Clone, Default, Debug)]
pub(super) struct Ended {
    pub(super) is_recovered: bool,
    /// Who claimed its recovery, the last one last.
    pub(super) claimants: Vec<NodeId>,
    /// Of whom nothing rests on its locks.
    pub(super) acknowledged: BTreeSet<NodeId>,
}

#[derive(Default, Debug)]
pub(super) struct Register {
    /// Lives given out, by slot.
    pub(super) given: Vec<u16>,
    pub(super) ended: BTreeMap<NodeId, Ended>,
    pub(super) members: BTreeMap<NodeId, Patience>,
    /// Members that run nothing any more.
    pub(super) retired: BTreeSet<NodeId>,
    /// Who gave out timestamps, the last one last.
    pub(super) timestampers: Vec<Timestamper>,
    pub(super) read_lease: ReadLease,
    /// Who adjusts its length.
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
