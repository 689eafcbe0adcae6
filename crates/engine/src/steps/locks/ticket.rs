//! Locks with tickets: a transaction takes a ticket by FAA and waits until the ticket is served.
//!
//! Invariants: each ticket of a lock word is served in its order, even if the transaction of the ticket aborts. A
//! transaction that aborts while it waits releases all locks that it holds. After the release of its locks, the
//! transaction waits until each of its other tickets is served, and immediately lets the next ticket be served. So no
//! transaction waits for a lock for ever. A transaction that holds a lock while it waits for another lock aborts
//! after [`PATIENCE`]. A transaction that holds no lock blocks no other transaction.
//!
//! One FAA upgrades a reader's lock to a writer's lock: the FAA releases the reader's ticket and takes a writer's
//! ticket. After the upgrade, the transaction compares its earlier read of the record with the record.
//!
//! Yoon, Chowdhury, Mozafari, "Distributed Lock Management with RDMA: Decentralization without Starvation", SIGMOD
//! 2018; see docs/protocols/dslr.md.

use super::Locks;
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::access::{Access, LockOutcome, LockState};
use crate::steps::node_locks::{HELD, add_unlocks, ask_in_turn};
use crate::transaction::lock::{HeldAs, Lock, LockKind};
use crate::transaction::working_set::{Leases, Txn};
use tarn_fabric::address::Address;
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::mix;
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag};
use tarn_store::layout::{COUNT_MAX, LOCK_AT, LockWord, Ticket, TicketWord};

/// A waiting transaction assumes a deadlock after one to four times [`PATIENCE`]. Transactions wait for different
/// times, so that not all transactions of one deadlock abort. With each try, a transaction waits twice as long as
/// before, up to [`TRIES_MAX`] times. A later try must wait longer, because the aborted transactions before it pass
/// their tickets on one after the other.
const PATIENCE: Nanos = Nanos(50_000);
const TRIES_MAX: u32 = 8;
/// The first and the longest pause between two reads of a lock word.
const PAUSE: Nanos = Nanos(100);
const PAUSE_MAX: Nanos = Nanos(3_200);

/// The greatest count in a lock word of variants without [`Rule::WideCounts`], which therefore set lock words back to
/// 0 very often. The limit is greater than the number of records of a transaction. With a lower limit, each try could
/// meet another lock word whose counts have reached the limit.
const COUNT_MAX_NARROW: u16 = 32;

/// Values of [`Lock::asked_again`]: for a reader's lock that was upgraded, and for a ticket in a lock word at the
/// limit of its counts.
const UPGRADED: u8 = 1;
const OVER: u8 = 2;

/// The kind of locks in which readers and writers take tickets in LOCK words.
pub struct ByTicket;

impl Locks for ByTicket {
    const GIVES_SHARES_BACK: bool = true;

    /// The LOCK word does not name the transaction that holds the record, so a transaction that wants the record
    /// always takes a ticket. A read before the lock only shows the place of the record.
    #[inline(always)]
    fn judge<A: Access>(_: &A, _: u64, _: OwnerTag, _: Mode) -> LockState {
        LockState::Free
    }

    #[inline(always)]
    fn judge_again<A: Access>(
        access: &A,
        kind: LockKind,
        (lock, me, _): (u64, OwnerTag, Mode),
    ) -> LockState {
        if !access.keeps(Rule::RefuseLocked) {
            return LockState::Free;
        }
        match kind {
            LockKind::Record if TicketWord(lock).has_writer() => LockState::Taken,
            LockKind::Directory if LockWord::from_word(lock).held_against(me).is_some() => {
                LockState::InTheWay
            }
            LockKind::Record | LockKind::Directory => LockState::Free,
        }
    }

    #[inline(always)]
    fn lock_record(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        ask_in_turn(cx, txn, address, Ticket::Writer)
    }

    #[inline(always)]
    fn locks_reads(_: &Leases) -> bool {
        true
    }

    fn share_record(cx: &Context, txn: &mut Txn, address: Address) -> u32 {
        ask_in_turn(cx, txn, address, Ticket::Reader)
    }

    fn lock_again(cx: &Context, txn: &mut Txn, lock: u32, mode: Mode) {
        come_again(cx, txn, lock, mode);
    }

    fn taken<A: Access>(access: &A, _: &Context, txn: &mut Txn, lock: (u32, Mode)) -> LockOutcome {
        taken(access, txn, lock)
    }

    fn has_to_wait(txn: &Txn) -> bool {
        has_to_wait(txn)
    }

    async fn wait<A: Access>(access: &A, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
        wait(access, cx, txn).await
    }

