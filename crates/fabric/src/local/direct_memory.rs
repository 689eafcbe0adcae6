//! Access to memory nodes by loads and stores of this thread. Where there is no network, such accesses have the
//! effects of a round without a round.
//!
//! Invariant: a *visit* is like a round whose verbs are executed immediately when the caller names them. A visit
//! checks for faults at the same points as the execution of a round. Each access has the effect of its verb: lines
//! are atomic, and accesses are executed in the order of the calls. A full fence separates a WRITE from a later READ.
//! A visit that wrote ends with the same fence as a round, and the counters count it as a round. A thread never waits
//! inside a visit, because a revocation of the thread's access waits for the visit's end.
//!
//! Memory that is shared by loads and stores (CXL, one machine's threads) needs no posted verbs. A transaction that
//! accesses two dozen words would spend most of its instructions on creating and decoding verbs: see
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

/// The number of words of a line.
const LINE_WORDS: usize = LINE_BYTES / 8;

/// The error is boxed, so that a successful result fits into a register.
type Outcome<T> = Result<T, Box<FabricError>>;

/// One thread's access to near memory. See the module's documentation.
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

    /// Prefetches the lines that a visit will read, and their stripes. The visit will read `LINES` lines from each of
    /// `targets` on. The lines are fetched during [`DirectMemory::travel`].
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

    /// Does the same as [`DirectMemory::ask`], for lines of this node's own memory that the visit also uses. The
    /// caller may pass any address in a line. Lines of the node's own memory are prefetched together with the other
    /// lines, so that their page translations overlap too.
    #[inline(always)]
    pub fn ask_own(self, lines: impl Iterator<Item = *const u8>) {
        if self.hold.prefetch {
            lines.for_each(|line| self.hold.ahead.add_line(line));
        }
    }

    /// Lets the thread's other coroutines run while the prefetched lines are being fetched.
    #[inline(always)]
    pub fn travel(self) -> Travel<'a> {
        Travel { hold: self.hold, waits: false }
    }

    /// Does the same as [`crate::port::Port::open_window`]. While other rounds of this thread are in flight, the
    /// window may begin in the past. A window that begins in the past begins at the end of the window that this
    /// thread closed before its last window. The end of that window is one or two transactions earlier. So the thread
    /// need not read the clock.
    #[inline]
    pub fn open_window(self) -> Window {
        match self.hold.in_flight.get() {
            0 => self.hold.lease_clock.open_window(),
            _ => self.hold.readings.window(),
        }
    }

    /// Does the same as [`crate::port::Port::close_window`].
    #[inline]
    pub fn close_window(self, window: Window, lease: Nanos) -> Closed {
        self.hold.lease_clock.close_for(&self.hold.readings, window, lease)
    }

    /// Returns the write epoch before the first of several visits that must all see the memory of one moment. The
    /// caller must call this function after [`DirectMemory::travel`].
    #[inline(always)]
    pub fn moment(self) -> EpochSnapshot {
        self.hold.fabric.stillness.moment()
    }

    /// Returns whether no thread has announced writes since `since` ([`crate::port::Port::announce_writes`]). The
    /// caller must call this function after the last visit. If the result is true, the visits saw no value that a
    /// thread wrote after a later announcement. If a thread had announced its writes before `since`, the visits saw
    /// the locks of this thread, or the values that it wrote under these locks.
    #[inline(always)]
    pub fn is_still(self, since: EpochSnapshot) -> bool {
        self.hold.fabric.stillness.is_still(since)
    }

    /// Executes the accesses of `act` as one round. Most of these accesses should go to the node and group of
    /// `first`.
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
        // The end of a visit has the same fence as the end of a round.
        hold.unfenced.set(wrote && followed);
        if wrote && !followed {
            full_fence();
        }
        self.counters.round(tally);
        done
    }
}

/// A future that is pending once and then ready: see [`DirectMemory::travel`].
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
            // The drop, which follows at once, ends it.
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

/// The accesses that are possible inside a visit; see the module's documentation. The errors are the same as those of
/// a round. After an error, any part of the visit's earlier accesses may have been executed.
pub struct Visit<'a> {
    hold: &'a Hold,
    /// A target in the region `region`.
    first: Target,
    /// A copy of the region that the visit accessed last. Regions do not change during a visit.
    region: Region<'static>,
    wrote: bool,
    followed: bool,
    tally: VerbTally,
}

