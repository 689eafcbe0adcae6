//! Motor's validation: checks that all records which the transaction has read without a lock are unchanged.
//!
//! Invariant: a record counts as unchanged if it fulfils three conditions, which one READ of one line must show
//! together. The conditions: the record's LOCK is free (or this transaction's); the record is still in its place; its
//! NEWEST equals the version that the caller saw. Validation compares a directory record or a leaf in the same way,
//! by its VERSION. A split may have moved the record, and may have put another record in its place that the same
//! transaction has written. The check of the record's place detects such a move, because the other record's value has
//! another address.
//!
//! The transaction sends the READs of the validation after it has taken T_commit. If the transaction sent these READs
//! earlier, a second transaction could lock a validated record, take a T_commit lower than this transaction's, and
//! end. By its timestamp the second transaction would come first, but this transaction has not seen the value that
//! the second one wrote. A snapshot with a timestamp between the two timestamps would show a state that fits no order
//! of the transactions.

use super::switches::phase;
use super::{Motor, enter};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::transaction::working_set::Txn;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::layout::{LOCK_AT, NEWEST_AT, VALUE_AT, VERSION_AT, Version};

/// The number of bytes of a head up to the end of NEWEST, all in one cache line.
const HEAD_BYTES: usize = NEWEST_AT + 8;

/// Reads again the heads of all records that the transaction has read and not locked, and the heads of directory
/// records and leaves.
pub(super) async fn validate(motor: &Motor, cx: &Context, txn: &mut Txn) -> Result<(), Failure> {
    let is_needless = txn.checks.iter().all(|check| check.covered)
        && !txn.entries.iter().any(|entry| entry.watched);
    if is_needless || !motor.keeps(Rule::ValidateReads) {
        return Ok(());
    }
    enter(cx, phase::VALIDATE);
    let Txn { round, entries, checks, tag, .. } = &mut *txn;
    round.begin();
    let first = round.reserve_lines(HEAD_BYTES * (entries.len() + checks.len()));
    let mut at = first;
    for entry in entries.iter().filter(|entry| entry.watched) {
        round.read_into(cx.groups.primary(entry.address), at, HEAD_BYTES);
        at = at.plus(HEAD_BYTES);
    }
    for check in checks.iter().filter(|check| !check.covered) {
        round.read_into(cx.groups.primary(check.address), at, VERSION_AT + 8);
        at = at.plus(HEAD_BYTES);
    }
    cx.port.execute(round).await?;
    let records = entries.iter().filter(|entry| entry.watched);
    let records = records.map(|entry| (entry.address, entry.version, Some(entry.body)));
    let directories = checks.iter().filter(|check| !check.covered);
    let directories = directories.map(|check| (check.address, check.version, None));
    let (mut at, mut verdict) = (first, Ok(()));
    for (address, version, value) in records.chain(directories) {
        let lock = round.word(at.plus(LOCK_AT));
        let now = Version::from_word(round.word(at.plus(VERSION_AT)));
        let is_same = match value {
            None => now == version,
            Some(value) => {
                now.is_present()
                    && round.word(at.plus(NEWEST_AT)) == version.word()
                    && round.word(at.plus(VALUE_AT)) == value.to_word()
            }
        };
        at = at.plus(HEAD_BYTES);
        if lock != 0 && lock != tag.word() && motor.keeps(Rule::RefuseLocked) {
            cx.note_blocking_lock(address, lock);
            verdict = verdict.and(Err(AbortReason::ValidationLocked));
        } else if !is_same {
            verdict = verdict.and(Err(AbortReason::VersionChanged));
        }
    }
    Ok(verdict?)
}
