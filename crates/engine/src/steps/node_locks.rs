//! Locks that are words of memory nodes: taken by CAS, given back by CAS or behind the data.
//!
//! Invariant: a lock is 0 or its holder's tag, with a mark if it lets readers pass, tags are unique, and nobody gives back what was not granted to
//! him: a CAS of another's tag changes nothing. Which locks a transaction takes, and when, is its protocol's.

use super::Described;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::transaction::working_set::{HeldAs, Lock, LockKind, NO_LOCK, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::round::{Round, VerbIndex};
use tarn_store::ids::OwnerTag;
use tarn_store::layout::{LOCK_AT, LockMode, LockWord, Ticket};

/// The verb of a lock whose outcome has been taken in.
pub(crate) const HELD: VerbIndex = VerbIndex(u32::MAX);

/// A round failed: any lock that was asked for may have been granted. Releasing a lock that was
/// not granted does nothing: tags are unique and locks are released by CAS.
pub(crate) fn suspect_all_locks(txn: &mut Txn) {
    for lock in &mut txn.locks {
        lock.granted = match lock.held_as {
            HeldAs::Lease => false,
            // Nobody knows which number it has: it is lost.
            HeldAs::Ticket(_) => lock.granted,
            HeldAs::Exclusive | HeldAs::Intent | HeldAs::Either => true,
        };
    }
}

/// Asks for a lock that the transaction does not hold.
#[inline(always)]
pub(crate) fn ask(cx: &Context, txn: &mut Txn, address: Address, kind: LockKind) -> u32 {
    ask_as(cx, txn, address, (kind, HeldAs::Exclusive))
}

/// As [`ask`], in a mode.
#[inline(always)]
pub(crate) fn ask_as(
    cx: &Context,
    txn: &mut Txn,
    address: Address,
    (kind, held_as): (LockKind, HeldAs),
) -> u32 {
    let new = word(txn.tag, held_as);
    // What is only assumed stands nowhere, and is never raised.
    let held_as = if txn.assumes_locks { HeldAs::Exclusive } else { held_as };
    ask_for(cx, txn, address, (kind, held_as, new))
}

/// Asks for a lock as which `new` is to stand in place of nothing.
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

/// Asks for the readers' lock on a record: `lease` in place of nothing. Nobody gives it back.
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

/// What stands in a LOCK word of `tag`'s; of one that is being raised, once it is.
#[inline(always)]
fn word(tag: OwnerTag, held_as: HeldAs) -> u64 {
    let mode = if held_as == HeldAs::Intent { LockMode::Intent } else { LockMode::Exclusive };
    LockWord::held(tag, mode).word()
}

/// Adds the verbs that make a lock nobody's which this transaction holds: a CAS for each word that may stand there.
#[inline]
fn add_unlock(cx: &Context, round: &mut Round, tag: OwnerTag, lock: &Lock) {
    let target = cx.groups.primary(lock.address).plus(LOCK_AT);
    if let HeldAs::Ticket(ticket) = lock.held_as {
        round.faa(target, ticket.goes());
        return;
    }
    if lock.held_as == HeldAs::Either {
        // Sent before the other: if it was raised meanwhile, the next finds it.
        round.cas(target, word(tag, HeldAs::Intent), 0);
    }
    round.cas(target, word(tag, lock.held_as), 0);
}

/// Adds the raising of every lock that lets readers pass.
pub(crate) fn add_raises(cx: &Context, txn: &mut Txn) {
    let Txn { round, locks, tag, .. } = txn;
    for lock in locks.iter_mut().filter(|lock| lock.held_as == HeldAs::Intent) {
        let target = cx.groups.primary(lock.address).plus(LOCK_AT);
        let (from, to) = (word(*tag, HeldAs::Intent), word(*tag, HeldAs::Exclusive));
        (lock.verb, lock.held_as) = (round.cas(target, from, to), HeldAs::Either);
    }
}

/// Takes in what [`add_raises`] has asked for, once that round is over; whether all of them are raised. One that is not
/// was taken away: this node was taken for dead.
pub(crate) fn note_raises(txn: &mut Txn) -> bool {
    let Txn { round, locks, .. } = txn;
    let mut all = true;
    for lock in locks.iter_mut().filter(|lock| lock.held_as == HeldAs::Either) {
        all &= round.swapped(lock.verb);
        (lock.verb, lock.held_as) = (HELD, HeldAs::Exclusive);
    }
    all
}

/// Notes which of the locks asked for in the last round were granted; `or_all`, as it must not be: all of them.
#[inline]
pub(crate) fn note_grants(txn: &mut Txn, or_all: bool) {
    let asked = |lock: &&mut Lock| lock.verb != HELD && lock.held_as.is_by_cas();
    for lock in txn.locks.iter_mut().filter(asked) {
        lock.granted = (txn.round.swapped(lock.verb) || or_all) && lock.held_as != HeldAs::Lease;
    }
}

/// Whether a lock was granted, in the last round or before. Reports who has it, if not.
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

/// Releases behind the data, by WRITE, which only the holder does: if it comes late, so do the data
/// before it, and whoever took the transaction for dead had fenced its owner first.
pub(crate) fn add_release(cx: &Context, round: &mut Round, locks: &[Lock]) {
    let free = round.reserve(8);
    round.set_word(free, 0);
    for lock in locks.iter().filter(|lock| lock.granted) {
        round.write(cx.groups.primary(lock.address).plus(LOCK_AT), free, 8);
    }
}

/// Posts the round that releases locks; a node that does not answer must not keep others locked.
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

/// Takes readers' locks away from the others of a transaction that is going to write: nothing of them is logged.
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

/// Takes readers' locks away likewise, until `txn.locks` takes them back: they are released with the others.
pub(crate) fn put_shares_away(txn: &mut Txn) {
    let mut shares = std::mem::take(&mut txn.shares);
    put_away(txn, |lock| shares.push(lock));
    txn.shares = shares;
}

/// Rolls back a transaction that has written nothing: gives up locks and blocks. Does not wait for anything, so that it can also run when
/// a transaction's future is dropped.
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

/// The log area is used again only when the locks of all earlier transactions are gone, unless the variant does not
/// wait. A node that failed to release them has lost them.
#[inline]
pub(crate) async fn settle_unlocks(cx: &Context, txn: &mut Txn, waits: bool) {
    // Should this future be dropped, what has not settled is still to be waited for.
    while let Some(&unlocking) = txn.unlocking.last() {
        if waits {
            let _ = cx.port.settle(unlocking).await;
        }
        txn.unlocking.pop();
    }
}

/// Whether everything that the transaction writes or locks has one copy, all on one node: then its
/// locks can be released in the data's batch, after the data. No replica's acknowledgement is
/// awaited because there is none.
pub(crate) fn is_on_one_node(cx: &Context, txn: &Txn) -> bool {
    let [group] = txn.groups[..] else { return false };
    cx.groups.replicas(group) == 1 && txn.locks.iter().all(|lock| lock.address.group() == group)
}
