//! Lines that posted rounds will touch, fetched ahead for several rounds at once.
//!
//! A prefetch whose page translation misses holds up the instructions behind it: the processor
//! looks only a few hundred instructions further, less than one transaction. Prefetches that stand
//! side by side translate side by side. So the lines of a quarter of the rounds in flight are
//! gathered and then fetched together; the lines of the other rounds are on their way meanwhile.
//! Psaropoulos et al. ("Interleaving with Coroutines", VLDB 2017) interleave at every miss; this
//! module batches the misses of interleaved coroutines. docs/design/0006-embedded-speed.md has the
//! gain.
//!
//! Invariant: a hint only. A line that is not fetched ahead is fetched when it is used.

use crate::address::LINE_BYTES;
use std::cell::Cell;

/// Largest number of lines that are gathered, those of stripes included: a power of two.
const LINES: usize = 256;
/// Largest number of lines of one verb: the processor's own prefetcher foresees the rest of a
/// longer one.
const RUN: usize = LINES / 2;
/// This many lines keep the processor's fill buffers busy by themselves.
const ENOUGH: usize = 96;
/// Gathered lines are fetched when one in `SHARE` of the rounds in flight waits for them.
const SHARE: usize = 4;

/// One thread's gathered lines.
pub(super) struct Ahead {
    lines: [Cell<*const u8>; LINES],
    gathered: Cell<usize>,
    rounds: Cell<usize>,
}

impl Ahead {
    pub(super) fn new() -> Ahead {
        let lines = [const { Cell::new(std::ptr::null()) }; LINES];
        Ahead { lines, gathered: Cell::new(0), rounds: Cell::new(0) }
    }

    /// Adds the lines of one more verb of the round being posted, and the line of its stripe; any
    /// address in a line will do. Lines that will be written are few, and are fetched at once.
    #[inline(always)]
    pub(super) fn add(&self, first: *const u8, bytes: usize, stripe: *const u8, write: bool) {
        if write {
            return fetch_to_write(first, bytes, stripe);
        }
        let mut gathered = self.gathered.get();
        self.lines[gathered % LINES].set(first);
        gathered += 1;
        let end = first.addr() % LINE_BYTES + bytes;
        let mut further = LINE_BYTES;
        while further < end.min(RUN * LINE_BYTES) {
            self.lines[gathered % LINES].set(first.wrapping_add(further));
            (gathered, further) = (gathered + 1, further + LINE_BYTES);
        }
        if bytes > 8 {
            self.lines[gathered % LINES].set(stripe);
            gathered += 1;
        }
        self.gathered.set(gathered);
        if gathered >= LINES - RUN {
            self.fetch();
        }
    }

    /// Like [`Ahead::add`], for `COUNT` whole lines that will be read.
    #[inline(always)]
    pub(super) fn add_lines<const COUNT: usize>(&self, first: *const u8, stripe: *const u8) {
        const { assert!(COUNT < RUN) };
        let gathered = self.gathered.get();
        for line in 0..COUNT {
            self.lines[(gathered + line) % LINES].set(first.wrapping_add(line * LINE_BYTES));
        }
        self.lines[(gathered + COUNT) % LINES].set(stripe);
        self.gathered.set(gathered + COUNT + 1);
        if gathered + COUNT + 1 >= LINES - RUN {
            self.fetch();
        }
    }

    /// Like [`Ahead::add_lines`], for one line of any memory: without a stripe, perhaps outside all
    /// regions.
    #[inline(always)]
    pub(super) fn add_line(&self, line: *const u8) {
        let gathered = self.gathered.get();
        self.lines[gathered % LINES].set(line);
        self.gathered.set(gathered + 1);
        if gathered + 1 >= LINES - RUN {
            self.fetch();
        }
    }

    /// Says that all lines of a round have been added; with it, `in_flight` rounds are in flight.
    #[inline(always)]
    pub(super) fn posted(&self, in_flight: usize) {
        let rounds = self.rounds.get() + 1;
        self.rounds.set(rounds);
        if rounds * SHARE >= in_flight || self.gathered.get() >= ENOUGH {
            self.fetch();
        }
    }

    #[inline(never)]
    fn fetch(&self) {
        for line in &self.lines[..self.gathered.get().min(LINES)] {
            prefetch_line(line.get(), false);
        }
        self.gathered.set(0);
        self.rounds.set(0);
    }
}

#[inline(never)]
fn fetch_to_write(first: *const u8, bytes: usize, stripe: *const u8) {
    let end = (first.addr() % LINE_BYTES + bytes).min(RUN * LINE_BYTES);
    for further in (0..end).step_by(LINE_BYTES) {
        prefetch_line(first.wrapping_add(further), true);
    }
    if bytes > 8 {
        prefetch_line(stripe, true);
    }
}

/// Asks the processor to fetch a line.
#[inline(always)]
pub(super) fn prefetch_line(line: *const u8, to_write: bool) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on memory and faults on no address.
        unsafe {
            if to_write {
                _mm_prefetch::<_MM_HINT_ET0>(line.cast());
            } else {
                _mm_prefetch::<_MM_HINT_T0>(line.cast());
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (line, to_write);
}
