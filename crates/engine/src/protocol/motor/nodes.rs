//! What of indexes is Motor's: how leaves are protected, and how a structural transaction commits.
//!
//! Invariant: a node, directory record or header has the VERSION of the T_commit under which it changed last, as
//! records have, or one more than that of a commit that was undone. So a leaf that is free, and whose VERSION is
//! not above T_start, shows what was there at T_start, if it was read after that was taken: nobody has changed
//! it since. A snapshot needs no second look at it.

use super::absorb::conflicts;
use super::switches::{On, Phase};
use super::{Motor, commit, enter};
use crate::site::Context;
use tarn_store::index::btree::scan::Visit;
use tarn_store::layout::{Version, is_seen_at};
use tarn_store::ids::{AbortReason, Failure};
use crate::steps::structure::{Rule, Step, Structure};
use crate::transaction::working_set::{LockKind, Txn};

impl Structure for Motor {
    #[inline]
    fn enter(&self, cx: &Context, step: Step) {
        let phase = match step {
            Step::Scan => Phase::Scan,
            Step::LockLeaf => Phase::LockLeaf,
            Step::Restructure => Phase::Restructure,
        };
        enter(cx, phase);
    }

    #[inline]
    fn keeps(&self, rule: Rule) -> bool {
        match rule {
            Rule::ReleaseGranted => self.on(On::ReleaseGranted),
            Rule::ProtectRanges => self.on(On::ProtectRanges),
            // The planted bugs of what protocols share are another protocol's.
            Rule::CheckFences | Rule::SiblingWithSplit => true,
        }
    }

    #[inline]
    fn shows_leaf(&self, txn: &Txn, visit: Visit) -> Result<bool, AbortReason> {
        if !self.on(On::ProtectRanges) || !self.reads_snapshot(txn) {
            return Ok(self.on(On::ProtectRanges));
        }
        match is_seen_at(visit.version, txn.stamps.start) || !self.on(On::TooOld) {
            true => Ok(false),
            false => Err(AbortReason::TooOld),
        }
    }

    /// Of a leaf it is not known which of its entries came or went, nor when.
    fn takes_leaf(&self, txn: &Txn, version: Version) -> Result<(), AbortReason> {
        conflicts(self, txn, version)
    }

    async fn commit(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        commit::commit_structure(self, cx, txn).await
    }
}

/// Directory records, headers and nodes that change get this version.
pub(super) fn stamp(txn: &mut Txn, version: Version) {
    let changes = txn.locks.iter_mut().filter(|it| it.kind == LockKind::Directory && it.writes);
    changes.for_each(|lock| lock.new_version = version);
    let leaves = txn.ordered.leaves.iter_mut().filter(|it| it.new_version != Version::NEVER);
    leaves.for_each(|leaf| leaf.new_version = version);
}
