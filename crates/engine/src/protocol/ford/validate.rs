//! FORD's validation: is everything that was read and not locked as it was?
//!
//! Invariant: a record counts as unchanged if its LOCK is free (or this transaction's) and its
//! VERSION is what the caller was shown, both in one READ of one line.

use super::{Ford, On, Phase, enter};
use crate::context::Context;
use crate::outcome::{AbortReason, Failure};
use crate::working_set::{Entry, Progress, Txn};
use tarn_fabric::round::BufferOffset;

/// So many records read by one transaction are still near when it validates them.
const WARM_CHECKS: usize = 64;

/// Re-reads LOCK and VERSION of everything that was read and not locked.
#[inline]
pub(super) async fn validate(ford: &Ford, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    if is_needless(txn) || !ford.on(On::ValidateReads) {
        return Ok(());
    }
    let first = plan_validation(cx, txn);
    if txn.round.is_empty() {
        return Ok(()); // every directory is locked by now
    }
    enter(cx, Phase::Validate);
    if txn.entries.len() + txn.checks.len() <= WARM_CHECKS {
        txn.round.hot();
    }
    cx.port.execute(&mut txn.round).await?;
    Ok(absorb_validation(ford, cx, txn, first)?)
}

/// Whether nothing was read without a lock.
#[inline]
pub(super) fn is_needless(txn: &Txn) -> bool {
    txn.checks.is_empty() && !txn.entries.iter().any(|entry| entry.watched)
}

/// Adds the READs; what they bring lies in the buffer from the position returned on.
fn plan_validation(cx: &Context, txn: &mut Txn) -> BufferOffset {
    txn.round.begin();
    add_validation(cx, txn)
}

#[inline]
fn add_validation(cx: &Context, txn: &mut Txn) -> BufferOffset {
    let Txn { round, entries, checks, .. } = txn;
    let groups = &cx.groups;
    let first = round.reserve(16 * (entries.len() + checks.len()));
    let mut again = first;
    for entry in entries.iter().filter(|entry| entry.watched) {
        round.read_into(groups.primary(entry.address), again, 16);
        again = again.plus(16);
    }
    for check in checks.iter().filter(|check| !check.covered) {
        round.read_into(groups.primary(check.address), again, 16);
        again = again.plus(16);
    }
    first
}

/// Compares what the READs brought with what was seen.
fn absorb_validation(
    ford: &Ford,
    cx: &Context,
    txn: &Txn,
    first: BufferOffset,
) -> Result<(), AbortReason> {
    let watched = txn.entries.iter().filter(|entry| entry.watched);
    let watched = watched.map(|entry| (entry.address, entry.version));
    let directories = txn.checks.iter().filter(|check| !check.covered);
    let directories = directories.map(|check| (check.address, check.version));
    let mut at = first; // first the records', then the directories'
    let mut verdict = Ok(());
    for (address, version) in watched.chain(directories) {
        let [lock, now] = *txn.round.array::<2>(at);
        at = at.plus(16);
        if lock != 0 && lock != txn.tag.word() && ford.on(On::RefuseLocked) {
            cx.meet(address, lock);
            verdict = verdict.and(Err(AbortReason::ValidationLocked));
        } else if now != version.word() {
            verdict = verdict.and(Err(AbortReason::VersionChanged));
        }
    }
    verdict
}

/// As it must not be (the switch `validate-after-locks` is off): adds the READs to a round that still
/// takes locks; where what they bring will lie, if anything is to be validated.
#[cold]
pub(super) fn plan_early(ford: &Ford, cx: &Context, txn: &mut Txn) -> Option<BufferOffset> {
    let waits_for_lock = |entry: &Entry| {
        entry.progress == Progress::Lock
            || (entry.progress == Progress::Direct && !entry.only_reads())
    };
    let asks = txn.entries[txn.fetched..].iter().any(waits_for_lock);
    if !asks || is_needless(txn) || !ford.on(On::ValidateReads) {
        return None;
    }
    Some(add_validation(cx, txn))
}

/// Takes in what [`plan_early`] asked for: what passed is not looked at again.
#[cold]
pub(super) fn absorb_early(
    ford: &Ford,
    cx: &Context,
    txn: &mut Txn,
    first: BufferOffset,
) -> Result<(), AbortReason> {
    absorb_validation(ford, cx, txn, first)?;
    txn.entries.iter_mut().for_each(|entry| entry.watched = false);
    txn.checks.iter_mut().for_each(|check| check.covered = true);
    Ok(())
}
