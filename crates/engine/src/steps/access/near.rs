//! Reads records by loads instead of rounds, if the processor can load memory directly (near memory). This file finds
//! records, shows them to the caller and validates them.
//!
//! Invariant: each visit to memory takes the place of one round of [`super::fetch`] or [`super::validate`] (see
//! [`super::sought`]). The protocol decides the meaning of a LOCK word ([`Access::judge`]). All records of a visit
//! are handled before any record aborts the transaction. If a record is not in its bucket, the engine searches the
//! record by rounds. A transaction that has locks, or requests any lock, uses rounds for all its records.

use super::sought::{
    Found, LINE_WORDS, Outcome, Sought, Sum, Take, ask_bins, ask_strays, read_blocks, read_homes,
    strays,
};
use super::validate::{Seen, Spot, WARM_CHECKS, admit, judge_seen};
use super::{Access, Which, is_needless};
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::index::begin_lookup;
use crate::transaction::working_set::{Added, Entry, Handle, Progress, Txn};
use std::iter;
use tarn_fabric::address::LINE_BYTES;
use tarn_fabric::error::FabricError;
use tarn_fabric::local::DirectMemory;
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag};
use tarn_store::index::Ungrown;
use tarn_store::index::hash::home;
use tarn_store::placement::catalog::Table;

/// Returns whether loads will read an added record, unless the same fetch also gets records that need a round. The
/// transaction only notes the home bin of such a record, and plans no READ for the home bin.
#[inline(always)]
pub(super) fn notes(cx: &Context, txn: &Txn, table: &Table, mode: Mode) -> bool {
    mode == Mode::Read
        && txn.fetched + txn.noted == txn.entries.len()
        && !table.slot.is_out_of_line()
        && lies_near(cx, table)
}

/// Returns whether the bins of a table are whole cache lines of near memory.
#[inline(always)]
fn lies_near(cx: &Context, table: &Table) -> bool {
    // If a bucket had an odd number of half lines, its bins would not be whole lines.
    cx.is_near && table.geometry.bucket_bytes.is_multiple_of(LINE_BYTES)
}

/// Returns whether loads always read the records of this table. Loads can read the records of a table if each record,
/// with its key, fits into half a line or one line.
#[inline]
pub(super) fn reads_table(cx: &Context, table: &Table) -> bool {
    let is_short = table.slot.is_plain() && !table.slot.is_out_of_line();
    is_short && table.slot.full_key_bytes == 0 && !cx.remembers && lies_near(cx, table)
}

/// Returns the same answer as [`notes`], for several records of one table. The answer is valid for all records of
/// this table that the caller adds next for reading, if it adds no other records between.
#[inline]
pub(crate) fn notes_reads(cx: &Context, txn: &Txn, table: &Table) -> bool {
    !cx.remembers && table.slot.is_plain() && notes(cx, txn, table, Mode::Read)
}

/// Adds a record, as `add` does, of a table for which [`notes_reads`] has returned true. If the table has not grown,
/// `homes` computes the home bins of its records.
#[inline(always)]
pub(crate) fn note_read(
    cx: &Context,
    txn: &mut Txn,
    (table, homes): (&Table, Option<Ungrown>),
    added: Added,
) -> Handle {
    let Added { key, mode, cells, hash, .. } = added;
    let mut entry = Entry::new(table.id, key, mode, cells, Progress::Home);
    entry.address = match homes {
        Some(homes) => homes.home(hash),
        None => home(cx.lookup_context(), table, hash),
    };
    note(txn, &mut entry);
    txn.push(entry)
}

/// The value of an entry's field `image` if the record is only noted and has no image yet.
const NOTED: BufferOffset = BufferOffset(u32::MAX);

/// Notes a record for which [`notes`] returns true.
#[inline(always)]
pub(super) fn note(txn: &mut Txn, entry: &mut Entry) {
    entry.image = NOTED;
    txn.noted += 1;
}

/// Plans the READs of the noted records in a round, because the same fetch also has records that are not noted.
#[cold]
pub(super) fn plan_noted(cx: &Context, txn: &mut Txn) {
    let Txn { entries, round, at_home, noted, fetched, .. } = txn;
    for entry in entries[*fetched..].iter_mut().filter(|entry| entry.image == NOTED) {
        let target = cx.groups.primary(entry.address);
        entry.image = round.read(target, cx.table(entry.table).geometry.bin_bytes);
        *at_home += 1;
    }
    *noted = 0;
}

