//! Motor's own part in indexes: how leaves are protected, and how a structural transaction commits.
//!
//! Invariant: a node, directory record or header has the VERSION of the T_commit under which it changed last, as
//! records have. After an undone commit it has one more than that commit's. Take a leaf that was read after T_start
//! was taken, is free, and has a VERSION not above T_start. It shows the entries of T_start, since it has not changed
//! after that. A snapshot need not validate it.

use super::absorb::conflicts;
use super::switches::on;
use super::{Motor, commit};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::steps::structure::Structure;
use crate::transaction::working_set::{LockKind, Txn};
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::index::btree::scan::Visit;
use tarn_store::layout::{Version, is_seen_at};

impl Structure for Motor {
    #[inline]
    fn shows_leaf(&self, txn: &Txn, visit: Visit) -> Result<bool, AbortReason> {
        if !self.keeps(Rule::ProtectRanges) || !self.reads_snapshot(txn) {
            return Ok(self.keeps(Rule::ProtectRanges));
        }
        match is_seen_at(visit.version, txn.stamps.start) || !self.switches.is_on(on::TOO_OLD) {
            true => Ok(false),
            false => Err(AbortReason::TooOld),
        }
    }

    /// A leaf does not tell which of its entries came or went, nor when.
    fn takes_leaf(&self, txn: &Txn, version: Version) -> Result<(), AbortReason> {
        conflicts(self, txn, version)
    }

    #[inline]
    fn commit(&self, cx: &Context, txn: &mut Txn) -> impl Future<Output = Result<(), Failure>> {
        commit::commit(self, cx, txn)
    }

    async fn commit_structure(&self, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        commit::commit_structure(self, cx, txn).await
    }
}

/// Gives this version to directory records, headers and nodes that change.
pub(super) fn stamp(txn: &mut Txn, version: Version) {
    let changes = txn.locks.iter_mut().filter(|it| it.kind == LockKind::Directory && it.writes);
    changes.for_each(|lock| lock.new_version = version);
    let leaves = txn.ordered.leaves.iter_mut().filter(|it| it.new_version != Version::NEVER);
    leaves.for_each(|leaf| leaf.new_version = version);
}
