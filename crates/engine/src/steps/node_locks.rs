//! Locks that are words in memory nodes. A transaction takes such a lock by a CAS, or takes a ticket by an FAA. A
//! CAS, or a WRITE that follows the data, releases a lock that was taken by CAS; an FAA releases a ticket.
//!
//! Invariant: a LOCK word that is taken by CAS contains 0 or its holder's tag; tickets and leases have words of their
//! own ([`super::locks`]). A LOCK word contains a mark if its holder lets readers pass. Tags are unique, so a
//! transaction can release only locks that it was granted. A CAS that expects the transaction's own tag does not
//! change a word that contains another transaction's tag. Each protocol decides which locks a transaction takes, and
//! when.

use super::Described;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::transaction::lock::{HeldAs, Lock, LockKind};
use crate::transaction::working_set::{NO_LOCK, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::{Round, VerbIndex};
use tarn_store::ids::OwnerTag;
use tarn_store::layout::{LOCK_AT, LockMode, LockWord, Ticket};

/// The value of a lock's verb index after the transaction has already handled the outcome of that verb.
pub(crate) const HELD: VerbIndex = VerbIndex(u32::MAX);

/// After a failed round, treats every lock that the transaction requested as granted. The release of a lock that was
/// not granted does no harm, because tags are unique and the releasing CAS expects the transaction's tag.
pub(crate) fn suspect_all_locks(txn: &mut Txn) {
    for lock in &mut txn.locks {
        lock.granted = match lock.held_as {
            HeldAs::Lease => false,
            // The transaction does not know the number of its ticket, so the ticket is lost.
            HeldAs::Ticket(_) => lock.granted,
            // The lock service knows whether it has granted the request, and ends it in either case.
            HeldAs::ServiceShared | HeldAs::ServiceExclusive => lock.granted,
            HeldAs::Exclusive | HeldAs::Intent | HeldAs::Either => true,
        };
    }
}

/// Requests an exclusive lock that the transaction does not hold yet.
#[inline(always)]
pub(crate) fn ask(cx: &Context, txn: &mut Txn, address: Address, kind: LockKind) -> u32 {
    ask_as(cx, txn, address, (kind, HeldAs::Exclusive))
}

/// Requests a lock in a given mode, in the same way as [`ask`].
#[inline(always)]
pub(crate) fn ask_as(
    cx: &Context,
    txn: &mut Txn,
    address: Address,
    (kind, held_as): (LockKind, HeldAs),
) -> u32 {
    let new = word(txn.tag, held_as);
    // If the transaction only assumes its locks, it writes no LOCK word in memory, and raises no lock to exclusive
    // later.
    let held_as = if txn.assumes_locks { HeldAs::Exclusive } else { held_as };
    ask_for(cx, txn, address, (kind, held_as, new))
}

/// Requests a lock by a CAS that replaces the value 0 of the LOCK word by `new`.
#[inline(always)]
fn ask_for(
    cx: &Context,
    txn: &mut Txn,
    address: Address,
    (kind, held_as, new): (LockKind, HeldAs, u64),
) -> u32 {
    let target = cx.groups.primary(address);
    let verb = match txn.assumes_locks {
        false => txn.round.cas(target.plus(LOCK_AT), 0, new),
        true => HELD,
    };
    let index = txn.locks.len() as u32;
    txn.note_lock(address);
    txn.locks.push(Lock {
        granted: txn.assumes_locks && held_as != HeldAs::Lease,
        verb,
        ..Lock::unasked(address, kind, held_as)
    });
    index
}

/// Requests the readers' lock on a record by a CAS that replaces 0 by the lease word `lease`. No reader releases a
/// lease; the lease ends at its end time.
pub(crate) fn ask_lease(cx: &Context, txn: &mut Txn, address: Address, lease: u64) -> u32 {
    ask_for(cx, txn, address, (LockKind::Record, HeldAs::Lease, lease))
}

/// Takes a ticket for the lock on a record.
pub(crate) fn ask_in_turn(cx: &Context, txn: &mut Txn, address: Address, ticket: Ticket) -> u32 {
    let index = txn.locks.len() as u32;
    let target = cx.groups.primary(address).plus(LOCK_AT);
    let verb = txn.round.faa(target, ticket.comes());
    txn.note_lock(address);
    txn.locks
        .push(Lock { verb, ..Lock::unasked(address, LockKind::Record, HeldAs::Ticket(ticket)) });
    index
}

/// Returns the LOCK word of a lock that the transaction with this tag holds. For a lock that is being raised to
/// exclusive, returns the LOCK word after the raise.
#[inline(always)]
fn word(tag: OwnerTag, held_as: HeldAs) -> u64 {
    let mode = if held_as == HeldAs::Intent { LockMode::Intent } else { LockMode::Exclusive };
    LockWord::held(tag, mode).word()
}

/// Adds the verbs that release a lock of this transaction: one CAS for each value that the LOCK word may have.
#[inline]
fn add_unlock(cx: &Context, round: &mut Round, tag: OwnerTag, lock: &Lock) {
    let target = cx.groups.primary(lock.address).plus(LOCK_AT);
    if let HeldAs::Ticket(ticket) = lock.held_as {
        round.faa(target, ticket.goes());
        return;
    }
    if lock.held_as == HeldAs::Either {
        // This CAS for the intent lock is sent before the CAS for the exclusive lock. If the lock is raised to
        // exclusive between the two CASes, the second CAS releases the lock.
        round.cas(target, word(tag, HeldAs::Intent), 0);
    }
    round.cas(target, word(tag, lock.held_as), 0);
}

/// Adds a CAS for every lock of the transaction that lets readers pass. Each CAS raises its lock to an exclusive
/// lock.
pub(crate) fn add_raises(cx: &Context, txn: &mut Txn) {
    let Txn { round, locks, tag, .. } = txn;
    for lock in locks.iter_mut().filter(|lock| lock.held_as == HeldAs::Intent) {
        let target = cx.groups.primary(lock.address).plus(LOCK_AT);
        let (from, to) = (word(*tag, HeldAs::Intent), word(*tag, HeldAs::Exclusive));
        (lock.verb, lock.held_as) = (round.cas(target, from, to), HeldAs::Either);
    }
}

/// Notes the outcomes of the CASes of [`add_raises`] after their round has ended. Returns whether the CASes raised
/// all locks to exclusive. If a CAS could not raise a lock, recovery has assumed that this node is dead, and has
/// taken the lock away.
pub(crate) fn note_raises(txn: &mut Txn) -> bool {
    let Txn { round, locks, .. } = txn;
    let mut all = true;
    for lock in locks.iter_mut().filter(|lock| lock.held_as == HeldAs::Either) {
        all &= round.swapped(lock.verb);
        (lock.verb, lock.held_as) = (HELD, HeldAs::Exclusive);
    }
    all
}

/// Notes which of the locks that the last round requested were granted. If `or_all` is true (a planted bug), all
/// requested locks count as granted.
#[inline]
pub(crate) fn note_grants(txn: &mut Txn, or_all: bool) {
    let asked = |lock: &&mut Lock| lock.verb != HELD && lock.held_as.is_by_cas();
    for lock in txn.locks.iter_mut().filter(asked) {
        lock.granted = (txn.round.swapped(lock.verb) || or_all) && lock.held_as != HeldAs::Lease;
    }
}

/// Returns whether a lock was granted, in the last round or in an earlier round. If the lock was not granted, notes
/// the transaction that holds the lock.
#[inline]
pub(crate) fn granted(cx: &Context, txn: &mut Txn, lock: u32) -> bool {
    let lock = &mut txn.locks[lock as usize];
    let granted = lock.verb == HELD || txn.round.swapped(lock.verb);
    if granted {
        lock.verb = HELD;
    } else {
        cx.note_blocking_lock(lock.address, txn.round.found(lock.verb));
    }
    granted
}

/// Adds WRITEs that release the granted locks, and that follow the WRITEs of the data. Only the holder of a lock may
/// release the lock by a WRITE. If the WRITE that releases a lock lands late, the data before it land late, too. A
/// node that assumes that this transaction's node is dead first revokes that node's access to memory, so a late WRITE
/// has no effect.
pub(crate) fn add_release(cx: &Context, round: &mut Round, locks: &[Lock]) {
    let free = round.reserve(8);
    round.set_word(free, 0);
    for lock in locks.iter().filter(|lock| lock.granted) {
        round.write(cx.groups.primary(lock.address).plus(LOCK_AT), free, 8);
    }
}

/// Posts the round that releases the transaction's locks. If the round cannot be posted because a node does not
/// answer, the function sends a separate round for each lock. So the function still releases the locks on the other
/// nodes.
pub(crate) fn post_release(cx: &Context, txn: &mut Txn) {
    let posted = cx.port.post_detached(&mut txn.round);
    let one_by_one = posted.is_err() && txn.locks.len() > 1;
    txn.unlocking.extend(posted);
    while let Some(lock) = txn.locks.pop().filter(|_| one_by_one) {
        txn.round.begin();
        add_unlock(cx, &mut txn.round, txn.tag, &lock);
        let _ = cx.port.post_detached(&mut txn.round);
    }
    txn.locks.clear();
}

pub(crate) fn add_unlocks(cx: &Context, txn: &mut Txn) {
    let Txn { round, locks, tag, .. } = txn;
    for lock in locks.iter().filter(|lock| lock.granted) {
        add_unlock(cx, round, *tag, lock);
    }
}

/// Removes the readers' locks from the list of locks of a transaction that is going to write, because readers' locks
/// are not logged. Calls `put` with each readers' lock that the function removes.
pub(crate) fn put_away(txn: &mut Txn, mut put: impl FnMut(Lock)) {
    let Txn { locks, entries, .. } = txn;
    let is_shared = |lock: &&Lock| lock.held_as.is_shared();
    for entry in entries.iter_mut() {
        for index in [&mut entry.lock, &mut entry.directory_lock] {
            if *index != NO_LOCK {
                *index -= locks[..*index as usize].iter().filter(is_shared).count() as u32;
            }
        }
    }
    locks.retain(|lock| {
        let keeps = !lock.held_as.is_shared();
        if !keeps {
            put(*lock);
        }
        keeps
    });
}

/// Moves the readers' locks from `txn.locks` to `txn.shares`. Later these readers' locks are moved back to
/// `txn.locks`, and are released with the other locks.
pub(crate) fn put_shares_away(txn: &mut Txn) {
    let mut shares = std::mem::take(&mut txn.shares);
    put_away(txn, |lock| shares.push(lock));
    txn.shares = shares;
}

/// Rolls back a transaction that has written nothing: releases the transaction's locks and the memory that it has
/// allocated. This function does not wait, so it can also run when a transaction's future is dropped.
pub(crate) fn give_up(system: &impl Described, cx: &Context, txn: &mut Txn) {
    txn.locks.append(&mut txn.shares);
    while let Some(block) = txn.allocated.pop() {
        cx.take_back(block);
    }
    let none = !txn.locks.iter().any(|lock| lock.granted);
    if none || !system.keeps(Rule::ReleaseOnAbort) {
        return;
    }
    txn.round.begin();
    if system.keeps(Rule::ReleaseGranted) {
        add_unlocks(cx, txn);
    } else {
        let zero = txn.round.reserve(8);
        txn.round.set_word(zero, 0);
        for lock in &txn.locks {
            txn.round.write(cx.groups.primary(lock.address), zero, 8);
        }
    }
    // A node that does not answer has lost the lock, or keeps the lock until recovery releases it.
    post_release(cx, txn);
    system.enter(cx, Phase::Release);
}

/// Waits until the locks of all earlier transactions of this coordinator are released. Only after these releases may
/// the next transaction use the log area again. If `waits` is false (a planted bug), the function does not wait for
/// these releases. If a memory node failed to release its locks, it has lost these locks.
#[inline]
pub(crate) async fn settle_unlocks(cx: &Context, txn: &mut Txn, waits: bool) {
    // A release leaves the list only after it has ended, so a dropped future leaves the other releases in the list.
    while let Some(&unlocking) = txn.unlocking.last() {
        if waits {
            let _ = cx.port.settle(unlocking).await;
        }
        txn.unlocking.pop();
    }
}

/// Returns whether all memory that the transaction writes or locks has only one replica and lies on one node. If all
/// this memory lies on one node, the batch that writes the data can also release the locks, after the data. No other
/// replica has to acknowledge the data before the locks are released.
pub(crate) fn is_on_one_node(cx: &Context, txn: &Txn) -> bool {
    let [group] = txn.groups[..] else { return false };
    cx.groups.replicas(group) == 1 && txn.locks.iter().all(|lock| lock.address.group() == group)
}
