//! The register of incarnations of a membership service in one process.
//!
//! Invariant: the service's lock protects the register. An incarnation is a member or has ended, never both. The
//! register has no more entries than incarnations. A slot has at most [`tarn_store::ids::INCARNATIONS_MAX`]
//! incarnations. The register keeps one entry for an ended incarnation, which tells how the incarnation ended.

use super::read_leases::ReadLease;
use super::{Patience, Timestamper};
use std::collections::{BTreeMap, BTreeSet};
use tarn_fabric::address::NodeId;

/// An incarnation that has ended.
#[derive(Clone, Default, Debug)]
pub(super) struct Ended {
    pub(super) is_recovered: bool,
    /// The nodes that claimed the incarnation's recovery. The latest claimant is the last element.
    pub(super) claimants: Vec<NodeId>,
    /// The incarnations that rely on none of the locks that this ended incarnation granted.
    pub(super) acknowledged: BTreeSet<NodeId>,
}

#[derive(Default, Debug)]
pub(super) struct Register {
    /// For each slot, the number of incarnations that the service has given out.
    pub(super) given: Vec<u16>,
    pub(super) ended: BTreeMap<NodeId, Ended>,
    pub(super) members: BTreeMap<NodeId, Patience>,
    /// The members that run no transaction any more.
    pub(super) retired: BTreeSet<NodeId>,
    /// The nodes that have given out timestamps. The latest node is the last element.
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
