//! What OOCC does by the clock: readers that were quick enough do not look again, because writers wait. Where memory is near, and for
//! one call, who begins to write says so instead (`read_together`).
//!
//! Invariants: a reader opens its window before its first READ is sent and closes it when its last has ended, and the word of
//! leases is the same before and behind; a writer's wait begins when its last lock is acknowledged, and is as long as the
//! word says that it loads after that. Then nothing that the reader found unlocked was written within its window: the lock came
//! after the window's beginning, and the data a whole wait after the lock. What it found locked in the mode that lets it pass
//! it looks at again (docs/protocols/oocc.md).

use super::{on, Oocc, phase, enter};
use crate::steps::access::batch_read::{self, BatchOutcome, BatchRead, far};
use crate::steps::access::{self, Which, near, validate_those};
use crate::site::Context;
use tarn_store::ids::{Failure, Mode};
use crate::cluster::lease::{LeaseWord, Stage};
use crate::transaction::working_set::Txn;
use tarn_fabric::local::{EpochSnapshot, DirectMemory};
use tarn_fabric::round::Round;
use tarn_fabric::window::{Closed, Wait};

/// Fetches every entry that is not fetched yet, in a window that begins with the transaction's first.
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

/// A fetch of a thread whose readers are counted.
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
    // In a window that has not opened nobody is waited for.
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

/// As [`fetch`], of what [`near::ask`] has begun: the window opens when the lines have had time to come, since nothing was read before.
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
    if cx.counts_readers() && txn.leases.reads_since.is_some() && oocc.switches.is_on(on::COUNT_BEFORE_READING) {
        cx.enter_reading(txn);
    }
    near::read(oocc, cx, txn, memory)
}

/// A whole transaction that reads records together. It has committed if nobody has begun to write since their lines had time to come: no
/// clock is looked at for that. Else it looks again. (Where stillness is off a window opens then, and what was read in lease is committed.)
#[inline]
pub(super) fn read_together(
    oocc: &Oocc,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
    (memory, is_again): (DirectMemory<'_>, bool),
) -> BatchOutcome {
    let stillness = oocc.switches.is_on(on::STILLNESS);
    if !is_again {
        // Also who needs no lease follows its changes, or its node would be waited for, and given up.
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

/// What is to be looked at again of what was read since then: only what was marked, if nobody has begun to write.
#[inline]
fn still_since(cx: &Context, since: Option<EpochSnapshot>, memory: DirectMemory<'_>) -> Which {
    if since.is_some_and(|since| memory.is_still(since)) {
        enter(cx, phase::STILL);
        return Which::Marked;
    }
    Which::All
}

/// As [`read_together`], by rounds: the window opens before the first of them is sent, and closes behind the last.
pub(super) async fn fetch_together(
    oocc: &Oocc,
    cx: &Context,
    (together, round): (&mut BatchRead, &mut Round),
) -> BatchOutcome {
    let word = cx.node.read_lease();
    // One record that is found needs none; that there is none may take several READs to see.
    let opened = match word.read_ns() > 0 {
        true => Some((cx.port.open_window().await, word)),
        false => None,
    };
    match far::fetch(oocc, cx, (&mut *together, &mut *round)).await {
        BatchOutcome::Done if together.is_of_one_read() => return BatchOutcome::Done,
        BatchOutcome::Done => {}
        step => return step,
    }
    let closed = match opened {
        Some((window, word)) => Some((cx.port.close_window(window, word.lease()).await, word)),
        None => None,
    };
    let which = still_to_see(oocc, cx, (closed, false), || cx.node.read_lease());
    far::look_again(oocc, cx, (together, round), which).await
}

/// The word of a window that is to open now, if one is: before the transaction's first READ, if reading is all that it asks for.
#[inline]
fn opens(cx: &Context, txn: &Txn) -> Option<LeaseWord> {
    let has_read = txn.fetched != 0 || txn.read_near || !txn.checks.is_empty();
    let is_first = !has_read && txn.leases.reads_since.is_none();
    if !is_first || txn.entries.iter().any(|entry| entry.mode != Mode::Read) {
        return None;
    }
    Some(cx.node.read_lease()).filter(|word| word.read_ns() > 0)
}

/// A transaction that has only read: what it still has to look at again.
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

/// As [`end_reading`], without a round.
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
    // It was followed when the window opened.
    let which = still_to_see(oocc, cx, closed, || cx.node.kept_read_lease());
    near::validate(oocc, cx, txn, (memory, which))
}

/// What is to be looked at again when the window has closed: only what was marked, if nobody has written what was read unlocked,
/// between the first READ and the last. Under explicit leases that is known of those alone who were counted at all of it before.
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

/// A read-write transaction begins: it may be one that is timed.
fn begin_timing(cx: &Context, txn: &mut Txn) {
    if cx.delays.as_ref().is_some_and(|delays| delays.samples()) {
        txn.leases.timed_since = cx.port.stopwatch();
    }
}

/// A timed transaction has come through a stage.
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

/// All locks are acknowledged: the wait begins, if there is one.
pub(super) async fn begin_wait(cx: &Context, txn: &mut Txn) {
    if txn.leases.waits_since.is_none() && cx.node.read_lease().wait_ns() > 0 {
        txn.leases.waits_since = Some(cx.port.begin_wait().await);
    }
}

/// Under explicit leases a range counts at every node of its index before that is read.
pub(super) fn count_nodes(oocc: &Oocc, cx: &Context, txn: &mut Txn) {
    let counts = cx.counts_readers() && oocc.switches.is_on(on::COUNT_BEFORE_READING);
    if counts && txn.leases.reads_since.is_some() {
        cx.enter_nodes(txn);
    }
}

/// Under explicit leases who has all of his locks asks whether anybody reads the records and leaves that they are on. A growth does not: it moves
/// what others are counted by.
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

/// Whether every node that may read has said that it reads nothing of what is about to be written.
async fn nobody_reads(cx: &Context, txn: &mut Txn) -> bool {
    match txn.reading.early {
        _ if !txn.reading.may_ask => false,
        Some(early) => early,
        None => cx.nobody_reads(txn).await,
    }
}

/// Waits until no reader can be in lease that has found any of the locks not there.
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
        // There was none to wait for when the locks were acknowledged.
        None => cx.port.begin_wait().await,
    };
    cx.port.end_wait(since, word.wait()).await;
}
