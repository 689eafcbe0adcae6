//! LOTUS's commit where memory is near: [`super::short_commit`] by stores instead of rounds.
//!
//! Invariant: what is stored, and in which order, is what the rounds of [`super::commit`]'s short commit would write, byte by byte; each
//! visit stands where a round would, with its checks and its fence. Timestamps come from the process's counter, so that nobody waits between
//! C1 and the end, and a commit's future cannot be dropped there; what else may end it halfway, an error of the fabric,
//! leaves it in doubt as anywhere.

use super::commit::{end_of_reading, release, secure};
use super::prepare::PACKED_BYTES;
use super::short_commit::{Weight, self as short};
use super::{Lotus, phase, enter};
use crate::site::Context;
use crate::steps::{begin_doubt, unknown};
use tarn_store::layout::{PACKED_VERSIONS_AT, VersionWord};
use tarn_store::log::versions::{decision, decision_at};
use tarn_store::ids::Failure;
use crate::services::timestamp::Timestamps;
use crate::transaction::working_set::Txn;
use tarn_fabric::address::Target;
use tarn_fabric::error::FabricError;
use tarn_fabric::local::DirectMemory;

/// Words of a slot from its first version on.
const VERSIONS_WORDS: usize = PACKED_BYTES / 8;

/// C1 to C4, of a transaction that writes nothing, or what [`short::weigh`] lets through where timestamps come without a wait and
/// the log area is free.
#[inline]
pub(super) fn commit(lotus: &Lotus, cx: &Context, txn: &mut Txn) -> Option<Result<(), Failure>> {
    let near = match cx.timestamps {
        Timestamps::Counter if txn.unlocking.is_empty() && !txn.left_unshown => cx.port.near()?,
        _ => return None,
    };
    match short::weigh(cx, txn) {
        Weight::Nothing => Some(end_of_reading(lotus, cx, txn)),
        Weight::Short(versions) => Some(write(lotus, cx, txn, (near, versions))),
        Weight::Any => None,
    }
}

/// C1 to C4, as of the short commit of [`super::commit`], of so many versions.
#[inline(never)]
pub(super) fn write(
    lotus: &Lotus,
    cx: &Context,
    txn: &mut Txn,
    (near, versions): (DirectMemory<'_>, usize),
) -> Result<(), Failure> {
    secure(lotus, cx, txn)?;
    let area = short::log_area(cx, txn);
    write_invisible(cx, txn, (near, area), versions)?;
    take_timestamp(cx, txn);
    decide_and_show(cx, txn, (near, area))?;
    release(lotus, cx, txn);
    Ok(())
}

/// C1: the log's entry, then the versions, INVISIBLE.
#[inline(never)]
fn write_invisible(
    cx: &Context,
    txn: &mut Txn,
    (near, area): (DirectMemory<'_>, Target),
    versions: usize,
) -> Result<(), Failure> {
    enter(cx, phase::INVISIBLE);
    let (log, len) = short::make_invisible(cx, txn, versions);
    begin_doubt(cx, txn);
    let Txn { entries, round, .. } = &*txn;
    let written = near.visit(area, |visit| {
        visit.followed();
        visit.write_private(area, round.words(log, len / 8))?;
        for entry in entries {
            if short::is_written(entry) {
                let to = entry.address.plus(PACKED_VERSIONS_AT).at(area.node());
                let next = short::next_image(entry).plus(PACKED_VERSIONS_AT);
                visit.write(to, round.array::<VERSIONS_WORDS>(next))?;
            }
        }
        Ok(())
    });
    written.map_err(|error: Box<FabricError>| left_in_doubt(cx, txn, *error))
}

/// C2.
#[inline(always)]
fn take_timestamp(cx: &Context, txn: &mut Txn) {
    enter(cx, phase::STAMP);
    short::stamp(cx, txn, cx.database().counter.next());
}

/// C3 and C4: the decision, then the versions, visible as of T_commit.
#[inline(never)]
fn decide_and_show(
    cx: &Context,
    txn: &mut Txn,
    (near, area): (DirectMemory<'_>, Target),
) -> Result<(), Failure> {
    enter(cx, phase::DECIDE);
    let Txn { entries, tag, stamps, .. } = &*txn;
    let visible = VersionWord::committed(stamps.commit).word();
    let shown = near.visit(area, |visit| {
        let at = area.plus(decision_at(cx.database().catalog.options().log_bytes));
        visit.write(at, &decision(*tag, stamps.commit))?;
        for entry in entries {
            if short::is_written(entry) {
                let version = PACKED_VERSIONS_AT + usize::from(entry.place) * 8;
                visit.write(entry.address.plus(version).at(area.node()), &[visible])?;
            }
        }
        Ok(())
    });
    shown.map_err(|error: Box<FabricError>| left_in_doubt(cx, txn, *error))
}

/// Some of it may have been written: whoever settles it must know what.
#[cold]
fn left_in_doubt(cx: &Context, txn: &mut Txn, error: FabricError) -> Failure {
    cx.port.note_failure(error);
    short::note_written(cx, txn);
    unknown(cx, txn)
}
