//! Records that are only read where memory is near: found, shown and looked at again by loads instead of rounds.
//!
//! Invariant: each visit stands where a round of [`super::fetch`] or [`super::validate`] would, with its checks and its fence, and what
//! it reads of a record is one whole line, as that would. A record is found by the same words: its key in a slot of its home, or of
//! its bucket, that is in use. What its LOCK word means the protocol says ([`Access::judge`]); all records are taken
//! in before any of them aborts the transaction. What is not in its bucket, and every transaction that has locks or asks for any, goes on as
//! anywhere.

use super::validate::{WARM_CHECKS, judge_seen};
use super::{Access, LockState, Which, is_needless};
use crate::cluster::rules::{Phase, Rule};
use crate::site::Context;
use crate::steps::index::begin_lookup;
use crate::transaction::working_set::{Added, Entry, Handle, Progress, Txn};
use std::iter;
use tarn_fabric::address::{Address, LINE_BYTES, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::local::{DirectMemory, Visit};
use tarn_fabric::round::BufferOffset;
use tarn_store::ids::{AbortReason, Failure, Mode, OwnerTag};
use tarn_store::index::hash::home;
use tarn_store::index::{Ungrown, hash_of};
use tarn_store::layout::{DIRECTORY_BYTES, Geometry, KEY_AT, LOCK_AT, VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

pub(super) const LINE_WORDS: usize = LINE_BYTES / 8;

/// Lines of a bin whose slots are lines.
pub(super) const BIN_LINES: usize = Geometry::SLOTS_PER_BIN;

type Outcome<T> = Result<T, Box<FabricError>>;

/// Whether a record that is added will be read by loads, if nothing else comes to the same fetch: its home is noted, and not asked for.
#[inline(always)]
pub(super) fn notes(cx: &Context, txn: &Txn, table: &Table, mode: Mode) -> bool {
    mode == Mode::Read
        && txn.fetched + txn.noted == txn.entries.len()
        && !table.slot.is_out_of_line()
        && lies_near(cx, table)
}

/// Whether the bins of a table are lines of near memory.
#[inline(always)]
fn lies_near(cx: &Context, table: &Table) -> bool {
    // Not in buckets of an odd number of halves.
    cx.is_near && table.geometry.bucket_bytes.is_multiple_of(LINE_BYTES)
}

/// Whether records of this table are read by loads, whichever way they are asked for: all of each, its key too, is in half a line or in a line.
#[inline]
pub(super) fn reads_table(cx: &Context, table: &Table) -> bool {
    let is_short = table.slot.is_plain() && !table.slot.is_out_of_line();
    is_short && table.slot.full_key_bytes == 0 && !cx.remembers && lies_near(cx, table)
}

/// As [`notes`], of all records of this table that are read and asked for next, with nothing in between.
#[inline]
pub(crate) fn notes_reads(cx: &Context, txn: &Txn, table: &Table) -> bool {
    !cx.remembers && table.slot.is_plain() && notes(cx, txn, table, Mode::Read)
}

/// As [`super::add`], of a record of a table that [`notes_reads`] has said yes to, and whose homes are these if it has not grown.
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

/// Where the image of what was noted is: nowhere yet.
const NOTED: BufferOffset = BufferOffset(u32::MAX);

/// Notes a record that [`notes`] says yes to.
#[inline(always)]
pub(super) fn note(txn: &mut Txn, entry: &mut Entry) {
    entry.image = NOTED;
    txn.noted += 1;
}

/// What was noted is asked for in a round after all: it has company that is not noted.
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

/// Begins a fetch of records that were noted, and of nothing else: asks for the lines of their homes.
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
    // What holds should the fetch be dropped.
    txn.failed = Some(Failure::Usage);
    Some(near)
}

/// Asks for the lines of the homes; whether they are all only to be read still: of one of them more may have been asked since.
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

#[inline(always)]
fn ask_bins(near: DirectMemory<'_>, table: &Table, bins: impl Iterator<Item = Target>) {
    match is_half(table) {
        true => near.ask::<1>(bins),
        false => near.ask::<BIN_LINES>(bins),
    }
}

/// Ends what [`ask`] has begun. `None`: some of it is not at home, and a fetch goes on with that, by [`fetch_strays`] first.
#[inline]
pub(crate) fn read(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Option<Result<(), Failure>> {
    let shown = match read_homes(access, cx, txn, near) {
        Ok(shown) => shown.map_err(Failure::from),
        Err(error) => Err(failed(cx, *error)),
    };
    txn.failed = shown.err();
    match shown {
        Ok(false) => {
            txn.read_near = true;
            None
        }
        ended => Some(ended.map(|_| ())),
    }
}

/// Reads the slots of what is to be fetched, at home; whether all were there. What was not stays [`Progress::Home`].
#[inline(never)]
fn read_homes(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Outcome<Result<bool, AbortReason>> {
    let Txn { entries, round, fetched, tag, .. } = txn;
    let wanted = &mut entries[*fetched..];
    let count = wanted.len();
    let mut image = round.reserve_lines(count * LINE_BYTES);
    let (lines, _) = round.words_mut(image, count * LINE_WORDS).as_chunks_mut();
    let first = cx.groups.primary(wanted[0].address);
    let (mut sum, mut table) = (Sum::default(), cx.table(wanted[0].table));
    near.visit(first, |visit| {
        for (entry, line) in wanted.iter_mut().zip(lines) {
            if entry.table != table.id {
                table = cx.table(entry.table);
            }
            let slots = entry.address;
            entry.image = image;
            sum.add(match is_half(table) {
                true => take::<2>(visit, (access, cx, *tag), (table, slots, 1), (entry, line)),
                false => {
                    take::<1>(visit, (access, cx, *tag), (table, slots, BIN_LINES), (entry, line))
                }
            }?);
            image = image.plus(LINE_BYTES);
        }
        Ok::<_, Box<FabricError>>(())
    })?;
    if sum.strays == 0 {
        *fetched += count;
    }
    Ok(sum.verdict())
}

/// What came of several records.
#[derive(Default)]
struct Sum {
    strays: usize,
    refused: bool,
}

impl Sum {
    #[inline(always)]
    fn add(&mut self, taken: Taken) {
        self.strays += usize::from(taken == Taken::NotThere);
        self.refused |= taken == Taken::Refused;
    }

    /// Whether all were there.
    fn verdict(self) -> Result<bool, AbortReason> {
        if self.refused { Err(AbortReason::ReadLocked) } else { Ok(self.strays == 0) }
    }
}

/// What came of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Shown,
    /// It is not in the slots that were looked at.
    NotThere,
    /// Another transaction has locked it.
    Refused,
}

/// Reads what [`read`] has not found at home, anywhere in its bucket, when its lines have had time to come. What is not there either
/// has the index to ask, whose next round finds these lines near.
///
/// # Errors
/// As a fetch.
#[inline(never)]
pub(crate) async fn fetch_strays(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
) -> Result<(), Failure> {
    let near = cx.port.near().expect("where homes were near");
    // What holds should the fetch be dropped.
    txn.failed = Some(Failure::Usage);
    for entry in strays(txn) {
        let table = cx.table(entry.table);
        ask_elsewhere(cx, near, (table, bucket(cx, table, entry.key), entry.address));
    }
    near.travel().await;
    let shown = match read_buckets(access, cx, txn, near) {
        Ok(shown) => shown.map_err(Failure::from),
        Err(error) => Err(failed(cx, *error)),
    };
    let left = txn.entries[txn.fetched..].iter();
    txn.fetched += left.take_while(|entry| entry.progress == Progress::Done).count();
    txn.failed = shown.err();
    shown
}

/// Asks for the lines of two more bins: a record that finds its own full takes the first slot of its bucket that is free, so that five in six
/// of those are in the first two bins that are not their own. The others are waited for where they are looked at.
#[inline(always)]
pub(super) fn ask_elsewhere(
    cx: &Context,
    near: DirectMemory<'_>,
    (table, bucket, own): (&Table, Address, Address),
) {
    let bins = bucket.plus(DIRECTORY_BYTES);
    let is_own_beside =
        own.to_word().wrapping_sub(bins.to_word()) / 2 < table.geometry.bin_bytes as u64;
    let bins = iter::once(cx.groups.primary(bins));
    match (is_half(table), is_own_beside) {
        (true, false) => near.ask::<2>(bins),
        (true, true) => near.ask::<3>(bins),
        (false, false) => near.ask::<{ 2 * BIN_LINES }>(bins),
        (false, true) => near.ask::<{ 3 * BIN_LINES }>(bins),
    }
}

fn strays(txn: &Txn) -> impl Iterator<Item = &Entry> {
    txn.entries[txn.fetched..].iter().filter(|entry| entry.progress == Progress::Home)
}

#[inline(never)]
fn read_buckets(
    access: &impl Access,
    cx: &Context,
    txn: &mut Txn,
    near: DirectMemory<'_>,
) -> Outcome<Result<(), AbortReason>> {
    let first = strays(txn).next().map(|stray| cx.groups.primary(stray.address));
    let Some(first) = first else { return Ok(Ok(())) };
    let Txn { entries, round, fetched, lookups, tag, .. } = txn;
    let mut sum = Sum::default();
    near.visit(first, |visit| {
        for entry in &mut entries[*fetched..] {
            if entry.progress != Progress::Home {
                continue;
            }
            access.enter(cx, Phase::Locate);
            let table = cx.table(entry.table);
            let slots = bucket(cx, table, entry.key).plus(DIRECTORY_BYTES);
            let lines = table.geometry.slots * table.slot.slot_bytes / LINE_BYTES;
            let line = round.array_mut(entry.image);
            let taken = match is_half(table) {
                true => take::<2>(visit, (access, cx, *tag), (table, slots, lines), (entry, line)),
                false => take::<1>(visit, (access, cx, *tag), (table, slots, lines), (entry, line)),
            }?;
            if taken == Taken::NotThere {
                begin_lookup(cx, entry, lookups, true);
            }
            sum.add(taken);
        }
        Ok::<_, Box<FabricError>>(())
    })?;
    Ok(sum.verdict().map(|_| ()))
}

/// The bucket that a key belongs to.
fn bucket(cx: &Context, table: &Table, key: u64) -> Address {
    let near = cx.lookup_context();
    near.view.place(near.catalog, table, hash_of(table, key)).bucket
}

#[inline(always)]
pub(super) fn is_half(table: &Table) -> bool {
    table.slot.slot_bytes < LINE_BYTES
}

/// Takes in the entry's record, if it is in one of these lines, of `PARTS` slots each: the line that it is in goes to `line`, which is where the
/// entry's image is.
#[inline(always)]
fn take<const PARTS: usize>(
    visit: &mut Visit<'_>,
    (access, cx, tag): (&impl Access, &Context, OwnerTag),
    (table, slots, lines): (&Table, Address, usize),
    (entry, line): (&mut Entry, &mut [u64; LINE_WORDS]),
) -> Outcome<Taken> {
    let place = (cx.groups.primary(slots), lines);
    let found = visit.find_part::<PARTS>(place, (KEY_AT / 8, entry.key), line)?;
    let Some(slot) = found else { return Ok(Taken::NotThere) };
    let slot_bytes = LINE_BYTES / PARTS;
    let within = slot % PARTS * slot_bytes;
    let [lock, version] = [LOCK_AT, VERSION_AT].map(|at| line[(within + at) / 8]);
    if !Version::from_word(version).is_present() {
        return Ok(Taken::NotThere);
    }
    entry.address = slots.plus(slot * slot_bytes);
    entry.image = entry.image.plus(within);
    if lock != 0 {
        match access.judge(lock, tag, Mode::Read) {
            LockState::Free => {}
            LockState::Marked => entry.marked = true,
            LockState::InTheWay | LockState::Taken => {
                cx.note_blocking_lock(entry.address, lock);
                return Ok(Taken::Refused);
            }
        }
    }
    if cx.remembers {
        cx.cache.borrow_mut().put(entry.table, entry.key, entry.address, entry.body);
    }
    entry.version = Version::from_word(version);
    entry.payload = entry.image.plus(table.slot.payload_at);
    (entry.found, entry.stable, entry.watched) = (true, true, true);
    entry.progress = Progress::Done;
    Ok(Taken::Shown)
}

/// The memory, if it is near and what a transaction has read need not be brought nearer to be looked at again there.
#[inline]
pub(crate) fn ends_near<'a>(cx: &'a Context, txn: &Txn) -> Option<DirectMemory<'a>> {
    let is_warm = txn.entries.len() + txn.checks.len() <= WARM_CHECKS;
    if txn.is_read_only() && is_warm { cx.port.near() } else { None }
}

