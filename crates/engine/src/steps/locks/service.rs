//! Locks that a service beside memory grants: shared ones for reads, exclusive ones for writes. LOCK words of records
//! stay 0.
//!
//! Invariants: a transaction asks for all locks of a round before it sends the round, so that each READ comes
//! after the grant. A transaction that waits longer than its patience aborts; so deadlocks end. Transactions whose tries
//! have failed often run one after the other, so one of them commits. Two records
//! whose addresses have the same number in the service share one lock, and a transaction requests it once. A
//! reader that becomes a writer gives its shared lock back first: everything that it has read under that lock
//! is compared again under the exclusive one. The log describes the records of exclusive locks, with the versions
//! that were read under them; so the exclusive request belongs to the record for which it is made, and to no other
//! record of the same number. A record that an insert has found is locked before it is validated, because no
//! LOCK word shows its writer. Its caller may see the record's bytes before that.

use super::Locks;
use crate::cluster::rules::Phase;
use crate::requests::lock_service::{PATIENCE, PATIENT, name_of, named};
use crate::site::Context;
use crate::steps::access::{Access, LockOutcome};
use crate::steps::node_locks::HELD;
use crate::transaction::lock::{HeldAs, Lock, LockKind};
use crate::transaction::working_set::{Entry, Leases, NO_LOCK, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::mix;
use tarn_locks::client::Outcome;
use tarn_locks::value::Mode as Held;
use tarn_store::ids::{AbortReason, Failure, Mode};

/// A transaction with this many tries before it takes its turn.
const TRIES_BEFORE_TURN: u32 = 4;
/// Stands for the record whose lock is the turn. No record lies here. A record whose address has the same number in the
/// service shares its lock.
const TURN: Address = Address::NULL;

/// The progress of a transaction's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// All are granted.
    Granted,
    /// Some are under way. None is known to wait for a holder.
    UnderWay,
    /// Some wait for a holder.
    Queued,
}

/// Stands for the name of a request that could not be made.
const REFUSED: u64 = u64::MAX;

/// The kind of locks that a service grants.
pub struct ByService;

fn held_as(mode: Mode) -> HeldAs {
    if mode == Mode::Read { HeldAs::ServiceShared } else { HeldAs::ServiceExclusive }
}

fn mode_of(held_as: HeldAs) -> Held {
    if held_as == HeldAs::ServiceShared { Held::Shared } else { Held::Exclusive }
}

/// Whether the transaction waits for this lock.
fn is_due(lock: &Lock) -> bool {
    lock.held_as.is_by_service() && !lock.granted
}

/// The lock whose request counts for the number of `address`.
fn requester<'t>(cx: &Context, txn: &'t mut Txn, address: Address) -> Option<&'t mut Lock> {
    let number = cx.lock_of(address);
    let Txn { locks, shares, .. } = txn;
    locks.iter_mut().chain(shares).find(|lock| {
        lock.held_as.is_by_service() && lock.met != 0 && cx.lock_of(lock.address) == number
    })
}

/// Requests a lock, unless a request of this transaction already counts for it. Returns the name of the request to
/// record with the lock, and whether it is granted already.
fn request(cx: &Context, txn: &mut Txn, address: Address, wanted: HeldAs) -> (u64, bool) {
    let number = cx.lock_of(address);
    let ask = |mode: Held| cx.ask_lock(number, mode).map_or(REFUSED, name_of);
    let Some(known) = requester(cx, txn, address) else {
        return (ask(mode_of(wanted)), false);
    };
    if known.held_as == HeldAs::ServiceExclusive || wanted == HeldAs::ServiceShared {
        return (0, known.granted);
    }
    // The known lock stays shared. It may belong to another record of this number, or to a slot from which its record
    // has moved, and its version may be older than the exclusive grant. The log must not describe such a record.
    cx.end_lock(named(known.met), number);
    (known.met, known.granted) = (0, false);
    let exclusive = ask(Held::Exclusive);
    // Two readers that both become writers wait for each other. The next try asks for the exclusive lock at once.
    let upgraded = u64::from(number.0);
    if !txn.held.not_upgraded.contains(&upgraded) {
        txn.held.not_upgraded.push(upgraded);
    }
    let is_its = |at: Address| cx.lock_of(at) == number;
    let Txn { locks, shares, .. } = txn;
    for lock in locks.iter_mut().chain(shares).filter(|lock| lock.held_as.is_by_service()) {
        lock.granted &= !is_its(lock.address);
    }
    for entry in txn.entries.iter_mut().filter(|entry| is_its(entry.address)) {
        entry.marked = true;
    }
    (exclusive, false)
}

