//! What OOCC does by the clock: readers that were quick enough do not look again, because writers wait.
//!
//! Invariants: a reader opens its window before its first READ is sent and closes it when its last has ended, and the word of
//! leases is the same before and behind; a writer's wait begins when its last lock is acknowledged, and is as long as the
//! word says that it loads after that. Then nothing that the reader found unlocked was written within its window: the lock came
//! after the window's beginning, and the data a whole wait after the lock. What it found locked in the mode that lets it pass
//! it looks at again (docs/protocols/oocc.md).

use super::{Oocc, On, Phase, enter};
use crate::access::{self, Which, near, validate_those};
use crate::context::Context;
use crate::outcome::Failure;
use crate::read_lease::LeaseWord;
use crate::working_set::{Mode, Txn};
use tarn_fabric::local::Near;
use tarn_fabric::window::Wait;

/// Fetches every entry that is not fetched yet, in a window that begins with the transaction's first.
pub(super) async fn fetch(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if let Some(word) = opens(cx, txn) {
        txn.leases.reads_since = Some((cx.port.open_window().await, word));
    }
    let locks = txn.entries[txn.fetched..].iter().any(|entry| entry.mode != Mode::Read);
    if locks && !oocc.on(On::CountFromAcks) && cx.node.read_lease().wait_ns() > 0 {
        txn.leases.waits_since = Some(cx.port.begin_wait().await);
    }
    access::fetch(oocc, cx, txn).await
}

/// As [`fetch`], of what [`near::ask`] has begun: the window opens when the lines have had time to come, since nothing was read before.
#[inline]
pub(super) fn fetch_near(
    oocc: &Oocc,
    cx: &Context,
    txn: &mut Txn,
    memory: Near<'_>,
) -> Option<Result<(), Failure>> {
    if let Some(word) = opens(cx, txn) {
        txn.leases.reads_since = Some((memory.open_window(), word));
    }
    near::read(oocc, cx, txn, memory)
}

/// The word of a window that is to open now, if one is: before the transaction's first READ, if reading is all that it asks for.
#[inline]
fn opens(cx: &Context, txn: &Txn) -> Option<LeaseWord> {
    let is_first = txn.fetched == 0 && !txn.read_near && txn.leases.reads_since.is_none();
    if !is_first || txn.entries.iter().any(|entry| entry.mode != Mode::Read) {
        return None;
    }
    Some(cx.node.read_lease()).filter(|word| word.read_ns() > 0)
}

/// A transaction that has only read: what it still has to look at again.
pub(super) async fn end_reading(oocc: &Oocc, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let is_shorter = match txn.leases.reads_since {
        Some((window, word)) => cx.port.close_window(window, word.lease()).await,
        None => false,
    };
    let which = still_to_see(oocc, cx, txn, is_shorter);
    validate_those(oocc, cx, txn, which).await
}

/// As [`end_reading`], without a round.
#[inline]
pub(super) fn end_reading_near(
    oocc: &Oocc,
    cx: &Context,
    txn: &mut Txn,
    memory: Near<'_>,
) -> Result<(), Failure> {
    let is_shorter = match txn.leases.reads_since {
        Some((window, word)) => memory.close_window(window, word.lease()),
        None => false,
    };
    let which = still_to_see(oocc, cx, txn, is_shorter);
    near::validate(oocc, cx, txn, (memory, which))
}

/// What is to be looked at again when the window has closed: only what was marked, if nobody has written what was read unlocked,
/// between the first READ and the last.
#[inline]
fn still_to_see(oocc: &Oocc, cx: &Context, txn: &mut Txn, is_shorter: bool) -> Which {
    let Some((_, word)) = txn.leases.reads_since.take() else { return Which::All };
    let is_same = || cx.node.read_lease() == word || !oocc.on(On::CompareLease);
    if is_shorter && is_same() {
        enter(cx, Phase::InLease);
        return Which::Marked;
    }
    Which::All
}

/// All locks are acknowledged: the wait begins, if there is one.
pub(super) async fn begin_wait(cx: &Context, txn: &mut Txn) {
    if txn.leases.waits_since.is_none() && cx.node.read_lease().wait_ns() > 0 {
        txn.leases.waits_since = Some(cx.port.begin_wait().await);
    }
}

/// Waits until no reader can be in lease that has found any of the locks not there.
pub(super) async fn wait_out(cx: &Context, txn: &mut Txn) {
    let word = cx.node.read_lease();
    if word.wait_ns() == 0 {
        return;
    }
    enter(cx, Phase::WaitOut);
    let since: Wait = match txn.leases.waits_since.take() {
        Some(since) => since,
        // There was none to wait for when the locks were acknowledged.
        None => cx.port.begin_wait().await,
    };
    cx.port.end_wait(since, word.wait()).await;
}