/// Begins a fetch that has only noted records: prefetches the cache lines of the records' home bins.
#[inline]
pub(crate) fn ask<'a>(cx: &'a Context, txn: &mut Txn) -> Option<DirectMemory<'a>> {
    let is_all = txn.noted > 0 && txn.fetched + txn.noted == txn.entries.len();
    let is_plain = txn.notes.is_plain() && txn.failed.is_none() && !txn.ordered.pending;
    if !is_all || !is_plain || !txn.is_read_only() {
        return None;
    }
    let near = cx.port.near()?;
    if !ask_homes(cx, txn, near) {
        return None;
    }
    txn.noted = 0;
    // If the caller drops the fetch, the transaction keeps this failure.
    txn.failed = Some(Failure::Usage);
    Some(near)
}

/// Prefetches the cache lines of the noted records' home bins. Returns whether the transaction still only reads all
/// these records; the caller may have requested more of a record since.
#[inline(always)]
fn ask_homes(cx: &Context, txn: &Txn, near: DirectMemory<'_>) -> bool {
    let wanted = &txn.entries[txn.fetched..];
    let (mut are_read, mut are_of_one, table) = (true, true, wanted[0].table);
    for entry in wanted {
        are_read &= entry.mode == Mode::Read && entry.progress == Progress::Home;
        are_of_one &= entry.table == table;
    }
    if are_of_one {
        let bins = wanted.iter().map(|entry| cx.groups.primary(entry.address));
        ask_bins(near, cx.table(table), bins);
    } else {
        for entry in wanted {
            let bin = iter::once(cx.groups.primary(entry.address));
            ask_bins(near, cx.table(entry.table), bin);
        }
    }
    are_read
}

/// Ends the fetch that [`ask`] has begun. Returns `None` if some records are not in their home bins. If [`read`]
/// returns `None`, [`fetch_strays`] continues the search for these records.
#[inline]
pub(crate) fn read(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Option<Result<(), Failure>> {
    let Txn { entries, round, fetched, tag, .. } = &mut *txn;
    let wanted = &mut entries[*fetched..];
    let (count, table) = (wanted.len(), cx.table(wanted[0].table));
    let image = round.reserve_lines(count * LINE_BYTES);
    let shown = show_homes(access, (cx, *tag), (near, table), (wanted, round, image));
    let shown = ended(cx, shown);
    txn.failed = shown.err();
    match shown {
        Ok(Sum { sought: 0, .. }) => txn.fetched += count,
        Ok(_) => {
            txn.read_near = true;
            return None;
        }
        Err(_) => {}
    }
    Some(shown.map(|_| ()))
}

/// The outcome of a visit to several records: either all records are shown, or another transaction has locked a
/// record.
type Shown = Outcome<Result<Sum, AbortReason>>;

fn ended(cx: &Context, shown: Shown) -> Result<Sum, Failure> {
    match shown {
        Ok(verdict) => verdict.map_err(Failure::from),
        Err(error) => Err(failed(cx, *error)),
    }
}

/// Shows the caller those of the given records that are in their home bins.
#[inline(never)]
pub(super) fn show_homes<S: Sought>(
    access: &impl Access,
    (cx, tag): (&Context, OwnerTag),
    memory: (DirectMemory<'_>, &Table),
    to: (&mut [S], &mut Round, BufferOffset),
) -> Shown {
    let mut admitting = Admitting { access, cx, tag, verdict: Ok(()) };
    let sum = read_homes(cx, memory, to, &mut admitting)?;
    Ok(admitting.verdict.map(|()| sum))
}

/// Shows the caller those records that earlier visits did not find and that are in their blocks.
#[inline(never)]
pub(super) fn show_strays<S: Sought>(
    access: &impl Access,
    (cx, tag): (&Context, OwnerTag),
    memory: (DirectMemory<'_>, &Table),
    (wanted, round): (&mut [S], &mut Round),
) -> Shown {
    strays(wanted).for_each(|_| access.enter(cx, Phase::Locate));
    let mut admitting = Admitting { access, cx, tag, verdict: Ok(()) };
    let sum = read_blocks(cx, memory, (wanted, round), &mut admitting)?;
    Ok(admitting.verdict.map(|()| sum))
}

/// Shows the caller the records that were found, except the records that another transaction has locked.
struct Admitting<'a, A> {
    access: &'a A,
    cx: &'a Context,
    tag: OwnerTag,
    verdict: Result<(), AbortReason>,
}

impl<A: Access, S: Sought> Take<S, LINE_WORDS> for Admitting<'_, A> {
    #[inline(always)]
    fn take(&mut self, sought: &mut S, _: &mut [u64; LINE_WORDS], found: Found) {
        let at = (found.slot.address(), found.lock);
        match admit(self.access, (self.cx, self.tag), Mode::Read, at) {
            Ok(marked) => sought.show(self.cx, found, marked),
            Err(reason) => self.verdict = self.verdict.and(Err(reason)),
        }
    }
}

/// Reads the buckets of the records that [`read`] has not found in their home bins, once the buckets' lines have had
/// time to arrive. Begins lookups in the index for the records that are not in their buckets either. The next round
/// of these index lookups finds the lines in the processor's cache.
///
/// # Errors
/// The same errors as a fetch.
#[inline(never)]
pub(crate) async fn fetch_strays(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    let near = cx.port.near().expect("where homes were near");
    // If the caller drops the fetch, the transaction keeps this failure.
    txn.failed = Some(Failure::Usage);
    let wanted = &txn.entries[txn.fetched..];
    let table = cx.table(wanted[0].table);
    ask_strays(cx, (near, table), wanted, false);
    near.travel().await;
    let Txn { entries, round, fetched, tag, .. } = &mut *txn;
    let wanted = &mut entries[*fetched..];
    let shown = ended(cx, show_strays(access, (cx, *tag), (near, table), (wanted, round)));
    ask_index_for_strays(cx, txn);
    let left = txn.entries[txn.fetched..].iter();
    txn.fetched += left.take_while(|entry| entry.progress == Progress::Done).count();
    txn.failed = shown.err();
    shown.map(|_| ())
}

/// Begins lookups in the index for the records that are in no slot of their buckets.
pub(crate) fn ask_index_for_strays(cx: &Context, txn: &mut Txn) {
    let Txn { entries, lookups, fetched, .. } = txn;
    let is_nowhere = |entry: &&mut Entry| entry.progress == Progress::Locate;
    for entry in entries[*fetched..].iter_mut().filter(is_nowhere) {
        begin_lookup(cx, entry, lookups, true);
    }
}

/// Returns the near memory, if it can be used and the records that the transaction has read are still in the
/// processor's cache.
#[inline]
pub(crate) fn ends_near<'a>(cx: &'a Context, txn: &Txn) -> Option<DirectMemory<'a>> {
    let is_warm = txn.entries.len() + txn.checks.len() <= WARM_CHECKS;
    if txn.is_read_only() && is_warm { cx.port.near() } else { None }
}

