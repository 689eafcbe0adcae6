//! Searches records by loads, if the processor can load memory directly (near memory). The searched records are
//! entries of a working set, or belong to a batch of reads.
//!
//! Invariant: each visit to memory takes the place of one round, with the same checks and the same memory fence. A
//! visit loads one whole cache line of a record, in the same way as a READ. Loads find a record by the same rule as
//! rounds: the record's key is in a used slot of its home bin or of its bucket. The caller decides how it handles a
//! found record ([`Take`]), and decides the meaning of the record's LOCK word.

use crate::site::Context;
use crate::steps::index::bucket_of;
use crate::transaction::working_set::{Entry, Progress};
use std::iter;
use tarn_fabric::address::{Address, LINE_BYTES, Target};
use tarn_fabric::error::FabricError;
use tarn_fabric::local::{DirectMemory, Visit};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::layout::{DIRECTORY_BYTES, Geometry, KEY_AT, LOCK_AT, VERSION_AT, Version};
use tarn_store::placement::catalog::Table;

/// The number of cache lines in a bin whose slots are one line each.
const BIN_LINES: usize = Geometry::SLOTS_PER_BIN;

/// The number of words in a cache line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / 8;

/// The outcome of a visit to memory, which may end in an error of the fabric.
pub(crate) type Outcome<T> = Result<T, Box<FabricError>>;

/// A record that loads search.
pub(crate) trait Sought {
    /// Returns the record's key.
    fn key(&self) -> u64;

    /// Returns the record's table. Most records of one transaction are in the table `at_hand`, so the function checks
    /// this table first.
    fn table<'c>(&self, cx: &'c Context, at_hand: &'c Table) -> &'c Table;

    /// Returns whether the record has not been found yet.
    fn is_sought(&self) -> bool;

    /// Returns the record's home bin. The home bin is valid only until the record is found, because the field then
    /// contains the record's slot.
    fn home(&self, cx: &Context) -> Target;

    /// Returns the place of the record's line in the round's buffer.
    fn line(&mut self) -> &mut BufferOffset;

    /// Notes that the record is not in its home bin.
    fn miss(&mut self) {}

    /// Shows the record to the caller, because the search has found the record. If `marked` is true, another
    /// transaction was about to write the record.
    fn show(&mut self, cx: &Context, found: Found, marked: bool);

    /// Returns the block to search if the record is not in its home bin.
    fn block(&self, cx: &Context, table: &Table) -> Address;

    /// Moves the search to the next block, because the record is not in this block. Returns whether there is a next
    /// block.
    ///
    /// # Errors
    /// The same errors as a round of [`super::fetch`].
    fn go_on(&mut self, visit: &mut Visit<'_>, block: Target) -> Outcome<bool>;
}

/// A record that a search has found.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// The record's slot.
    pub(crate) slot: Target,
    /// The place of the slot's image in the round's buffer.
    pub(crate) image: BufferOffset,
    /// The place of the payload in the slot's image, if the layout keeps the payload contiguous.
    pub(crate) payload: BufferOffset,
    /// The record's LOCK word.
    pub(crate) lock: u64,
    /// The record's version.
    pub(crate) version: Version,
}

/// Handles records that a search has found. Each record has `WORDS` words in the round's buffer; the first line of
/// these words contains the record's line.
pub(crate) trait Take<S, const WORDS: usize> {
    /// Handles one record that the search has found.
    fn take(&mut self, sought: &mut S, room: &mut [u64; WORDS], found: Found);
}

/// The outcome of a search for several records.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    /// The number of records that were not in the slots that the visit read.
    pub(crate) sought: usize,
    /// Whether any of the records is in no block of its bucket.
    pub(crate) nowhere: bool,
}

/// Prefetches the cache lines of these home bins.
#[inline(always)]
pub(crate) fn ask_bins(near: DirectMemory<'_>, table: &Table, bins: impl Iterator<Item = Target>) {
    match is_half(table) {
        true => near.ask::<1>(bins),
        false => near.ask::<BIN_LINES>(bins),
    }
}

