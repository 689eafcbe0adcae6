//! LOTUS's part of ordered indexes: the locks of nodes, the protection of leaves, and the WRITEs of nodes in a commit.
//!
//! Invariant: nodes have one version, counted in timestamps. Their locks lie in compute nodes like all others. LOCK in
//! the node is a mark, which the lock's holder writes before any byte of the node changes, and leaves until all of it
//! is decided. So a node that is free, with a VERSION not above T_start, shows its state at T_start, if it was
//! read after T_start was taken: a transaction with a T_commit up to T_start had marked it before. A resolver that undoes a change
//! counts VERSION on, and sees to it that every later T_commit is above that: no VERSION comes twice.

use super::switches::{enter, phase};
use crate::services::lock::name::{LockMode, LockName};
use crate::site::Context;
use crate::steps::node_locks::HELD;
use crate::transaction::working_set::{HeldAs, Lock, LockKind, Txn};
use tarn_fabric::address::{Address, GroupId};
use tarn_store::ids::{AbortReason, Failure, Timestamp};
use tarn_store::layout::{LOCK_AT, VERSION_AT, Version, version_at};
use tarn_store::placement::shard_map::shard_of_address;

/// LOCK and VERSION.
pub(super) const HEAD_BYTES: usize = 16;
const _: () = assert!(LOCK_AT == 0 && VERSION_AT == 8);

/// Notes a lock, whose node is read after it; returns its index.
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

/// A node's lock. Its address is of one index alone, so that the table need not be told.
pub(super) fn name(address: Address) -> LockName {
    LockName::node(0, address)
}

/// Whether a node may have changed after `start`.
pub(super) fn is_newer(version: Version, start: Timestamp) -> bool {
    version.counter() > version_at(start).counter()
}

/// Locks for reading the leaves that scans have shown since the last time, and looks at each again, under its lock:
/// the transaction works on the leaves that were shown.
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

/// The nodes that are changed.
pub(super) fn changed(txn: &Txn) -> impl Iterator<Item = &Lock> {
    txn.locks.iter().filter(|lock| lock.writes)
}

/// Groups in which a node changes.
pub(super) fn groups(txn: &Txn) -> impl Iterator<Item = GroupId> {
    changed(txn).map(|lock| lock.address.group())
}

/// Nodes that change get T_commit. Until it is taken the history has a version of them that no transaction can see.
pub(super) fn stamp(txn: &mut Txn, commit: Option<Timestamp>) {
    let unseen = || Version::from_word(1 << 62 | (txn.tag.word() & ((1 << 62) - 1)));
    let version = commit.map_or_else(unseen, version_at);
    txn.locks.iter_mut().filter(|it| it.writes).for_each(|lock| lock.new_version = version);
    let leaves = txn.ordered.leaves.iter_mut().filter(|it| it.new_version != Version::NEVER);
    leaves.for_each(|leaf| leaf.new_version = version);
}

/// VERSION of a node once a change was undone that had found it at `former`. Those of commits are even.
pub(super) fn undone_version(former: u64) -> u64 {
    (former + 1) | 1
}

/// C1: adds the marks of the group's nodes at one replica. They come before any byte of them.
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

/// C3 and C4: adds the WRITEs that take the marks off, with T_commit, at the replicas that `choose` names.
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
