//! Memory nodes as loads and stores of this thread: the effects of a round, without a round, where
//! there is no network.
//!
//! Invariant: a *visit* is a round whose verbs are executed as they are named. It looks for faults
//! where a round's execution does. Each access is the access of its verb: whole lines, the order in
//! which they were named, a full fence between a WRITE and a later READ. The visit is over behind
//! the same fence, and is counted as that round. A thread never waits inside a visit: a revocation
//! of its access waits for the visit's end.
//!
//! Memory that is shared by loads and stores (CXL, one machine's threads) has no verbs to post. A
//! transaction of two dozen words would spend most of its instructions on naming them twice; see
//! docs/design/0006-embedded-speed.md.

use super::hold::Hold;
use super::preempt::point;
use super::region::{GRANULE_BYTES, Region};
use super::sync::{Ordering, full_fence};
use super::write_epoch::EpochSnapshot;
use crate::address::{LINE_BYTES, Target};
use crate::clock::Nanos;
use crate::counters::Counters;
use crate::error::FabricError;
use crate::executor::pending;
use crate::round::{VerbKind, VerbTally};
use crate::window::{Closed, Window};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Words of a line.
const LINE_WORDS: usize = LINE_BYTES / 8;

/// The error is boxed, so that success is a register.
type Outcome<T> = Result<T, Box<FabricError>>;

/// One thread's near memory; see the module's documentation.
#[derive(Clone, Copy)]
pub struct DirectMemory<'a> {
    hold: &'a Hold,
    counters: &'a Counters,
}

impl<'a> DirectMemory<'a> {
    #[inline(always)]
    pub(crate) fn new(hold: &'a Hold, counters: &'a Counters) -> DirectMemory<'a> {
        DirectMemory { hold, counters }
    }

    /// Asks for the lines that a visit will read, `LINES` from each of `targets` on, and for their
    /// stripes. They travel during [`DirectMemory::travel`].
    #[inline(always)]
    pub fn ask<const LINES: usize>(self, targets: impl Iterator<Item = Target>) {
        let hold = self.hold;
        if !hold.prefetch {
            return;
        }
        let mut targets = targets;
        let Some(mut beside) = targets.next() else { return };
        let (mut region, mut target) = (hold.kept_region(beside).get(), beside);
        loop {
            let mut offset = target.offset_beside(beside);
            if offset >= region.bytes() {
                // Most targets lie in one region.
                (region, beside) = (hold.kept_region(target).get(), target);
                offset = target.address().offset_bytes();
            }
            let (line, stripe) = region.places(offset);
            hold.ahead.add_lines::<LINES>(line, stripe);
            match targets.next() {
                Some(next) => target = next,
                None => return,
            }
        }
    }

    /// Like [`DirectMemory::ask`], for lines of this node's own memory that the visit uses too; any
    /// address in a line will do. They are asked for together with the others, so that their pages
    /// are translated side by side too.
    #[inline(always)]
    pub fn ask_own(self, lines: impl Iterator<Item = *const u8>) {
        if self.hold.prefetch {
            lines.for_each(|line| self.hold.ahead.add_line(line));
        }
    }

    /// Lets the thread's other coroutines run, while the lines that were asked for travel.
    #[inline(always)]
    pub fn travel(self) -> Travel<'a> {
        Travel { hold: self.hold, waits: false }
    }

    /// Like [`crate::port::Port::open_window`]. While other rounds of this thread are under way,
    /// the window may begin in the past: at the end of the last window but one that this thread
    /// closed. That is a transaction or two earlier, and saves a reading of the clock.
    #[inline]
    pub fn open_window(self) -> Window {
        match self.hold.in_flight.get() {
            0 => self.hold.lease_clock.open_window(),
            _ => self.hold.readings.window(),
        }
    }

    /// Like [`crate::port::Port::close_window`].
    #[inline]
    pub fn close_window(self, window: Window, lease: Nanos) -> Closed {
        self.hold.lease_clock.close_for(&self.hold.readings, window, lease)
    }

    /// Returns the epoch before the first of several visits that must see one moment; call it
    /// behind [`DirectMemory::travel`].
    #[inline(always)]
    pub fn moment(self) -> EpochSnapshot {
        self.hold.fabric.stillness.moment()
    }

    /// Call it behind the last visit. Returns whether no thread has announced writes since `since`
    /// ([`crate::port::Port::announce_writes`]). If so, nothing that the visits saw was written by
    /// a thread that announced later. Of a thread that had announced before, they saw the locks, or
    /// the values that replaced them.
    #[inline(always)]
    pub fn is_still(self, since: EpochSnapshot) -> bool {
        self.hold.fabric.stillness.is_still(since)
    }

    /// Does the accesses of `act` as one round. Most of them go to the node and group of `first`.
    #[inline(always)]
    pub fn visit<R>(self, first: Target, act: impl FnOnce(&mut Visit<'_>) -> R) -> R {
        let hold = self.hold;
        let _inside = hold.enter();
        let mut visit = Visit {
            hold,
            first,
            region: hold.kept_region(first).get(),
            wrote: hold.unfenced.get(),
            followed: false,
            tally: VerbTally::NONE,
        };
        let done = act(&mut visit);
        let Visit { wrote, followed, tally, .. } = visit;
        // The same as at the end of a round.
        hold.unfenced.set(wrote && followed);
        if wrote && !followed {
            full_fence();
        }
        self.counters.round(tally);
        done
    }
}

