//! Prefetches the lines that posted rounds will access, for several rounds together.
//!
//! If the page translation of a prefetch misses in the TLB, the prefetch delays the instructions behind it. The
//! processor executes only a few hundred instructions ahead, which is less than one transaction. If several
//! prefetches directly follow each other, their page translations overlap. So this module gathers the lines of a
//! quarter of the rounds in flight and then prefetches them together. Meanwhile the lines of the other rounds are
//! being fetched. Psaropoulos et al. ("Interleaving with Coroutines", VLDB 2017) switch to another coroutine at every
//! cache miss. This module batches the misses of interleaved coroutines. docs/design/0006-embedded-speed.md states
//! the gain in speed.
//!
//! Invariant: prefetches are only hints. If a line is not prefetched, the processor fetches it when it is used.

use crate::address::LINE_BYTES;
use std::cell::Cell;

/// The maximum number of gathered lines, which is a power of two. The lines of stripes are counted too.
const LINES: usize = 256;
/// The maximum number of gathered lines of one verb. If a verb has more lines, the processor's own prefetcher fetches
/// the rest.
const RUN: usize = LINES / 2;
/// This number of gathered lines is enough to keep the processor's fill buffers busy.
const ENOUGH: usize = 96;
/// The gathered lines are prefetched when one of every `SHARE` rounds in flight has lines among them.
const SHARE: usize = 4;

/// The lines that one thread has gathered and not prefetched yet.
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

    /// Adds the lines of one more verb of the round that is being posted, and the line of the verb's stripe. The
    /// caller may pass any address in a line. Lines that will be written are few, so the function prefetches them
    /// immediately.
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

    /// Does the same as [`Ahead::add`], for `COUNT` whole lines that will be read.
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

    /// Does the same as [`Ahead::add_lines`], for one line of any memory. The line has no stripe, and may lie outside
    /// all regions.
    #[inline(always)]
    pub(super) fn add_line(&self, line: *const u8) {
        let gathered = self.gathered.get();
        self.lines[gathered % LINES].set(line);
        self.gathered.set(gathered + 1);
        if gathered + 1 >= LINES - RUN {
            self.fetch();
        }
    }

    /// Notes that all lines of a round have been added. `in_flight` is the number of rounds in flight, including this
    /// round.
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

/// Prefetches one line.
#[inline(always)]
pub(super) fn prefetch_line(line: *const u8, to_write: bool) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch does not change memory, and causes no fault for any address.
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
