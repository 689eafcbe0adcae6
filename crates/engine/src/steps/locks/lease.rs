//! Readers' locks that are leases in LOCK words: no reader gives one back, and writers wait them out.
//!
//! Invariants: a lease says until when by true time it holds, of which every clock knows an interval; a reader counts on it as long as the
//! latest moment that it may be now is before that, a writer replaces it once the earliest is behind. Where clocks know nothing of each
//! other the word says whose lease it is: then nobody shares another's, and a writer waits out a whole lease from when
//! it has seen the word, which began before. A transaction has its window open from before the first lease was asked for, and
//! commits by leases alone only while the first to end still holds.
//!
//! Wei, Shi, Chen, Chen, Chen, "Fast In-memory Transaction Processing using RDMA and HTM", SOSP 2015, section 4; see docs/protocols/drtm.md.

use super::Locks;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::access::{Access, LockOutcome, LockState, Which, validate_those};
use crate::steps::node_locks::{HELD, ask_lease};
use crate::transaction::working_set::{Entry, HeldAs, Leases, Lock, Progress, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::clock::Nanos;
use tarn_store::ids::{Failure, Mode, OwnerTag};
use tarn_store::layout::{LOCK_AT, LockMode, LockWord};

/// So often a lock is asked for again whose word has changed meanwhile: then others were faster each time.
const AGAIN_MAX: u8 = 4;

/// Leases in LOCK words.
pub struct ByLease;

impl Locks for ByLease {
    /// A lease keeps no reader off. A writer meets it when it asks for the lock.
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

/// Opens the window of a transaction that is about to ask for its first lease. Who has read without leases goes on so.
async fn open(cx: &Context, txn: &mut Txn) {
    let asks = |entry: &Entry| entry.mode == Mode::Read && entry.progress != Progress::Done;
    // Also behind what is not fetched: a record is asked for again where it stands.
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

/// The word of a lease that begins now in place of `before`, and its end, where clocks tell. Who asks for it may not know whether the one before
/// it has ended, and others may know that it has not, and count on it: it ends no earlier.
fn new_lease(cx: &Context, txn: &Txn, before: LockWord) -> (u64, Option<Nanos>) {
    let length = txn.leases.reads_since.map_or(Nanos(0), |(_, word)| word.lease());
    let now = cx.port.clock();
    if now.latest == Nanos(u64::MAX) {
        return (LockWord::lease(txn.tag.word()).word(), None);
    }
    let end = (now.earliest + length).max(Nanos(before.as_lease().unwrap_or(0)));
    (LockWord::lease(end.0).word(), Some(end))
}

/// When a lease ends, if it is one that others can count on too, and it has not ended.
fn end_of_valid(cx: &Context, found: LockWord) -> Option<Nanos> {
    let end = Nanos(found.as_lease()?);
    (cx.port.clock().latest < end).then_some(end)
}

/// How long a writer has to wait until a lease has ended.
fn remaining(cx: &Context, lease: u64) -> Nanos {
    let now = cx.port.clock();
    match now.latest {
        // It began before its word was seen.
        Nanos(u64::MAX) => cx.node.read_lease().wait(),
        _ => Nanos((lease + 1).saturating_sub(now.earliest.0)),
    }
}

/// Asks for a lease on a record.
fn share(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
    let (lease, end) = new_lease(cx, txn, LockWord::FREE);
    note_end(&mut txn.leases, end);
    ask_lease(cx, txn, address, lease)
}

/// The transaction counts on a lease that ends then.
fn note_end(leases: &mut Leases, end: Option<Nanos>) {
    leases.first_end = [leases.first_end, end].into_iter().flatten().min();
}

/// Asks once more: for a lease in place of one that has run out, for the lock in place of a lease. What this round asks for
/// already it does not ask for twice: the second answer would be that the first was granted.
fn ask_again(cx: &Context, txn: &mut Txn, index: u32, mode: Mode) {
    let met = LockWord::from_word(txn.locks[index as usize].met);
    let (lease, end) = new_lease(cx, txn, met);
    let Txn { locks, round, tag, leases, assumes_locks, .. } = txn;
    let lock = &mut locks[index as usize];
    if lock.held_as == HeldAs::Lease && mode != Mode::Read {
        // What stands there is waited out like another's: others may count on it.
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

/// What became of a lock; see [`crate::steps::access::Access::taken`].
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

/// Whether a lease stands where this transaction wants to write.
fn is_kept_off(lock: &Lock) -> bool {
    let meets_lease = LockWord::from_word(lock.met).as_lease().is_some();
    meets_lease && lock.held_as == HeldAs::Exclusive && lock.verb != HELD
}

/// Whether there is a lease to wait for.
fn has_to_wait(txn: &Txn) -> bool {
    txn.locks.iter().any(is_kept_off)
}

/// Waits until all leases have ended where this transaction wants to write.
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

/// Looks at whatever is not known to be as it was read: nothing that a lease protects which still holds now, when all
/// locks are held.
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

/// Whether all leases that this transaction counts on still hold.
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