    async fn leave<A: Access>(
        access: &A,
        cx: &Context,
        txn: &mut Txn,
        failure: Failure,
    ) -> Failure {
        leave(access, cx, txn, failure).await
    }
}

fn count_max(access: &impl Access) -> u16 {
    if access.keeps(Rule::WideCounts) { COUNT_MAX } else { COUNT_MAX_NARROW }
}

fn ticket(lock: &Lock) -> Option<Ticket> {
    match lock.held_as {
        HeldAs::Ticket(ticket) => Some(ticket),
        _ => None,
    }
}

/// Requests the upgrade of a record's lock, if the transaction holds only the reader's lock and needs the writer's
/// lock for this mode.
fn come_again(cx: &Context, txn: &mut Txn, index: u32, mode: Mode) {
    let lock = &mut txn.locks[index as usize];
    if mode == Mode::Read || lock.verb != HELD || ticket(lock) != Some(Ticket::Reader) {
        return;
    }
    let target = cx.groups.primary(lock.address).plus(LOCK_AT);
    lock.verb = txn.round.faa(target, Ticket::Reader.goes() + Ticket::Writer.comes());
    lock.held_as = HeldAs::Ticket(Ticket::Writer);
    (lock.granted, lock.asked_again) = (false, UPGRADED);
}

/// Returns the outcome of a request for a ticket; see [`crate::steps::access::Access::taken`].
fn taken(access: &impl Access, txn: &mut Txn, (index, mode): (u32, Mode)) -> LockOutcome {
    let Txn { locks, round, .. } = txn;
    let lock = &mut locks[index as usize];
    let Some(ticket) = ticket(lock) else { return LockOutcome::Refused };
    if lock.verb != HELD && !lock.is_due {
        let came = TicketWord(round.found(lock.verb));
        let now = match lock.asked_again {
            UPGRADED => TicketWord(came.0 + Ticket::Reader.goes()),
            _ => came,
        };
        lock.met = came.0;
        if came.is_over(count_max(access)) {
            (lock.is_due, lock.asked_again) = (true, OVER);
        } else if now.is_turn(ticket, came) || !access.keeps(Rule::WaitTurn) {
            (lock.verb, lock.granted) = (HELD, true);
        } else {
            lock.is_due = true;
        }
    }
    match lock.is_due {
        true if lock.asked_again == OVER => LockOutcome::Refused,
        true => LockOutcome::NotYet,
        // Another entry of this transaction has requested the same record for reading only.
        false if mode != Mode::Read && ticket == Ticket::Reader => LockOutcome::NotYet,
        false => LockOutcome::Held,
    }
}

/// Returns whether the transaction has a ticket that is not served yet.
fn has_to_wait(txn: &Txn) -> bool {
    txn.locks.iter().any(|lock| lock.is_due)
}

/// The address of a lock word that a transaction has read, and the value that it has found there.
type Seen = Option<(Address, u64)>;

/// Returns the value that the lock word had immediately after this ticket was taken.
fn behind_coming(lock: &Lock, ticket: Ticket) -> u64 {
    let left = if lock.asked_again == UPGRADED { Ticket::Reader.goes() } else { 0 };
    lock.met + left + ticket.comes()
}

/// Reads the lock words of all tickets that are not served yet. Reads the first of these lock words by
/// [`tarn_fabric::round::Round::watch`]. Notes each ticket that is now served as a granted lock. Returns whether the
/// first lock word has changed since the transaction last read it.
async fn look(cx: &Context, txn: &mut Txn, seen: &mut Seen) -> Result<bool, Failure> {
    let Txn { round, locks, .. } = txn;
    round.begin();
    let due = |lock: &&mut Lock| lock.is_due && lock.asked_again != OVER;
    let (mut watched, mut others) = (None, round.reserve(8 * locks.len()));
    let first_other = others;
    for lock in locks.iter_mut().filter(due) {
        let target = cx.groups.primary(lock.address).plus(LOCK_AT);
        if watched.is_some() {
            round.read_into(target, others, 8);
            others = others.plus(8);
            continue;
        }
        let ticket = ticket(lock).expect("only tickets are due");
        let known = seen.filter(|(address, _)| *address == lock.address);
        let known = known.map_or_else(|| behind_coming(lock, ticket), |(_, word)| word);
        watched = Some((round.watch(target, known), lock.address, known));
    }
    let Some((at, address, known)) = watched else { return Ok(true) };
    cx.port.execute(round).await?;
    let (mut at, mut others) = (at, first_other);
    *seen = Some((address, round.word(at)));
    for lock in locks.iter_mut().filter(due) {
        let now = TicketWord(round.word(at));
        let ticket = ticket(lock).expect("only tickets are due");
        if now.is_turn(ticket, TicketWord(lock.met)) {
            (lock.verb, lock.granted, lock.is_due) = (HELD, true, false);
        }
        (at, others) = (others, others.plus(8));
    }
    Ok(seen.is_some_and(|(_, now)| now != known))
}

