//! OOCC's use of clocks: a reader that was fast enough does not validate its reads, because writers wait before they
//! write. If the memory is near, and a transaction is one call, a writer instead announces that it begins to write
//! (`read_together`).
//!
//! Invariants: a reader opens its window of time before it sends its first READ, and closes the window when its last
//! READ has ended. The node's lease word must be the same when the window opens and when it closes. A writer's wait
//! begins when its last lock is acknowledged. After its last lock is acknowledged, the writer loads the lease word,
//! and waits for the time that this word states.
//!
//! So no record that the reader found unlocked was written within the reader's window of time. The writer took its
//! lock after the beginning of the window, and it wrote the data a whole waiting time after the lock. The reader
//! validates records on which it found a lock that lets readers pass (docs/protocols/oocc.md).

use super::{Oocc, enter, on, phase};
use crate::cluster::lease::{LeaseWord, Stage};
use crate::site::Context;
use crate::steps::access::batch_read::{self, BatchOutcome, BatchRead};
use crate::steps::access::{self, Which, near, validate_those};
use crate::transaction::working_set::Txn;
use tarn_fabric::local::{DirectMemory, EpochSnapshot};
use tarn_fabric::round::Round;
use tarn_fabric::window::{Closed, Wait};
use tarn_store::ids::{Failure, Mode};

/// Fetches every entry that was not fetched before, in a window of time that opens before the transaction's first
/// READ.
pub(super) async fn fetch(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if let Some(word) = opens(cx, txn) {
        txn.leases.reads_since = Some((cx.port.open_window().await, word));
    }
    let begins = txn.fetched == 0 && txn.leases.timed_since.is_none();
    if begins && txn.entries.iter().any(|entry| entry.mode != Mode::Read) {
        begin_timing(cx, txn);
    }
    let locks = txn.entries[txn.fetched..].iter().any(|entry| entry.mode != Mode::Read);
    if locks && !oocc.switches.is_on(on::COUNT_FROM_ACKS) && cx.node.read_lease().wait_ns() > 0 {
        txn.leases.waits_since = Some(cx.port.begin_wait().await);
    }
    if cx.counts_readers() {
        return fetch_explicitly(oocc, cx, txn, locks).await;
    }
    access::fetch(oocc, cx, txn).await
}

/// Fetches for a thread whose readers are counted at the records that they read (explicit leases).
async fn fetch_explicitly(
    oocc: &Oocc,
    cx: &Context,
    txn: &mut Txn,
    locks: bool,
) -> Result<(), Failure> {
    if locks && !oocc.switches.is_on(on::ASK_BEHIND_LOCKS) {
        cx.ask_readers(txn, cx.node.read_lease().wait());
        let nobody = cx.nobody_reads(txn).await;
        txn.reading.early.get_or_insert(nobody);
    }
    // A reader without an open window of time is not counted, because no writer waits for it.
    let counts = txn.leases.reads_since.is_some();
    if !oocc.switches.is_on(on::COUNT_BEFORE_READING) {
        let fetched = access::fetch(oocc, cx, txn).await;
        if counts {
            cx.enter_reading(txn);
        }
        return fetched;
    }
    if counts {
        cx.enter_reading(txn);
    }
    access::fetch(oocc, cx, txn).await
}

/// Ends a fetch that [`near::ask`] has begun, in the same way as [`fetch`]. The window of time opens only after the
/// prefetched lines have had time to arrive, because the transaction has read nothing before.
#[inline]
pub(super) fn fetch_near(
    oocc: &Oocc,
    cx: &Context,
    txn: &mut Txn,
    memory: DirectMemory<'_>,
) -> Option<Result<(), Failure>> {
    if let Some(word) = opens(cx, txn) {
        txn.leases.reads_since = Some((memory.open_window(), word));
    }
    if cx.counts_readers()
        && txn.leases.reads_since.is_some()
        && oocc.switches.is_on(on::COUNT_BEFORE_READING)
    {
        cx.enter_reading(txn);
    }
    near::read(oocc, cx, txn, memory)
}

