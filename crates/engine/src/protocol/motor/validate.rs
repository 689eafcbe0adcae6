//! Motor's validation: all reads without a lock must be unchanged.
//!
//! Invariant: a record counts as unchanged under three conditions, all seen in one READ of one line. Its LOCK is free
//! (or this transaction's); it is still in its place; and its NEWEST is the version that the caller was shown. A
//! directory record or a leaf is compared likewise, by its VERSION. A split may have moved the record, and put
//! another one there that the same transaction wrote: that one has another value's address.
//!
//! These READs are sent after T_commit was taken. Otherwise another transaction may lock a record that was validated,
//! take a T_commit below this transaction's, and end. By timestamp it came first, but this transaction has not seen
//! its value. A snapshot between the two would show a state that no order explains.

use super::switches::phase;
use super::{Motor, enter};
use crate::cluster::rules::Rule;
use crate::site::Context;
use crate::steps::Described as _;
use crate::transaction::working_set::Txn;
use tarn_store::ids::{AbortReason, Failure};
use tarn_store::layout::{LOCK_AT, NEWEST_AT, VALUE_AT, VERSION_AT, Version};

/// Bytes of a head up to NEWEST; they lie in one line.
const HEAD_BYTES: usize = NEWEST_AT + 8;

/// Reads again the heads of all records that were read and not locked, and directory records and leaves likewise.
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
