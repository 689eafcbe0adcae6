//! Locks that are words of memory nodes. CAS takes them (for a ticket: FAA). CAS gives them back, or a WRITE
//! behind the data (for a ticket: FAA).
//!
//! Invariant: a LOCK word is 0 or its holder's tag, with a mark if the lock lets readers pass. Tags are unique, so a
//! transaction can give back only locks that it was granted: a CAS of its tag does not change a word that holds
//! another's. Which locks a transaction takes, and when, is its protocol's decision.

use super::Described;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::transaction::working_set::{HeldAs, Lock, LockKind, NO_LOCK, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::{Round, VerbIndex};
use tarn_store::ids::OwnerTag;
use tarn_store::layout::{LOCK_AT, LockMode, LockWord, Ticket};

/// The verb of a lock whose outcome has already been absorbed.
pub(crate) const HELD: VerbIndex = VerbIndex(u32::MAX);

/// Takes every lock that was asked for as granted, since a round failed. To release a lock that was not granted does
/// nothing: tags are unique, and locks are released by CAS.
pub(crate) fn suspect_all_locks(txn: &mut Txn) {
    for lock in &mut txn.locks {
        lock.granted = match lock.held_as {
            HeldAs::Lease => false,
            // Its number is not known: the ticket is lost.
            HeldAs::Ticket(_) => lock.granted,
            HeldAs::Exclusive | HeldAs::Intent | HeldAs::Either => true,
        };
    }
}

/// Asks for an exclusive lock that the transaction does not hold.
#[inline(always)]
pub(crate) fn ask(cx: &Context, txn: &mut Txn, address: Address, kind: LockKind) -> u32 {
    ask_as(cx, txn, address, (kind, HeldAs::Exclusive))
}

/// Asks for a lock in a mode, like [`ask`].
#[inline(always)]
pub(crate) fn ask_as(
    cx: &Context,
    txn: &mut Txn,
    address: Address,
    (kind, held_as): (LockKind, HeldAs),
) -> u32 {
    let new = word(txn.tag, held_as);
    // A lock that is only assumed stands in no memory, and is never raised.
    let held_as = if txn.assumes_locks { HeldAs::Exclusive } else { held_as };
    ask_for(cx, txn, address, (kind, held_as, new))
}

/// Asks for a lock: the CAS puts `new` where 0 was.
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

/// Asks for the readers' lock on a record: the CAS puts `lease` where 0 was. It is never given back, but runs out.
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

/// The LOCK word of a transaction with this tag; for a lock that is being raised, the word after the raise.
#[inline(always)]
fn word(tag: OwnerTag, held_as: HeldAs) -> u64 {
    let mode = if held_as == HeldAs::Intent { LockMode::Intent } else { LockMode::Exclusive };
    LockWord::held(tag, mode).word()
}

/// Adds the verbs that free a lock of this transaction: a CAS for each word that may stand there.
#[inline]
fn add_unlock(cx: &Context, round: &mut Round, tag: OwnerTag, lock: &Lock) {
    let target = cx.groups.primary(lock.address).plus(LOCK_AT);
    if let HeldAs::Ticket(ticket) = lock.held_as {
        round.faa(target, ticket.goes());
        return;
    }
    if lock.held_as == HeldAs::Either {
        // This CAS is sent before the other. If the lock was raised meanwhile, the other CAS finds it.
        round.cas(target, word(tag, HeldAs::Intent), 0);
    }
    round.cas(target, word(tag, lock.held_as), 0);
}

/// Adds a CAS for every lock that lets readers pass: it raises the lock to an exclusive one.
pub(crate) fn add_raises(cx: &Context, txn: &mut Txn) {
    let Txn { round, locks, tag, .. } = txn;
    for lock in locks.iter_mut().filter(|lock| lock.held_as == HeldAs::Intent) {
        let target = cx.groups.primary(lock.address).plus(LOCK_AT);
        let (from, to) = (word(*tag, HeldAs::Intent), word(*tag, HeldAs::Exclusive));
        (lock.verb, lock.held_as) = (round.cas(target, from, to), HeldAs::Either);
    }
}

/// Absorbs the outcomes of [`add_raises`] once that round is over. Returns whether all locks were raised. A lock that
/// was not raised was taken away: recovery took this node for dead.
pub(crate) fn note_raises(txn: &mut Txn) -> bool {
    let Txn { round, locks, .. } = txn;
    let mut all = true;
    for lock in locks.iter_mut().filter(|lock| lock.held_as == HeldAs::Either) {
        all &= round.swapped(lock.verb);
        (lock.verb, lock.held_as) = (HELD, HeldAs::Exclusive);
    }
    all
}

/// Notes which of the locks asked for in the last round were granted. With `or_all` (a planted bug) all of them count
/// as granted.
#[inline]
pub(crate) fn note_grants(txn: &mut Txn, or_all: bool) {
    let asked = |lock: &&mut Lock| lock.verb != HELD && lock.held_as.is_by_cas();
    for lock in txn.locks.iter_mut().filter(asked) {
        lock.granted = (txn.round.swapped(lock.verb) || or_all) && lock.held_as != HeldAs::Lease;
    }
}

/// Returns whether a lock was granted, in the last round or before. If not, notes its holder.
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

/// Adds the release of locks behind the data, by WRITE, which only the holder uses. If this WRITE lands late, so do
/// the data before it. A node that took the transaction for dead had first revoked its owner's access.
pub(crate) fn add_release(cx: &Context, round: &mut Round, locks: &[Lock]) {
    let free = round.reserve(8);
    round.set_word(free, 0);
    for lock in locks.iter().filter(|lock| lock.granted) {
        round.write(cx.groups.primary(lock.address).plus(LOCK_AT), free, 8);
    }
}

/// Posts the round that releases locks. If one node does not answer, the locks on other nodes are still released, one
/// by one.
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

/// Removes the readers' locks from the locks of a transaction that is going to write, since readers' locks are not
/// logged. Hands each to `put`.
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

/// Moves the readers' locks to `txn.shares`. They come back to `txn.locks` later, and are released with the others.
pub(crate) fn put_shares_away(txn: &mut Txn) {
    let mut shares = std::mem::take(&mut txn.shares);
    put_away(txn, |lock| shares.push(lock));
    txn.shares = shares;
}

/// Rolls back a transaction that has written nothing: gives up locks and blocks. Waits for nothing, so that it can
/// also run when a transaction's future is dropped.
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
    // A node that does not answer has lost the lock, or keeps it for recovery.
    post_release(cx, txn);
    system.enter(cx, Phase::Release);
}

/// Waits until the locks of all earlier transactions are released: only then is the log area used again. A planted
/// variant does not wait. A node that failed to release its locks has lost them.
#[inline]
pub(crate) async fn settle_unlocks(cx: &Context, txn: &mut Txn, waits: bool) {
    // If this future is dropped, the releases that have not settled are still in the list.
    while let Some(&unlocking) = txn.unlocking.last() {
        if waits {
            let _ = cx.port.settle(unlocking).await;
        }
        txn.unlocking.pop();
    }
}

/// Returns whether all that the transaction writes or locks has one copy, and all on one node. Then its locks can be
/// released in the data's batch, after the data: there is no replica whose acknowledgement it would have to await.
pub(crate) fn is_on_one_node(cx: &Context, txn: &Txn) -> bool {
    let [group] = txn.groups[..] else { return false };
    cx.groups.replicas(group) == 1 && txn.locks.iter().all(|lock| lock.address.group() == group)
}
