//! The register of incarnations of a membership service in one process.
//!
//! Invariant: the register is behind the service's lock. An incarnation is a member or has ended, never both. There
//! are no more entries than incarnations, and a slot has at most [`tarn_store::ids::INCARNATIONS_MAX`] incarnations.
//! An ended incarnation keeps one entry, which tells how it ended.

use super::read_leases::ReadLease;
use super::{Patience, Timestamper};
use std::collections::{BTreeMap, BTreeSet};
use tarn_fabric::address::NodeId;

/// An incarnation that has ended.
#[derive(Clone, Default, Debug)]
pub(super) struct Ended {
    pub(super) is_recovered: bool,
    /// The nodes that claimed the incarnation's recovery; the latest is at the end.
    pub(super) claimants: Vec<NodeId>,
    /// The incarnations that rely on none of its locks.
    pub(super) acknowledged: BTreeSet<NodeId>,
}

#[derive(Default, Debug)]
pub(super) struct Register {
    /// For each slot, the number of incarnations given out.
    pub(super) given: Vec<u16>,
    pub(super) ended: BTreeMap<NodeId, Ended>,
    pub(super) members: BTreeMap<NodeId, Patience>,
    /// The members that run nothing any more.
    pub(super) retired: BTreeSet<NodeId>,
    /// The nodes that have given out timestamps; the latest is at the end.
    pub(super) timestampers: Vec<Timestamper>,
    pub(super) read_lease: ReadLease,
    /// The node that adjusts the length of readers' leases.
    pub(super) read_lease_manager: Option<NodeId>,
}

impl Register {
    /// The members that may run transactions.
    pub(super) fn running(&self) -> impl DoubleEndedIterator<Item = NodeId> {
        self.members.keys().filter(|node| !self.retired.contains(node)).copied()
    }

    /// The incarnations that may still run transactions.
    pub(super) fn may_run(&self) -> Vec<NodeId> {
        let unsettled = self.ended.iter().filter(|(_, ended)| !ended.is_recovered);
        self.running().chain(unsettled.map(|(node, _)| *node)).collect()
    }
}