impl Visit<'_> {
    /// Promises the same as [`crate::round::Round::followed`].
    #[inline(always)]
    pub fn followed(&mut self) {
        self.followed = true;
    }

    /// Reads `lines` lines to find the first line whose word number `word` equals `wanted`. Copies this whole line
    /// and returns its number.
    ///
    /// # Errors
    /// The same errors as for a round.
    ///
    /// # Panics
    /// If `target` is not the beginning of a line, or if a line has no word number `word`. Both cases are bugs of the
    /// caller.
    #[inline(always)]
    pub fn find_line(
        &mut self,
        place: (Target, usize),
        sought: (usize, u64),
        to: &mut [u64; LINE_WORDS],
    ) -> Outcome<Option<usize>> {
        self.find_part::<1>(place, sought, to)
    }

    /// Does the same as [`Visit::find_line`], for lines of `PARTS` parts of equal length. The function searches the
    /// first part whose word number `word` equals `wanted`, and copies the line that contains this part. `find_part`
    /// returns the part's number, counted from the first part of the first line.
    ///
    /// # Errors
    /// The same errors as for a round.
    ///
    /// # Panics
    /// If `target` is not the beginning of a line, or if a part has no word number `word`. Both cases are bugs of the
    /// caller.
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
            // The processor cannot predict which of two parts has the wanted word, so the code chooses the part
            // without a conditional jump. The only conditional jump checks whether the chosen part has the wanted
            // word.
            let first = region.words_at(offset + (word * 8) as u64);
            // SAFETY: the word belongs to one of the lines, and the check above has shown that these lines lie in the
            // region.
            let part = usize::from(unsafe { (*first).load(Ordering::Acquire) } != wanted);
            let at = offset + (part / PARTS * LINE_BYTES) as u64;
            // SAFETY: as above, the line lies in the region.
            unsafe { copy_line(region, at, to) }.map_err(|()| torn(target))?;
            return Ok((to[part % PARTS * part_words + word] == wanted).then_some(part));
        }
        for part in 0..lines * PARTS {
            let word_at = (part * part_words + word) as u64 * 8;
            let word_at = region.words_at(offset + word_at);
            // SAFETY: the word belongs to one of the lines, and the check above has shown that these lines lie in the
            // region.
            if unsafe { (*word_at).load(Ordering::Acquire) } != wanted {
                continue;
            }
            let at = offset + (part / PARTS * LINE_BYTES) as u64;
            // SAFETY: as above, the line lies in the region.
            unsafe { copy_line(region, at, to) }.map_err(|()| torn(target))?;
            // The line may have changed between the check of its word and the copy.
            if to[part % PARTS * part_words + word] == wanted {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }

    /// Reads `WORDS` words that lie in one line.
    ///
    /// # Errors
    /// The same errors as for a round.
    ///
    /// # Panics
    /// If `target` is not the address of an aligned word, or if the words do not lie in one line. Both cases are bugs
    /// of the caller.
    #[inline(always)]
    pub fn read_words<const WORDS: usize>(&mut self, target: Target) -> Outcome<[u64; WORDS]> {
        const { assert!(WORDS > 1 && WORDS <= LINE_WORDS) };
        let offset = self.reach(target, WORDS * 8, 8)?;
        assert!(offset as usize % LINE_BYTES + WORDS * 8 <= LINE_BYTES, "words of one line");
        self.reads(WORDS * 8);
        let (region, mut to) = (self.region, [0; WORDS]);
        // SAFETY: the checks above have shown that the words lie in the region and in one line. `to` has room for the
        // words.
        let is_whole = region.is_checked()
            && unsafe { region.read_here(offset, to.as_mut_ptr(), WORDS * 8, true) };
        if !is_whole {
            copy_again(region, offset, &mut to).map_err(|()| torn(target))?;
        }
        Ok(to)
    }

    /// Writes `words` at `target`. The write is atomic within each line.
    ///
    /// # Errors
    /// The same errors as for a round.
    ///
    /// # Panics
    /// If `target` is not the address of an aligned word (a bug of the caller).
    #[inline(always)]
    pub fn write(&mut self, target: Target, words: &[u64]) -> Outcome<()> {
        self.write_guarded(target, words, words.len() > 1)
    }

    /// Does the same as [`crate::round::Round::write_private`].
    ///
    /// # Errors
    /// The same errors as for a round.
    ///
    /// # Panics
    /// If `target` is not the address of an aligned word (a bug of the caller).
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
        // SAFETY: both ranges are valid for `len` bytes of whole words. The check above has shown this for the
        // region's range, and the other range is a slice.
        let is_done =
            region.is_checked() && unsafe { region.write_here(offset, words.as_ptr(), len, how) };
        if is_done { Ok(()) } else { write_again(region, (target, offset), words, guarded) }
    }

    /// Counts a READ. If a WRITE came before the READ, the function executes a full fence.
    #[inline(always)]
    fn reads(&mut self, len_bytes: usize) {
        self.tally.add(VerbKind::Read, len_bytes);
        if std::mem::take(&mut self.wrote) {
            full_fence(); // as in `Region::run`
        }
    }

    /// Returns the offset of `target` in its region, after checking that `len_bytes` bytes from there lie in the
    /// region. The offset is a multiple of `unit`. If `target` lies in another region than `region`, the function
    /// sets `region` to that region.
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

/// Returns the region of a target that does not lie in the visit's present region, and the target's offset in that
/// region.
#[cold]
fn turn(hold: &Hold, target: Target, len_bytes: usize) -> Outcome<(Region<'static>, u64)> {
    let (region, offset) = (hold.kept_region(target).get(), target.address().offset_bytes());
    match region.contains(offset, len_bytes as u64) {
        true => Ok((region, offset)),
        false => Err(hold.refusal(target)),
    }
}

/// # Safety
/// The line at `offset` must lie in the region.
#[inline(always)]
unsafe fn copy_line(region: Region<'_>, offset: u64, to: &mut [u64; LINE_WORDS]) -> Result<(), ()> {
    // SAFETY: the caller guarantees the conditions under `Safety` of this function. `to` has the size of a line.
    let is_whole = region.is_checked()
        && unsafe { region.read_here(offset, to.as_mut_ptr(), LINE_BYTES, true) };
    if is_whole { Ok(()) } else { copy_again(region, offset, to) }
}

/// Copies words again if a writer changed them during the first copy, or if no stripes keep lines atomic.
#[cold]
fn copy_again(region: Region<'_>, offset: u64, to: &mut [u64]) -> Result<(), ()> {
    region.read_words(offset, to).map_err(|_| ())
}

/// Writes words if the fast path cannot: another writer holds the stripe, the words cross the end of a granule, or no
/// stripes keep lines atomic.
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