/// Pending once, then ready; see [`DirectMemory::travel`].
#[must_use = "futures do nothing until they are awaited"]
pub struct Travel<'a> {
    hold: &'a Hold,
    waits: bool,
}

impl Future for Travel<'_> {
    type Output = ();

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.waits {
            self.waits = false;
            self.hold.ended();
            return Poll::Ready(());
        }
        self.waits = true;
        let in_flight = self.hold.in_flight.get() + 1;
        self.hold.in_flight.set(in_flight);
        self.hold.ahead.posted(in_flight);
        pending(context)
    }
}

impl Drop for Travel<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            self.hold.ended();
        }
    }
}

/// The accesses that are possible inside a visit; see the module's documentation. Errors are those
/// of a round: after one, any part of the accesses named before may have been executed.
pub struct Visit<'a> {
    hold: &'a Hold,
    /// A target in the region that is at hand.
    first: Target,
    /// A copy of the kept region, taken when the visit began or came to this region. Kept regions
    /// do not change while a visit lasts.
    region: Region<'static>,
    wrote: bool,
    followed: bool,
    tally: VerbTally,
}

impl Visit<'_> {
    /// Like [`crate::round::Round::followed`].
    #[inline(always)]
    pub fn followed(&mut self) {
        self.followed = true;
    }

    /// READ of `lines` lines, of which one is wanted: the first whose word number `word` equals
    /// `wanted`. Copies that line whole and returns its number.
    ///
    /// # Errors
    /// Those of a round.
    ///
    /// # Panics
    /// If `target` is not a line's beginning, or `word` not in a line: the caller's bug.
    #[inline(always)]
    pub fn find_line(
        &mut self,
        place: (Target, usize),
        sought: (usize, u64),
        to: &mut [u64; LINE_WORDS],
    ) -> Outcome<Option<usize>> {
        self.find_part::<1>(place, sought, to)
    }

    /// Like [`Visit::find_line`], for lines of `PARTS` parts of equal length. Looks for the first
    /// part whose word number `word` equals `wanted`, copies the line that it is in, and returns
    /// the part's number, counted from the first part of the first line.
    ///
    /// # Errors
    /// Those of a round.
    ///
    /// # Panics
    /// If `target` is not a line's beginning, or `word` not in a part: the caller's bug.
    #[inline(always)]
    pub fn find_part<const PARTS: usize>(
        &mut self,
        (target, lines): (Target, usize),
        (word, wanted): (usize, u64),
        to: &mut [u64; LINE_WORDS],
    ) -> Outcome<Option<usize>> {
        const { assert!(PARTS > 0 && LINE_WORDS.is_multiple_of(PARTS)) };
        let part_words = LINE_WORDS / PARTS;
        assert!(word < part_words, "a word of the part");
        let offset = self.reach(target, lines * LINE_BYTES, LINE_BYTES)?;
        self.reads(lines * LINE_BYTES);
        let region = self.region;
        if lines * PARTS == 2 {
            // The processor cannot predict which of two parts it is, so the part is chosen without
            // a jump. The only jump is on whether the word is there.
            let first = region.words_at(offset + (word * 8) as u64);
            // SAFETY: a word of one of the lines, which were just found to lie in the region.
            let part = usize::from(unsafe { (*first).load(Ordering::Acquire) } != wanted);
            let at = offset + (part / PARTS * LINE_BYTES) as u64;
            // SAFETY: likewise.
            unsafe { copy_line(region, at, to) }.map_err(|()| torn(target))?;
            return Ok((to[part % PARTS * part_words + word] == wanted).then_some(part));
        }
        for part in 0..lines * PARTS {
            let word_at = (part * part_words + word) as u64 * 8;
            let word_at = region.words_at(offset + word_at);
            // SAFETY: a word of one of the lines, which were just found to lie in the region.
            if unsafe { (*word_at).load(Ordering::Acquire) } != wanted {
                continue;
            }
            let at = offset + (part / PARTS * LINE_BYTES) as u64;
            // SAFETY: likewise.
            unsafe { copy_line(region, at, to) }.map_err(|()| torn(target))?;
            // The line may have changed meanwhile.
            if to[part % PARTS * part_words + word] == wanted {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    /// READ of `WORDS` words that lie in one line.
    ///
    /// # Errors
    /// Those of a round.
    ///
    /// # Panics
    /// If `target` is not a word, or the words are not in one line: the caller's bug.
    #[inline(always)]
    pub fn read_words<const WORDS: usize>(&mut self, target: Target) -> Outcome<[u64; WORDS]> {
        const { assert!(WORDS > 1 && WORDS <= LINE_WORDS) };
        let offset = self.reach(target, WORDS * 8, 8)?;
        assert!(offset as usize % LINE_BYTES + WORDS * 8 <= LINE_BYTES, "words of one line");
        self.reads(WORDS * 8);
        let (region, mut to) = (self.region, [0; WORDS]);
        // SAFETY: they were just found to lie in the region, and in one line; `to` has room for them.
        let is_whole = region.is_checked()
            && unsafe { region.read_here(offset, to.as_mut_ptr(), WORDS * 8, true) };
        if !is_whole {
            copy_again(region, offset, &mut to).map_err(|()| torn(target))?;
        }
        Ok(to)
    }

    /// WRITE of words, whole within each line.
    ///
    /// # Errors
    /// Those of a round.
    ///
    /// # Panics
    /// If `target` is not a word: the caller's bug.
    #[inline(always)]
    pub fn write(&mut self, target: Target, words: &[u64]) -> Outcome<()> {
        self.write_guarded(target, words, words.len() > 1)
    }

    /// Like [`crate::round::Round::write_private`].
    ///
    /// # Errors
    /// Those of a round.
    ///
    /// # Panics
    /// If `target` is not a word: the caller's bug.
    #[inline(always)]
    pub fn write_private(&mut self, target: Target, words: &[u64]) -> Outcome<()> {
        self.write_guarded(target, words, false)
    }

    #[inline(always)]
    fn write_guarded(&mut self, target: Target, words: &[u64], guarded: bool) -> Outcome<()> {
        let len = size_of_val(words);
        let offset = self.reach(target, len, 8)?;
        self.wrote = true;
        self.tally.add(VerbKind::Write, len);
        let how = (guarded, offset % GRANULE_BYTES + len as u64 <= GRANULE_BYTES);
        let region = self.region;
        // SAFETY: both are valid for `len` bytes, whole words: the one was just compared, the other is a slice.
        let is_done =
            region.is_checked() && unsafe { region.write_here(offset, words.as_ptr(), len, how) };
        if is_done { Ok(()) } else { write_again(region, (target, offset), words, guarded) }
    }

    /// Counts a READ, and fences if a WRITE came before it.
    #[inline(always)]
    fn reads(&mut self, len_bytes: usize) {
        self.tally.add(VerbKind::Read, len_bytes);
        if std::mem::take(&mut self.wrote) {
            full_fence(); // as in `Region::run`
        }
    }

    /// Returns the offset of `len_bytes` from `target` on, a multiple of `unit`, in the region at
    /// hand. Another region comes to hand if need be.
    #[inline(always)]
    fn reach(&mut self, target: Target, len_bytes: usize, unit: usize) -> Outcome<u64> {
        point();
        let mut offset = target.offset_beside(self.first);
        let bytes = self.region.bytes();
        if offset >= bytes || len_bytes as u64 > bytes - offset {
            (self.region, offset) = turn(self.hold, target, len_bytes)?;
            self.first = target;
        }
        assert!(offset.is_multiple_of(unit as u64), "whole words, and lines from their beginning");
        Ok(offset)
    }
}

/// Returns the region of a target that is not in the region at hand, and the target's offset there.
#[cold]
fn turn(hold: &Hold, target: Target, len_bytes: usize) -> Outcome<(Region<'static>, u64)> {
    let (region, offset) = (hold.kept_region(target).get(), target.address().offset_bytes());
    match region.contains(offset, len_bytes as u64) {
        true => Ok((region, offset)),
        false => Err(hold.refusal(target)),
    }
}

/// # Safety
/// The line at `offset` lies in the region.
#[inline(always)]
unsafe fn copy_line(region: Region<'_>, offset: u64, to: &mut [u64; LINE_WORDS]) -> Result<(), ()> {
    // SAFETY: this function's contract; `to` is a line.
    let is_whole = region.is_checked()
        && unsafe { region.read_here(offset, to.as_mut_ptr(), LINE_BYTES, true) };
    if is_whole { Ok(()) } else { copy_again(region, offset, to) }
}

/// Copies when a writer was in the way, or when nothing keeps lines whole.
#[cold]
fn copy_again(region: Region<'_>, offset: u64, to: &mut [u64]) -> Result<(), ()> {
    region.read_words(offset, to).map_err(|_| ())
}

/// Writes when another writer or the end of a granule was in the way, or when nothing keeps lines
/// whole.
#[cold]
fn write_again(
    region: Region<'_>,
    (target, offset): (Target, u64),
    words: &[u64],
    guarded: bool,
) -> Outcome<()> {
    region.write_words(offset, words, guarded).map_err(|_| torn(target))
}

#[cold]
fn torn(target: Target) -> Box<FabricError> {
    Box::new(FabricError::TornLine(target))
}
