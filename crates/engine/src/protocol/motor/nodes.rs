//! Motor's use of ordered and hash indexes: the protection of leaves, and the commit of structural transactions.
//!
//! Invariant: the VERSION of a node, directory record or header is the T_commit of the transaction that changed it
//! last, as for records. After the undo of a commit, the VERSION is higher by 1 than the T_commit of the undone
//! commit. Assume that a snapshot reads a leaf after it has taken T_start, that the leaf is not locked, and that its
//! VERSION is not above T_start. Such a leaf shows the index entries at T_start, because it has not changed after
//! T_start. So the snapshot need not validate such a leaf.

use super::absorb::conflicts;
use super::switches::on;
use super::{Motor, commit};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::steps::structure::Structure;
use crate::transaction::lock::LockKind;
use crate::transaction::working_set::Txn;
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

    /// A leaf does not show which of its index entries were added or removed, nor when.
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

/// Sets this version for the directory records, headers and nodes that the transaction changes.
pub(super) fn stamp(txn: &mut Txn, version: Version) {
    let changes = txn.locks.iter_mut().filter(|it| it.kind == LockKind::Directory && it.writes);
    changes.for_each(|lock| lock.new_version = version);
    let leaves = txn.ordered.leaves.iter_mut().filter(|it| it.new_version != Version::NEVER);
    leaves.for_each(|leaf| leaf.new_version = version);
}