/// As [`super::validate_those`], of a transaction that [`ends_near`].
///
/// # Errors
/// As there.
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
    match look_again(access, cx, txn, (near, which)) {
        Ok(verdict) => verdict.map_err(Failure::from),
        Err(error) => Err(failed(cx, *error)),
    }
}

/// LOCK and VERSION of what was read, again.
#[inline(never)]
fn look_again(
    access: &impl Access,
    cx: &Context,
    txn: &Txn,
    (near, which): (DirectMemory<'_>, Which),
) -> Outcome<Result<(), AbortReason>> {
    let mut seen = which.seen(txn);
    let Some((_, first, _)) = seen.clone().next() else { return Ok(Ok(())) };
    access.enter(cx, Phase::Validate);
    let mut verdict = Ok(());
    near.visit(cx.groups.primary(first), |visit| {
        for each in &mut seen {
            let (_, address, _) = each;
            let [lock, now] = visit.read_words::<2>(cx.groups.primary(address))?;
            verdict = verdict.and(judge_seen(access, cx, txn.tag, each, ([lock, now], Mode::Read)));
        }
        Ok::<_, Box<FabricError>>(())
    })?;
    Ok(verdict)
}

#[cold]
fn failed(cx: &Context, error: FabricError) -> Failure {
    cx.port.note_failure(error).into()
}
