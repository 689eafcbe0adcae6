//! OOCC's use of clocks: readers that were quick enough do not validate, because writers wait. Where memory is near,
//! and a transaction is one call, a writer announces that it begins to write instead (`read_together`).
//!
//! Invariants: a reader opens its window before its first READ is sent, and closes it when its last READ has ended.
//! The word of leases is the same before and after. A writer's wait begins when its last lock is acknowledged. The
//! wait is as long as the word says that the writer loads after that.
//!
//! So nothing that the reader found unlocked was written within its window: the lock came after the window's
//! beginning, and the data a whole wait after the lock. The reader validates records that it found locked in the mode
//! that lets it pass (docs/protocols/oocc.md).

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

/// Fetches every entry that is not fetched yet, in a window that opens before the transaction's first READ.
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

/// Fetches for a thread whose readers are counted (explicit leases).
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
    // No writer waits for a reader without an open window.
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

/// Ends a fetch that [`near::ask`] has begun, like [`fetch`]. The window opens when the lines have had time to come,
/// since nothing was read before that.
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

/// Runs a whole transaction that reads records together. It has committed if no writer has begun to write since its
/// lines had time to come; this needs no clock. Else it validates. (Where stillness is off, a window opens then, and
/// reads in lease are committed.)
#[inline]
pub(super) fn read_together(
    oocc: &Oocc,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
    (memory, is_again): (DirectMemory<'_>, bool),
) -> BatchOutcome {
    let stillness = oocc.switches.is_on(on::STILLNESS);
    if !is_again {
        // A reader that needs no lease follows its changes, too. Otherwise others would wait for its node, and give
        // it up.
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

/// Returns which reads since then must be validated: only the marked ones, if no writer has begun to write.
#[inline]
fn still_since(cx: &Context, since: Option<EpochSnapshot>, memory: DirectMemory<'_>) -> Which {
    if since.is_some_and(|since| memory.is_still(since)) {
        enter(cx, phase::STILL);
        return Which::Marked;
    }
    Which::All
}

/// Returns the word of a window that is to open now, if one is: before the transaction's first READ, if it only asks
/// to read.
#[inline]
fn opens(cx: &Context, txn: &Txn) -> Option<LeaseWord> {
    let has_read = txn.fetched != 0 || txn.read_near || !txn.checks.is_empty();
    let is_first = !has_read && txn.leases.reads_since.is_none();
    if !is_first || txn.entries.iter().any(|entry| entry.mode != Mode::Read) {
        return None;
    }
    Some(cx.node.read_lease()).filter(|word| word.read_ns() > 0)
}

/// Ends a transaction that has only read: validates the reads that still need it.
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

/// Ends a transaction like [`end_reading`], without a round.
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
    // The thread followed the word when the window opened.
    let which = still_to_see(oocc, cx, closed, || cx.node.kept_read_lease());
    near::validate(oocc, cx, txn, (memory, which))
}

/// Returns which reads must be validated once the window has closed. Only the marked ones, if no record that was read
/// unlocked was written between the first READ and the last. Under explicit leases this is known only of a reader
/// that was counted at all records before it read them.
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

/// Begins to time a read-write transaction, if it is one of the sample.
fn begin_timing(cx: &Context, txn: &mut Txn) {
    if cx.delays.as_ref().is_some_and(|delays| delays.samples()) {
        txn.leases.timed_since = cx.port.stopwatch();
    }
}

/// Notes that a timed transaction has ended a stage.
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

/// Begins the wait for readers, if there is one: all locks are acknowledged.
pub(super) async fn begin_wait(cx: &Context, txn: &mut Txn) {
    if txn.leases.waits_since.is_none() && cx.node.read_lease().wait_ns() > 0 {
        txn.leases.waits_since = Some(cx.port.begin_wait().await);
    }
}

/// Under explicit leases: counts the reader of a range at every node of its index before the node is read.
pub(super) fn count_nodes(oocc: &Oocc, cx: &Context, txn: &mut Txn) {
    let counts = cx.counts_readers() && oocc.switches.is_on(on::COUNT_BEFORE_READING);
    if counts && txn.leases.reads_since.is_some() {
        cx.enter_nodes(txn);
    }
}

/// Under explicit leases: a transaction that has all of its locks asks whether any reader is at their records and
/// leaves. A growth does not ask: it moves the records by which readers are counted.
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

/// Returns whether every node that may read has answered that it reads none of the records that are about to be
/// written.
async fn nobody_reads(cx: &Context, txn: &mut Txn) -> bool {
    match txn.reading.early {
        _ if !txn.reading.may_ask => false,
        Some(early) => early,
        None => cx.nobody_reads(txn).await,
    }
}

/// Waits until no reader that missed any of the locks can still be in lease.
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
        // There was no lease to wait for when the locks were acknowledged.
        None => cx.port.begin_wait().await,
    };
    cx.port.end_wait(since, word.wait()).await;
}
