//! LOTUS's use of ordered indexes: the locks of tree nodes, the protection of leaves, and the WRITEs of nodes in a
//! commit.
//!
//! Invariant: a tree node has one version, whose number is derived from a timestamp. The locks of tree nodes lie in
//! compute nodes, like all other locks. The LOCK word in a tree node is only a mark. The holder of a tree node's lock
//! writes the mark before any byte of the node changes, and removes the mark after the whole change is decided.
//! Assume that a transaction reads a node after it has taken T_start, that the node has no mark, and that its VERSION
//! is not above T_start. Such a node shows its state at T_start, because a transaction with a T_commit up to T_start
//! had marked the node before this READ. A resolver that undoes a change of a node raises the node's VERSION, and
//! makes every later T_commit higher than that VERSION. Because of this rule for undone changes, no VERSION of a tree
//! node occurs twice.

use super::switches::{enter, phase};
use crate::services::lock::name::{LockMode, LockName};
use crate::site::Context;
use crate::steps::node_locks::HELD;
use crate::transaction::lock::{HeldAs, Lock, LockKind};
use crate::transaction::working_set::Txn;
use tarn_fabric::address::{Address, GroupId};
use tarn_store::ids::{AbortReason, Failure, Timestamp};
use tarn_store::layout::{LOCK_AT, VERSION_AT, Version, version_at};
use tarn_store::placement::shard_map::shard_of_address;

/// The number of bytes of LOCK and VERSION.
pub(super) const HEAD_BYTES: usize = 16;
const _: () = assert!(LOCK_AT == 0 && VERSION_AT == 8);

/// Notes a lock whose tree node the transaction reads after the grant. Returns the index of this lock in the
/// transaction's list of locks.
pub(super) fn note_lock(txn: &mut Txn, address: Address, kind: LockKind) -> u32 {
    let index = txn.locks.len() as u32;
    txn.note_lock(address);
    txn.locks.push(Lock {
        granted: true,
        verb: HELD,
        ..Lock::unasked(address, kind, HeldAs::Exclusive)
    });
    index
}

/// Returns the name of a tree node's lock. A node's address belongs to only one index, so the name does not contain
/// the table.
pub(super) fn name(address: Address) -> LockName {
    LockName::node(0, address)
}

/// Returns whether a tree node may have changed after the timestamp `start`.
pub(super) fn is_newer(version: Version, start: Timestamp) -> bool {
    version.counter() > version_at(start).counter()
}

/// Takes locks for reading on the leaves that scans have read since the last call. Reads each of these leaves again
/// under its lock, and checks that the leaf has not changed.
pub(super) async fn protect(cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let first = txn.checks.iter().position(|check| !check.covered).unwrap_or(txn.checks.len());
    if first == txn.checks.len() {
        return Ok(());
    }
    enter(cx, phase::PROTECT_LEAF);
    cx.advance_closing();
    txn.round.begin();
    let mut heads = Vec::with_capacity(txn.checks.len() - first);
    for check in &txn.checks[first..] {
        let address = check.address;
        txn.held.ask(cx, name(address), shard_of_address(address), LockMode::Read);
        heads.push(txn.round.read(cx.groups.primary(address), HEAD_BYTES));
    }
    txn.held.collect(cx, txn.tag).await?;
    cx.port.execute(&mut txn.round).await?;
    for (check, head) in txn.checks[first..].iter_mut().zip(heads) {
        if *txn.round.array::<2>(head) != [0, check.version.word()] {
            return Err(AbortReason::VersionChanged.into());
        }
        check.covered = true;
    }
    txn.round.begin();
    Ok(())
}

/// Returns the locks of the tree nodes that the transaction changes.
pub(super) fn changed(txn: &Txn) -> impl Iterator<Item = &Lock> {
    txn.locks.iter().filter(|lock| lock.writes)
}

/// Returns the groups that contain a changed tree node.
pub(super) fn groups(txn: &Txn) -> impl Iterator<Item = GroupId> {
    changed(txn).map(|lock| lock.address.group())
}

/// Sets T_commit as the version of the changed tree nodes. Before the transaction takes T_commit, the history
/// contains a version of these nodes that no transaction can see.
pub(super) fn stamp(txn: &mut Txn, commit: Option<Timestamp>) {
    let unseen = || Version::from_word(1 << 62 | (txn.tag.word() & ((1 << 62) - 1)));
    let version = commit.map_or_else(unseen, version_at);
    txn.locks.iter_mut().filter(|it| it.writes).for_each(|lock| lock.new_version = version);
    let leaves = txn.ordered.leaves.iter_mut().filter(|it| it.new_version != Version::NEVER);
    leaves.for_each(|leaf| leaf.new_version = version);
}

/// Returns the VERSION that a tree node has after a change was undone; `former` is the VERSION before the change.
/// VERSIONs that come from commits are even, so the VERSION of an undone change is odd.
pub(super) fn undone_version(former: u64) -> u64 {
    (former + 1) | 1
}

/// Phase C1: adds the WRITEs that mark the changed tree nodes of a group at one replica. The marks are written before
/// any other byte of these tree nodes.
pub(super) fn add_marks(cx: &Context, txn: &mut Txn, group: GroupId, position: usize) {
    let Txn { round, locks, tag, .. } = txn;
    let mut of_group =
        locks.iter().filter(|it| it.writes && it.address.group() == group).peekable();
    if of_group.peek().is_none() {
        return;
    }
    let mark = round.reserve(8);
    round.set_word(mark, tag.word());
    for lock in of_group {
        round.write(cx.groups.whole().replica(lock.address, position), mark, 8);
    }
}

/// Phases C3 and C4: adds the WRITEs that remove the marks and set T_commit, at the replicas whose position `choose`
/// accepts.
pub(super) fn add_free(cx: &Context, txn: &mut Txn, choose: impl Fn(usize) -> bool) {
    let (Txn { round, locks, .. }, groups) = (txn, cx.groups.whole());
    for lock in locks.iter().filter(|lock| lock.writes) {
        let head = round.reserve(HEAD_BYTES);
        *round.array_mut::<2>(head) = [0, lock.new_version.word()];
        for position in (0..groups.replicas(lock.address.group())).filter(|&at| choose(at)) {
            round.write(groups.replica(lock.address, position), head, HEAD_BYTES);
        }
    }
}