/// Runs a whole transaction that reads a batch of records. The transaction has committed if no writer has begun to
/// write since the prefetched lines had time to arrive. This check for writers needs no clock. If a writer has begun
/// to write since then, the transaction validates its reads. (If the switch for this check is off, a window of time
/// opens instead, and reads within the lease need no validation.)
#[inline]
pub(super) fn read_together(
    oocc: &Oocc,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
    (memory, is_again): (DirectMemory<'_>, bool),
) -> BatchOutcome {
    let stillness = oocc.switches.is_on(on::STILLNESS);
    if !is_again {
        // Even a reader that needs no lease follows changes of the lease word. If this reader did not follow a
        // change, other nodes would wait until this node confirms the change, and finally treat this node as failed.
        let word = cx.node.read_lease();
        if stillness {
            together.moment = Some(memory.moment());
        } else if word.read_ns() > 0 && !together.is_of_one() {
            together.window = Some((memory.open_window(), word));
        }
    }
    match batch_read::read(oocc, cx, (&mut *together, round), (memory, is_again)) {
        BatchOutcome::Done if together.is_of_one() => return BatchOutcome::Done,
        BatchOutcome::Done => {}
        step => return step,
    }
    let which = if stillness {
        still_since(cx, together.moment.take(), memory)
    } else {
        let opened = together.window.take();
        let closed = opened.map(|(window, word)| (memory.close_window(window, word.lease()), word));
        still_to_see(oocc, cx, (closed, false), || cx.node.kept_read_lease())
    };
    match which {
        Which::Marked if !together.is_marked() => BatchOutcome::Done,
        which => batch_read::look_again(oocc, cx, (together, memory), which),
    }
}

/// Returns which reads must be validated: only the marked reads if no writer has begun to write since the moment
/// `since`. If a writer has begun to write since that moment, all reads must be validated.
#[inline]
fn still_since(cx: &Context, since: Option<EpochSnapshot>, memory: DirectMemory<'_>) -> Which {
    if since.is_some_and(|since| memory.is_still(since)) {
        enter(cx, phase::STILL);
        return Which::Marked;
    }
    Which::All
}

/// Returns the lease word if the transaction must open a window of time now. A window of time opens before the
/// transaction's first READ, if the transaction has requested only reads.
#[inline]
fn opens(cx: &Context, txn: &Txn) -> Option<LeaseWord> {
    let has_read = txn.fetched != 0 || txn.read_near || !txn.checks.is_empty();
    let is_first = !has_read && txn.leases.reads_since.is_none();
    if !is_first || txn.entries.iter().any(|entry| entry.mode != Mode::Read) {
        return None;
    }
    Some(cx.node.read_lease()).filter(|word| word.read_ns() > 0)
}

/// Ends a transaction that has only read, and validates those reads that still need validation.
pub(super) async fn end_reading(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let closed = match txn.leases.reads_since.take() {
        Some((window, word)) => Some((cx.port.close_window(window, word.lease()).await, word)),
        None => None,
    };
    cx.leave_reading(txn);
    let closed = (closed, txn.reading.is_late());
    let which = still_to_see(oocc, cx, closed, || cx.node.read_lease());
    validate_those(oocc, cx, txn, which).await
}

/// Ends a transaction in the same way as [`end_reading`], but without a round.
#[inline]
pub(super) fn end_reading_near(
    oocc: &Oocc,
    cx: &Context,
    txn: &mut Txn,
    memory: DirectMemory<'_>,
) -> Result<(), Failure> {
    let opened = txn.leases.reads_since.take();
    let closed = opened.map(|(window, word)| (memory.close_window(window, word.lease()), word));
    cx.leave_reading(txn);
    let closed = (closed, txn.reading.is_late());
    // This thread followed changes of the lease word when the window of time opened.
    let which = still_to_see(oocc, cx, closed, || cx.node.kept_read_lease());
    near::validate(oocc, cx, txn, (memory, which))
}

/// Returns which reads must be validated after the window of time has closed. Only the marked reads need validation
/// if no record found unlocked was written between the first READ and the end of the window. Under explicit leases,
/// the reader knows this only if it was counted at all its records before it read them.
#[inline]
fn still_to_see(
    oocc: &Oocc,
    cx: &Context,
    (closed, is_late): (Option<(Closed, LeaseWord)>, bool),
    now: impl FnOnce() -> LeaseWord,
) -> Which {
    let Some((Closed { is_shorter, passed }, word)) = closed else { return Which::All };
    let is_same = now() == word || !oocc.switches.is_on(on::COMPARE_LEASE);
    let is_in_time = !is_late || !oocc.switches.is_on(on::COUNT_AT_ONCE);
    let is_in_lease = is_shorter && is_same && is_in_time;
    if let (Some(delays), Some(passed)) = (&cx.delays, passed) {
        delays.note_read(passed, is_in_lease);
    }
    if is_in_lease {
        enter(cx, phase::IN_LEASE);
        return Which::Marked;
    }
    Which::All
}

/// Begins to measure the time of a read-write transaction, if it belongs to the sample.
fn begin_timing(cx: &Context, txn: &mut Txn) {
    if cx.delays.as_ref().is_some_and(|delays| delays.samples()) {
        txn.leases.timed_since = cx.port.stopwatch();
    }
}

/// Notes that a transaction whose time is measured has ended a stage.
#[inline]
pub(super) fn end_stage(cx: &Context, txn: &mut Txn, stage: Stage) {
    if txn.leases.timed_since.is_some() {
        note_stage(cx, txn, stage);
    }
}

#[cold]
fn note_stage(cx: &Context, txn: &mut Txn, stage: Stage) {
    let before = std::mem::replace(&mut txn.leases.timed_since, cx.port.stopwatch());
    if let (Some(delays), Some(before), Some(now)) = (&cx.delays, before, txn.leases.timed_since) {
        delays.note_stage(stage, now - before);
    }
}

/// Begins the wait for readers, if the node's lease word requires such a wait. The memory nodes have acknowledged all
/// locks of the transaction by now.
pub(super) async fn begin_wait(cx: &Context, txn: &mut Txn) {
    if txn.leases.waits_since.is_none() && cx.node.read_lease().wait_ns() > 0 {
        txn.leases.waits_since = Some(cx.port.begin_wait().await);
    }
}

/// Under explicit leases, counts the reader of a key range at every node of the index before the reader reads that
/// node.
pub(super) fn count_nodes(oocc: &Oocc, cx: &Context, txn: &mut Txn) {
    let counts = cx.counts_readers() && oocc.switches.is_on(on::COUNT_BEFORE_READING);
    if counts && txn.leases.reads_since.is_some() {
        cx.enter_nodes(txn);
    }
}

/// Under explicit leases, a transaction that holds all its locks asks the other nodes whether any reader is at the
/// locked records and leaves. The growth of an index does not ask the other nodes, because it moves the records at
/// which readers are counted.
pub(super) fn ask_readers(oocc: &Oocc, cx: &Context, txn: &mut Txn) {
    if !cx.counts_readers() {
        return;
    }
    cx.leave_reading(txn);
    let word = cx.node.read_lease();
    txn.reading.may_ask = word.wait_ns() > 0;
    if txn.reading.may_ask && oocc.switches.is_on(on::ASK_BEHIND_LOCKS) {
        cx.ask_readers(txn, word.wait());
    }
}

/// Returns whether every node that may read has answered that it reads none of the records that this transaction will
/// write.
async fn nobody_reads(cx: &Context, txn: &mut Txn) -> bool {
    match txn.reading.early {
        _ if !txn.reading.may_ask => false,
        Some(early) => early,
        None => cx.nobody_reads(txn).await,
    }
}

/// Waits until the lease of every reader that did not see one of the transaction's locks has ended.
pub(super) async fn wait_out(cx: &Context, txn: &mut Txn) {
    let word = cx.node.read_lease();
    if word.wait_ns() == 0 {
        return;
    }
    if cx.counts_readers() && nobody_reads(cx, txn).await {
        enter(cx, phase::NOBODY_READS);
        return;
    }
    enter(cx, phase::WAIT_OUT);
    let since: Wait = match txn.leases.waits_since.take() {
        Some(since) => since,
        // No lease was in use when the locks were acknowledged, so the wait for readers begins only now.
        None => cx.port.begin_wait().await,
    };
    cx.port.end_wait(since, word.wait()).await;
}