#[inline(always)]
fn is_half(table: &Table) -> bool {
    table.slot.slot_bytes < LINE_BYTES
}

/// Reads the home bins of these records, most of which are in the table `table`. Each record has `WORDS` words of the
/// round's buffer, from the position `image` on. The function copies the record's line to the first of these `WORDS`
/// words. `to` handles the records that are in their home bins; the search for the other records continues.
#[inline(always)]
pub(crate) fn read_homes<S: Sought, const WORDS: usize>(
    cx: &Context,
    (near, mut table): (DirectMemory<'_>, &Table),
    (wanted, round, mut image): (&mut [S], &mut Round, BufferOffset),
    to: &mut impl Take<S, WORDS>,
) -> Outcome<Sum> {
    let (rooms, _) = round.words_mut(image, wanted.len() * WORDS).as_chunks_mut();
    let mut sum = Sum::default();
    near.visit(wanted[0].home(cx), |visit| {
        for (sought, room) in wanted.iter_mut().zip(rooms) {
            table = sought.table(cx, table);
            *sought.line() = image;
            image = image.plus(WORDS * 8);
            let slots = sought.home(cx);
            let is_there = match is_half(table) {
                true => look::<_, 2, WORDS>(visit, (table, slots, 1), (sought, room), to),
                false => look::<_, 1, WORDS>(visit, (table, slots, BIN_LINES), (sought, room), to),
            }?;
            if !is_there {
                sum.sought += 1;
                sought.miss();
            }
        }
        Outcome::Ok(())
    })?;
    Ok(sum)
}

/// Reads the blocks of the records that the search has not found yet. `to` handles the records that are in their
/// blocks. The search for the other records continues in the next block of the bucket's chain, unless the chain has
/// ended.
#[inline(always)]
pub(crate) fn read_blocks<S: Sought>(
    cx: &Context,
    (near, at_hand): (DirectMemory<'_>, &Table),
    (wanted, round): (&mut [S], &mut Round),
    to: &mut impl Take<S, LINE_WORDS>,
) -> Outcome<Sum> {
    let mut sum = Sum::default();
    let Some(first) = strays(wanted).next().map(|stray| stray.home(cx)) else { return Ok(sum) };
    near.visit(first, |visit| {
        for sought in wanted.iter_mut().filter(|sought| sought.is_sought()) {
            let table = sought.table(cx, at_hand);
            let block = cx.groups.primary(sought.block(cx, table));
            let lines = table.geometry.slots * table.slot.slot_bytes / LINE_BYTES;
            let place = (table, block.plus(DIRECTORY_BYTES), lines);
            let line = round.array_mut(*sought.line());
            let is_there = match is_half(table) {
                true => look::<_, 2, LINE_WORDS>(visit, place, (&mut *sought, line), to),
                false => look::<_, 1, LINE_WORDS>(visit, place, (&mut *sought, line), to),
            }?;
            if !is_there {
                sum.sought += 1;
                sum.nowhere |= !sought.go_on(visit, block)?;
            }
        }
        Outcome::Ok(())
    })?;
    Ok(sum)
}

/// Returns the records that the search has not found yet.
pub(crate) fn strays<S: Sought>(wanted: &[S]) -> impl Iterator<Item = &S> {
    wanted.iter().filter(|sought| sought.is_sought())
}

/// Prefetches cache lines of the blocks of the records that the search has not found yet. Of each bucket, the
/// function prefetches only the first two bins other than the record's home bin. A record whose home bin was full
/// took the first free slot of its bucket, so the two prefetched bins contain five in six of such records. The loads
/// of the other lines of the bucket, which the function does not prefetch, have to wait for memory.
#[inline(never)]
pub(crate) fn ask_strays(
    cx: &Context,
    (near, at_hand): (DirectMemory<'_>, &Table),
    wanted: &[impl Sought],
    is_of_chain: bool,
) {
    for sought in strays(wanted) {
        let table = sought.table(cx, at_hand);
        let block = cx.groups.primary(sought.block(cx, table));
        if is_of_chain {
            let lines = (0..table.geometry.bucket_bytes).step_by(LINE_BYTES);
            near.ask::<1>(lines.map(|line| block.plus(line)));
            continue;
        }
        let bins = block.plus(DIRECTORY_BYTES);
        let [own, first] = [sought.home(cx), bins].map(|it| it.address().to_word());
        let is_own_beside = own.wrapping_sub(first) / 2 < table.geometry.bin_bytes as u64;
        let bins = iter::once(bins);
        match (is_half(table), is_own_beside) {
            (true, false) => near.ask::<2>(bins),
            (true, true) => near.ask::<3>(bins),
            (false, false) => near.ask::<{ 2 * BIN_LINES }>(bins),
            (false, true) => near.ask::<{ 3 * BIN_LINES }>(bins),
        }
    }
}

/// Searches a record in `lines` lines from `slots` on, each with `PARTS` slots. The function copies the record's line
/// to the first line of `room`, and `to` handles the record. Returns whether the search has found the record.
#[inline(always)]
fn look<S: Sought, const PARTS: usize, const WORDS: usize>(
    visit: &mut Visit<'_>,
    (table, slots, lines): (&Table, Target, usize),
    (sought, room): (&mut S, &mut [u64; WORDS]),
    to: &mut impl Take<S, WORDS>,
) -> Outcome<bool> {
    let line: &mut [u64; LINE_WORDS] = room.first_chunk_mut().expect("a line at least");
    let found = visit.find_part::<PARTS>((slots, lines), (KEY_AT / 8, sought.key()), line)?;
    let Some(slot) = found else { return Ok(false) };
    let slot_bytes = LINE_BYTES / PARTS;
    let within = slot % PARTS * slot_bytes;
    let [lock, version] = [LOCK_AT, VERSION_AT].map(|at| line[(within + at) / 8]);
    let version = Version::from_word(version);
    if !version.is_present() {
        return Ok(false);
    }
    let (slot, image) = (slots.plus(slot * slot_bytes), sought.line().plus(within));
    let payload = image.plus(table.slot.payload_at);
    to.take(sought, room, Found { slot, image, payload, lock, version });
    Ok(true)
}

impl Sought for Entry {
    fn key(&self) -> u64 {
        self.key
    }

    #[inline(always)]
    fn table<'c>(&self, cx: &'c Context, at_hand: &'c Table) -> &'c Table {
        if self.table == at_hand.id { at_hand } else { cx.table(self.table) }
    }

    fn is_sought(&self) -> bool {
        self.progress == Progress::Home
    }

    #[inline(always)]
    fn home(&self, cx: &Context) -> Target {
        cx.groups.primary(self.address)
    }

    fn line(&mut self) -> &mut BufferOffset {
        &mut self.image
    }

    fn miss(&mut self) {
        self.progress = Progress::Home;
    }

    #[inline(always)]
    fn show(&mut self, cx: &Context, found: Found, marked: bool) {
        self.address = found.slot.address();
        (self.image, self.payload) = (found.image, found.payload);
        (self.version, self.marked) = (found.version, marked);
        if cx.remembers {
            cx.cache.borrow_mut().put(self.table, self.key, self.address, self.body);
        }
        (self.found, self.stable, self.watched) = (true, true, true);
        self.progress = Progress::Done;
    }

    fn block(&self, cx: &Context, table: &Table) -> Address {
        bucket_of(cx, table, self.key)
    }

    /// The next step is a lookup in the index, whose round finds these lines in the processor's cache.
    fn go_on(&mut self, _: &mut Visit<'_>, _: Target) -> Outcome<bool> {
        self.progress = Progress::Locate;
        Ok(true)
    }
}
