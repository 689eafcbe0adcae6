//! Readers' locks that are leases in LOCK words. No reader releases a lease, and a writer waits until the lease ends.
//!
//! Invariants: a lease contains the moment, in true time, until which it is valid. Every node's clock knows an
//! interval that contains the true time. A reader relies on a lease as long as the latest moment of its clock's
//! interval is before the lease's end. A writer replaces a lease once the earliest moment of its clock's interval is
//! after the lease's end.
//!
//! If the nodes' clocks are not synchronized, the LOCK word names the transaction that owns the lease instead of the
//! lease's end. With unsynchronized clocks, no reader shares another reader's lease. With unsynchronized clocks, a
//! writer that has seen a lease waits for the full length of a lease. The full length of a lease is long enough,
//! because the lease began before the writer saw it.
//!
//! A transaction opens its window of time before it requests its first lease. A transaction commits by leases alone
//! only while the first of its leases to end is still valid.
//!
//! Wei, Shi, Chen, Chen, Chen, "Fast In-memory Transaction Processing using RDMA and HTM", SOSP 2015, section 4; see
//! docs/protocols/drtm.md.

use super::Locks;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::access::{Access, LockOutcome, LockState, Which, validate_those};
use crate::steps::node_locks::{HELD, ask_lease};
use crate::transaction::lock::{HeldAs, Lock};
use crate::transaction::working_set::{Entry, Leases, Progress, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::{Failure, Mode, OwnerTag};
use tarn_store::layout::{LOCK_AT, LockMode, LockWord};

/// The maximum number of times that a transaction requests a lock again because the LOCK word has changed since its
/// last request. Each change of the LOCK word means that another transaction was faster than this transaction.
const AGAIN_MAX: u8 = 4;

/// The kind of locks in which readers hold leases in LOCK words.
pub struct ByLease;

impl Locks for ByLease {
    /// A lease of another transaction does not stop a reader. A writer finds another transaction's lease when it
    /// requests the lock.
    #[inline(always)]
    fn judge<A: Access>(access: &A, lock: u64, me: OwnerTag, _: Mode) -> LockState {
        match LockWord::from_word(lock).held_against(me).is_some()
            && access.keeps(Rule::RefuseLocked)
        {
            true => LockState::InTheWay,
            false => LockState::Free,
        }
    }

    #[inline(always)]
    fn locks_reads(leases: &Leases) -> bool {
        leases.reads_since.is_some()
    }

    #[inline(always)]
    fn locks_together<A: Access>(access: &A) -> bool {
        access.keeps(Rule::LockTogether)
    }

    fn share_record(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        share(cx, txn, address)
    }

    fn lock_again(cx: &Context, txn: &mut Txn, lock: u32, mode: Mode) {
        ask_again(cx, txn, lock, mode);
    }

    fn taken<A: Access>(
        access: &A,
        cx: &Context,
        txn: &mut Txn,
        (lock, _): (u32, Mode),
    ) -> LockOutcome {
        taken(access, cx, txn, lock)
    }

    fn has_to_wait(txn: &Txn) -> bool {
        has_to_wait(txn)
    }

    async fn wait<A: Access>(access: &A, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        wait(access, cx, txn).await;
        Ok(())
    }

    async fn open(cx: &Context, txn: &mut Txn) {
        open(cx, txn).await;
    }
}

/// Opens the window of time of a transaction that is about to request its first lease. A transaction that has already
/// read records without leases continues without leases.
async fn open(cx: &Context, txn: &mut Txn) {
    let asks = |entry: &Entry| entry.mode == Mode::Read && entry.progress != Progress::Done;
    // The check also covers the entries after those that this fetch reads, because this fetch may request the record
    // of a later entry again.
    let has_read = txn.entries.iter().any(|entry| entry.watched);
    let has_window = txn.leases.reads_since.is_some();
    if has_window || has_read || !txn.entries[txn.fetched..].iter().any(asks) {
        return;
    }
    let word = cx.node.read_lease();
    if word.read_ns() > 0 {
        txn.leases.reads_since = Some((cx.port.open_window().await, word));
    }
}

/// Returns the word of a new lease that replaces the LOCK word `before`. If the nodes' clocks are synchronized, also
/// returns the end of the new lease. The new lease ends no earlier than the lease in `before`. Other readers may
/// still rely on the old lease, because this reader cannot be sure that the old lease has ended.
fn new_lease(cx: &Context, txn: &Txn, before: LockWord) -> (u64, Option<Nanos>) {
    let length = txn.leases.reads_since.map_or(Nanos(0), |(_, word)| word.lease());
    let now = cx.port.clock();
    if now.latest == Nanos(u64::MAX) {
        return (LockWord::lease(txn.tag.word()).word(), None);
    }
    let end = (now.earliest + length).max(Nanos(before.as_lease().unwrap_or(0)));
    (LockWord::lease(end.0).word(), Some(end))
}

/// Returns the end of the lease in the LOCK word `found`, if this transaction can rely on that lease, too.
fn end_of_valid(cx: &Context, found: LockWord) -> Option<Nanos> {
    let end = Nanos(found.as_lease()?);
    (cx.port.clock().latest < end).then_some(end)
}

/// Returns the time that a writer has to wait until a lease has ended.
fn remaining(cx: &Context, lease: u64) -> Nanos {
    let now = cx.port.clock();
    match now.latest {
        // The lease began before this writer saw the LOCK word, so a wait for the length of a whole lease is long
        // enough.
        Nanos(u64::MAX) => cx.node.read_lease().wait(),
        _ => Nanos((lease + 1).saturating_sub(now.earliest.0)),
    }
}

/// Requests a readers' lease on a record.
fn share(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
    let (lease, end) = new_lease(cx, txn, LockWord::FREE);
    note_end(&mut txn.leases, end);
    ask_lease(cx, txn, address, lease)
}

/// Notes that the transaction relies on a lease that ends at `end`.
fn note_end(leases: &mut Leases, end: Option<Nanos>) {
    leases.first_end = [leases.first_end, end].into_iter().flatten().min();
}

/// Requests a lock again: either a lease that replaces an ended lease, or the exclusive lock that replaces a lease.
/// This function does not request the same lock twice in one round. The lock that the first request took would refuse
/// a second request, and this refusal would hide the grant.
fn ask_again(cx: &Context, txn: &mut Txn, index: u32, mode: Mode) {
    let met = LockWord::from_word(txn.locks[index as usize].met);
    let (lease, end) = new_lease(cx, txn, met);
    let Txn { locks, round, tag, leases, assumes_locks, .. } = txn;
    let lock = &mut locks[index as usize];
    if lock.held_as == HeldAs::Lease && mode != Mode::Read {
        // The writer waits even if the lease in the LOCK word was its own, because other readers may also rely on
        // that lease.
        (lock.held_as, lock.met, lock.granted) = (HeldAs::Exclusive, 0, *assumes_locks);
    } else if !lock.is_due {
        return;
    }
    lock.is_due = false;
    if *assumes_locks {
        return;
    }
    let new = match lock.held_as {
        HeldAs::Lease => {
            note_end(leases, end);
            lease
        }
        _ => LockWord::held(*tag, LockMode::Exclusive).word(),
    };
    let target = cx.groups.primary(lock.address).plus(LOCK_AT);
    lock.verb = round.cas(target, lock.met, new);
    lock.asked_again += 1;
}

/// Returns the outcome of the request for a lock; see [`crate::steps::access::Access::taken`].
fn taken(access: &impl Access, cx: &Context, txn: &mut Txn, index: u32) -> LockOutcome {
    let Txn { locks, round, leases, .. } = txn;
    let lock = &mut locks[index as usize];
    if lock.verb == HELD {
        return LockOutcome::Held;
    }
    if round.swapped(lock.verb) {
        lock.verb = HELD;
        return LockOutcome::Held;
    }
    let found = LockWord::from_word(round.found(lock.verb));
    if lock.held_as == HeldAs::Lease
        && access.keeps(Rule::ShareLeases)
        && let Some(end) = end_of_valid(cx, found)
    {
        lock.verb = HELD;
        note_end(leases, Some(end));
        return LockOutcome::Held;
    }
    if found.mode().is_some() || lock.asked_again == AGAIN_MAX {
        cx.note_blocking_lock(lock.address, found.word());
        return LockOutcome::Refused;
    }
    (lock.met, lock.is_due) = (found.word(), true);
    LockOutcome::NotYet
}

/// Returns whether a lease keeps this transaction from taking an exclusive lock.
fn is_kept_off(lock: &Lock) -> bool {
    let meets_lease = LockWord::from_word(lock.met).as_lease().is_some();
    meets_lease && lock.held_as == HeldAs::Exclusive && lock.verb != HELD
}

/// Returns whether the transaction has to wait for the end of a lease.
fn has_to_wait(txn: &Txn) -> bool {
    txn.locks.iter().any(is_kept_off)
}

/// Waits until all leases on records that this transaction wants to write have ended.
async fn wait(access: &impl Access, cx: &Context, txn: &Txn) {
    let ends = txn.locks.iter().filter(|lock| is_kept_off(lock));
    let ends = ends.filter_map(|lock| LockWord::from_word(lock.met).as_lease());
    let longest = ends.map(|lease| remaining(cx, lease)).max().unwrap_or(Nanos(0));
    if longest == Nanos(0) || !access.keeps(Rule::WaitOutLeases) {
        return;
    }
    access.enter(cx, Phase::WaitOut);
    let since = cx.port.begin_wait().await;
    cx.port.end_wait(since, longest).await;
}

/// Validates the reads whose records may have changed, after the transaction has got all its locks. A read of a
/// record needs no validation if the lease on that record is still valid.
pub(crate) async fn confirm(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    let which = match hold(access, cx, txn).await || !access.keeps(Rule::ConfirmLeases) {
        true => Which::Apart,
        false => Which::All,
    };
    validate_those(access, cx, txn, which).await
}

/// Returns whether all leases on which this transaction relies are still valid.
async fn hold(access: &impl Access, cx: &Context, txn: &mut Txn) -> bool {
    let Some((window, word)) = txn.leases.reads_since.take() else { return false };
    let is_shorter = cx.port.close_window(window, word.lease()).await.is_shorter;
    let before_end = |end| cx.port.clock().latest < end;
    let hold = is_shorter && txn.leases.first_end.is_none_or(before_end);
    if hold {
        access.enter(cx, Phase::InLease);
    }
    hold
}