/// Does the same as [`super::validate_those`], for a transaction for which [`ends_near`] returns near memory.
///
/// # Errors
/// Returns the same errors as [`super::validate_those`].
#[inline]
pub(crate) fn validate(
    access: &impl Access,
    cx: &Context,
    txn: &Txn,
    (near, which): (DirectMemory<'_>, Which),
) -> Result<(), Failure> {
    let is_seen = match which {
        Which::Marked => !txn.entries.iter().any(|entry| entry.marked),
        Which::All | Which::Apart => is_needless(txn),
    };
    if is_seen || !access.keeps(Rule::ValidateReads) {
        return Ok(());
    }
    match look_again(access, (cx, txn.tag), near, which.seen(&txn.entries, &txn.checks)) {
        Ok(verdict) => verdict.map_err(Failure::from),
        Err(error) => Err(failed(cx, *error)),
    }
}

/// Validates the records that the transaction has read: reads their LOCK and VERSION again.
#[inline(never)]
pub(super) fn look_again<P: Spot>(
    access: &impl Access,
    (cx, tag): (&Context, OwnerTag),
    near: DirectMemory<'_>,
    seen: impl Iterator<Item = Seen<P>> + Clone,
) -> Outcome<Result<(), AbortReason>> {
    let Some((_, first, _)) = seen.clone().next() else { return Ok(Ok(())) };
    access.enter(cx, Phase::Validate);
    let mut verdict = Ok(());
    near.visit(first.target(cx), |visit| {
        for each in seen {
            let now = visit.read_words::<2>(each.1.target(cx))?;
            verdict = verdict.and(judge_seen(access, (cx, tag), each, (now, Mode::Read)));
        }
        Outcome::Ok(())
    })?;
    Ok(verdict)
}

#[cold]
pub(crate) fn failed(cx: &Context, error: FabricError) -> Failure {
    cx.port.note_failure(error).into()
}
