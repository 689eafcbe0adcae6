//! Memory nodes as loads and stores of this thread: what a round does where there is no network, without a round.
//!
//! Invariant: a *visit* is a round whose verbs are executed as they are named: it looks for faults where a round's
//! execution does, each access is what its verb would be (whole lines, the order in which they were named, a full fence
//! between a WRITE and what is read after it), and it is over behind the same fence. It is counted as that round. Nobody waits inside a
//! visit: whoever revokes this thread's access waits for its end.
//!
//! A memory that is shared by loads and stores (CXL, one machine's threads) has no verbs to post, and a transaction
//! that is two dozen words spends most of its instructions on naming them twice; see docs/design/0006-embedded-speed.md.

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

/// Boxed, so that success is a register.
type Outcome<T> = Result<T, Box<FabricError>>;

/// One thread's near memory; see the module's text.
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

    /// Lines that a visit will read, so many from each of `targets` on, and their stripes may be on their way: see
    /// [`DirectMemory::travel`].
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
                // Most lie in one region.
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

    /// As [`DirectMemory::ask`], lines of this node's own memory that are used with those, by any address in each: asked for side by
    /// side with them, so that their pages are translated side by side too.
    #[inline(always)]
    pub fn ask_own(self, lines: impl Iterator<Item = *const u8>) {
        if self.hold.prefetch {
            lines.for_each(|line| self.hold.ahead.add_line(line));
        }
    }

    /// Lets the thread's other coroutines run, while what was asked for travels.
    #[inline(always)]
    pub fn travel(self) -> Travel<'a> {
        Travel { hold: self.hold, waits: false }
    }

    /// As [`crate::port::Port::open_window`]. Where others of this thread are under way the window may have begun a while ago, when two of theirs
    /// had closed; that is a matter of a transaction or two, and saves a reading of the clock.
    #[inline]
    pub fn open_window(self) -> Window {
        match self.hold.in_flight.get() {
            0 => self.hold.lease_clock.open_window(),
            _ => self.hold.readings.window(),
        }
    }

    /// As [`crate::port::Port::close_window`].
    #[inline]
    pub fn close_window(self, window: Window, lease: Nanos) -> Closed {
        self.hold.lease_clock.close_for(&self.hold.readings, window, lease)
    }

    /// Before the first visit of what is to be seen as of one moment, behind [`DirectMemory::travel`].
    #[inline(always)]
    pub fn moment(self) -> EpochSnapshot {
        self.hold.fabric.stillness.moment()
    }

    /// Behind the last visit: whether nobody has announced writes since ([`crate::port::Port::announce_writes`]). Then nothing that was seen was
    /// written by anybody who announced it later, and the locks of whoever had announced it before were seen, or what came behind them.
    #[inline(always)]
    pub fn is_still(self, since: EpochSnapshot) -> bool {
        self.hold.fabric.stillness.is_still(since)
    }

    /// Does what `act` does as one round. Most of it goes to the node and group of `first`.
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
        // As at the end of a round.
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

/// What may be done inside; see the module's text. Errors are those of a round, after which any part of what was named before may
/// have been done.
pub struct Visit<'a> {
    hold: &'a Hold,
    /// In the region that is at hand.
    first: Target,
    /// As it was kept when the visit had begun, or came to it: nobody changes what is kept while a visit lasts.
    region: Region<'static>,
    wrote: bool,
    followed: bool,
    tally: VerbTally,
}

impl Visit<'_> {
    /// As [`crate::round::Round::followed`].
    #[inline(always)]
    pub fn followed(&mut self) {
        self.followed = true;
    }

    /// READ of `lines` lines, of which one is wanted: the first whose word number `word` is `wanted`. Which it is; it is
    /// copied whole.
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

    /// As [`Visit::find_line`], where each line has `PARTS` parts of equal length: of the first part whose word number `word` is
    /// `wanted`, which it is, counted from the first line's first; the line that it is in is copied whole.
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
            // Which of two it is nobody can foresee: it is found without a jump, and the jump is whether it is there.
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
            // It may have changed meanwhile.
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

    /// As [`crate::round::Round::write_private`].
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

    /// What every READ begins with.
    #[inline(always)]
    fn reads(&mut self, len_bytes: usize) {
        self.tally.add(VerbKind::Read, len_bytes);
        if std::mem::take(&mut self.wrote) {
            full_fence(); // as in `Region::run`
        }
    }

    /// Where `len_bytes` from `target` on, a multiple of `unit`, lie in the region at hand; another one comes to hand
    /// if need be.
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

/// The region of a target that is not in the one at hand, and where it is there.
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

/// A writer was in the way, or nothing keeps lines whole.
#[cold]
fn copy_again(region: Region<'_>, offset: u64, to: &mut [u64]) -> Result<(), ()> {
    region.read_words(offset, to).map_err(|_| ())
}

/// As [`copy_again`], or the end of a granule was.
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