fn ask(cx: &Context, txn: &mut Txn, address: Address, wanted: HeldAs) -> u32 {
    let (met, granted) = request(cx, txn, address, wanted);
    let index = txn.locks.len() as u32;
    txn.note_lock(address);
    let unasked = Lock::unasked(address, LockKind::Record, wanted);
    txn.locks.push(Lock { verb: HELD, met, granted, ..unasked });
    index
}

/// Notes which requests are granted.
fn note(cx: &Context, txn: &mut Txn) -> Result<Progress, AbortReason> {
    let Txn { locks, shares, .. } = txn;
    let mut progress = Progress::Granted;
    let mut granted = Vec::new();
    for lock in locks.iter_mut().chain(shares.iter_mut()).filter(|lock| is_due(lock)) {
        let number = cx.lock_of(lock.address);
        if lock.met == 0 {
            continue;
        }
        match cx.lock_outcome(named(lock.met), number) {
            Some(Outcome::Holds(_)) => {
                lock.granted = true;
                granted.push(number);
            }
            Some(Outcome::Queued) => progress = Progress::Queued,
            Some(Outcome::Asked) if progress == Progress::Granted => progress = Progress::UnderWay,
            Some(Outcome::Asked) => {}
            None => return Err(AbortReason::LockRefused),
        }
    }
    for lock in locks.iter_mut().chain(shares).filter(|lock| is_due(lock) && lock.met == 0) {
        lock.granted = granted.contains(&cx.lock_of(lock.address));
    }
    Ok(progress)
}

/// Returns the times that this try of a transaction waits for holders of locks, and for answers. Each is longer than the
/// time after which lost mail comes again at present.
///
/// Of many transactions that hold each other's locks, one commits only if it waits longer than all others together. So
/// only the transaction that has the turn is patient. A try that waits only for answers is always patient: lost packets
/// take time to come again.
fn patience(cx: &Context, txn: &Txn) -> (Nanos, Nanos) {
    let present = cx.locks_resend_now_after().0;
    let unit = cx.locks_resend_after().0.saturating_mul(PATIENCE);
    let unit = unit.max(present.saturating_mul(2)).max(1);
    let short = unit.saturating_add(mix(txn.tag.word()) % unit);
    let long = short.saturating_mul(PATIENT);
    let has_turn = txn.shares.iter().any(|lock| lock.address == TURN);
    (Nanos(if has_turn { long } else { short }), Nanos(long))
}

/// Waits for the turn, before the transaction requests any other lock: a lock of the service that transactions hold whose
/// tries have failed often. So of these transactions one runs at a time, in the order of the lock's queue, and the
/// others wait without a lock that it needs. A try that does not get its turn in time goes on without it.
async fn take_turn(cx: &Context, txn: &mut Txn) {
    let number = cx.lock_of(TURN);
    let Some(request) = cx.ask_lock(number, Held::Exclusive) else { return };
    let unasked = Lock::unasked(TURN, LockKind::Record, HeldAs::ServiceExclusive);
    txn.shares.push(Lock { verb: HELD, met: name_of(request), ..unasked });
    let (since, (_, patience)) = (cx.port.now(), patience(cx, txn));
    loop {
        cx.serve_locks();
        match cx.lock_outcome(request, number) {
            Some(Outcome::Holds(_)) => {
                txn.shares.iter_mut().for_each(|lock| lock.granted = true);
                return;
            }
            Some(_) if !cx.locks_at_once() && cx.port.now() - since <= patience => {
                cx.port.yield_now().await;
            }
            _ => return release_all(cx, txn),
        }
    }
}

/// Refuses to wait for a lock that this thread cannot get.
fn check_requests(cx: &Context, txn: &Txn) -> Result<(), Failure> {
    let refused = txn.locks.iter().chain(&txn.shares).find(|it| is_due(it) && it.met == REFUSED);
    refused.map_or(Ok(()), |lock| Err(cx.no_such_lock(cx.lock_of(lock.address))))
}

