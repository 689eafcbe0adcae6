//! Motor's validation: checks that all records which were read without a lock are unchanged.
//!
//! Invariant: a record counts as unchanged under three conditions, which one READ of one line must show together. The
//! record's LOCK is free (or this transaction's); the record is still in its place; and its NEWEST equals the version
//! that the caller has seen. A directory record or a leaf is compared in the same way, by its VERSION. A split may
//! have moved the record, and put another record in its place that the same transaction has written. The check of the
//! place detects this, because the other record's value has another address.
//!
//! The READs of the validation are sent after T_commit was taken. If the READs were sent earlier, another transaction
//! could lock a validated record, take a T_commit lower than this transaction's, and end. By its timestamp that
//! transaction would come first, but this transaction has not seen its value. A snapshot with a timestamp between the
//! two would show a state that fits no order of the transactions.

use super::switches::phase;
use super::{Motor, enter};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::transaction::working_set::Txn;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::layout::{LOCK_AT, NEWEST_AT, VALUE_AT, VERSION_AT, Version};

/// The number of bytes of a head up to the end of NEWEST; they lie in one cache line.
const HEAD_BYTES: usize = NEWEST_AT + 8;

/// Reads again the heads of all records that were read and not locked, and the heads of directory records and leaves.
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