fn longer(pause: Nanos) -> Nanos {
    Nanos((2 * pause.0).min(PAUSE_MAX.0))
}

/// Waits until all tickets of the transaction are served.
///
/// # Errors
/// The time [`PATIENCE`] has passed; perhaps another transaction waits for this transaction in a deadlock.
async fn wait(access: &impl Access, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    access.enter(cx, Phase::WaitTurn);
    let (since, mut pause, mut seen) = (cx.port.now(), PAUSE, None);
    let patience = PATIENCE.0 + mix(txn.tag.word()) % (3 * PATIENCE.0);
    let patience = Nanos(patience << txn.tries_before.min(TRIES_MAX));
    loop {
        let has_changed = look(cx, txn, &mut seen).await?;
        if !has_to_wait(txn) {
            return Ok(());
        }
        if cx.port.now() - since > patience {
            return Err(AbortReason::LockRefused.into());
        }
        if !has_changed {
            cx.port.sleep(pause).await;
            pause = longer(pause);
        }
    }
}

/// Cleans up after a failed fetch, so that no ticket of this transaction blocks other transactions. Returns
/// `failure`, or another failure that happened during the cleanup.
async fn leave(access: &impl Access, cx: &Context, txn: &mut Txn, failure: Failure) -> Failure {
    if !has_to_wait(txn) {
        return failure;
    }
    pass_on(access, cx, txn).await.err().unwrap_or(failure)
}

/// After a fetch that failed while it waited for tickets, releases the locks that the transaction holds. After that,
/// waits until each of the transaction's other tickets is served, and releases each ticket when it is served.
///
/// # Errors
/// The fabric fails: then some tickets are lost, and the tickets after the lost tickets are never served.
async fn pass_on(access: &impl Access, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    access.enter(cx, Phase::PassOn);
    txn.round.begin();
    add_unlocks(cx, txn);
    for lock in txn.locks.iter().filter(|lock| lock.is_due) {
        let Some(ticket) = ticket(lock) else { continue };
        let target = cx.groups.primary(lock.address).plus(LOCK_AT);
        if lock.asked_again == OVER {
            txn.round.faa(target, ticket.comes().wrapping_neg());
        } else if !access.keeps(Rule::PassInTurn) {
            txn.round.faa(target, ticket.goes());
        }
    }
    let over = txn.locks.iter().rev().find(|lock| lock.asked_again == OVER && lock.is_due);
    let over = over.map(|lock| lock.address);
    let in_turn = access.keeps(Rule::PassInTurn);
    txn.locks.retain(|lock| in_turn && lock.is_due && lock.asked_again != OVER);
    cx.port.execute(&mut txn.round).await?;
    let (mut pause, mut seen) = (PAUSE, None);
    while !txn.locks.is_empty() {
        let has_changed = look(cx, txn, &mut seen).await?;
        txn.round.begin();
        add_unlocks(cx, txn);
        txn.locks.retain(|lock| lock.is_due);
        if !txn.round.is_empty() {
            cx.port.execute(&mut txn.round).await?;
        } else if !has_changed {
            cx.port.sleep(pause).await;
            pause = longer(pause);
        }
    }
    match over {
        Some(address) => set_back(access, cx, txn, address).await,
        None => Ok(()),
    }
}

/// Waits until a lock word whose counts have reached their limit is set back to 0. If no transaction uses a ticket of
/// the lock word, this function sets the word back to 0 itself. During this wait, a transaction that has seen the
/// limit takes no new ticket; otherwise new tickets would keep the lock word in use for ever.
async fn set_back(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    address: Address,
) -> Result<(), Failure> {
    let target = cx.groups.primary(address).plus(LOCK_AT);
    let (mut pause, mut seen) = (PAUSE, TicketWord::default());
    loop {
        txn.round.begin();
        let at = txn.round.watch(target, seen.0);
        cx.port.execute(&mut txn.round).await?;
        let word = TicketWord(txn.round.word(at));
        if !word.is_over(count_max(access)) {
            return Ok(());
        }
        if word.is_at_rest() || !access.keeps(Rule::ResetAtRest) {
            access.enter(cx, Phase::SetBack);
            txn.round.begin();
            let swap = txn.round.cas(target, word.0, 0);
            cx.port.execute(&mut txn.round).await?;
            if txn.round.swapped(swap) {
                return Ok(());
            }
        } else if word == seen {
            cx.port.sleep(pause).await;
            pause = longer(pause);
        }
        seen = word;
    }
}