/// Waits until all requests are granted.
async fn wait(access: &impl Access, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if !txn.locks.iter().chain(&txn.shares).any(is_due) {
        return Ok(());
    }
    check_requests(cx, txn)?;
    cx.serve_locks();
    let mut progress = note(cx, txn)?;
    if progress == Progress::Granted {
        return Ok(());
    }
    access.enter(cx, Phase::WaitTurn);
    let since = cx.port.now();
    let mut waits = patience(cx, txn);
    loop {
        let of =
            |waits: (Nanos, Nanos)| if progress == Progress::Queued { waits.0 } else { waits.1 };
        if cx.port.now() - since > of(waits) {
            // Mail may have become rarer meanwhile.
            waits = patience(cx, txn);
        }
        if cx.locks_at_once() || cx.port.now() - since > of(waits) {
            let reads = |lock: &Lock| is_due(lock) && lock.held_as == HeldAs::ServiceShared;
            let only_reads = txn.locks.iter().chain(&txn.shares).filter(|it| is_due(it)).all(reads);
            let reason =
                if only_reads { AbortReason::ReadLocked } else { AbortReason::LockRefused };
            return Err(reason.into());
        }
        cx.port.yield_now().await;
        cx.serve_locks();
        progress = note(cx, txn)?;
        if progress == Progress::Granted {
            return Ok(());
        }
    }
}

/// Whether the entry was read without a lock, as an insert that has found its record is.
fn is_bare(txn: &Txn, entry: &Entry) -> bool {
    entry.mode == Mode::Insert
        && entry.found
        && entry.watched
        && entry.lock == NO_LOCK
        && !txn.locks.iter().chain(&txn.shares).any(|lock| lock.address == entry.address)
}

impl Locks for ByService {
    const GIVES_SHARES_BACK: bool = true;
    const ARE_APART: bool = true;

    #[inline]
    async fn open(cx: &Context, txn: &mut Txn) {
        let has_locks = !txn.locks.is_empty() || !txn.shares.is_empty();
        if txn.tries_before >= TRIES_BEFORE_TURN && !has_locks {
            Box::pin(take_turn(cx, txn)).await;
        }
    }

    fn lock_record(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        ask(cx, txn, address, HeldAs::ServiceExclusive)
    }

    #[inline(always)]
    fn locks_reads(_: &Leases) -> bool {
        true
    }

    fn share_record(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        let becomes_writer = !txn.held.not_upgraded.is_empty()
            && txn.held.not_upgraded.contains(&u64::from(cx.lock_of(address).0));
        match becomes_writer {
            true => ask(cx, txn, address, HeldAs::ServiceExclusive),
            false => ask(cx, txn, address, HeldAs::ServiceShared),
        }
    }

    fn lock_again(cx: &Context, txn: &mut Txn, index: u32, mode: Mode) {
        let Lock { address, held_as: before, .. } = txn.locks[index as usize];
        let wanted = held_as(mode);
        if !before.is_by_service() || before == HeldAs::ServiceExclusive || before == wanted {
            return;
        }
        let (met, granted) = request(cx, txn, address, wanted);
        let lock = &mut txn.locks[index as usize];
        (lock.held_as, lock.granted, lock.met) = (wanted, granted, met);
    }

    fn taken<A: Access>(_: &A, _: &Context, txn: &mut Txn, lock: (u32, Mode)) -> LockOutcome {
        if txn.locks[lock.0 as usize].granted { LockOutcome::Held } else { LockOutcome::NotYet }
    }

    async fn obtain<A: Access>(access: &A, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        wait(access, cx, txn).await
    }

    fn has_to_cover(txn: &Txn) -> bool {
        txn.entries.iter().any(|entry| is_bare(txn, entry))
    }

    async fn cover<A: Access>(access: &A, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        for index in 0..txn.entries.len() {
            let entry = txn.entries[index];
            if !is_bare(txn, &entry) {
                continue;
            }
            let (met, granted) = request(cx, txn, entry.address, HeldAs::ServiceShared);
            let unasked = Lock::unasked(entry.address, LockKind::Record, HeldAs::ServiceShared);
            txn.shares.push(Lock { verb: HELD, met, granted, ..unasked });
        }
        wait(access, cx, txn).await
    }
}

/// Ends all requests of a transaction to the lock service, whether they are granted or wait. Locks that are words in
/// memory stay.
pub(crate) fn release_all(cx: &Context, txn: &mut Txn) {
    let mut has_ended = false;
    let mut end = |lock: &Lock| {
        if lock.met != 0 {
            cx.end_lock(named(lock.met), cx.lock_of(lock.address));
            has_ended = true;
        }
    };
    txn.shares.drain(..).filter(|lock| lock.held_as.is_by_service()).for_each(|lock| end(&lock));
    txn.locks.retain(|lock| {
        if lock.held_as.is_by_service() {
            end(lock);
        }
        !lock.held_as.is_by_service()
    });
    if has_ended {
        cx.serve_locks();
    }
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
