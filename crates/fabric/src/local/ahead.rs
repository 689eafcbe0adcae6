//! Lines that posted rounds will touch, fetched ahead for several rounds at once.
//!
//! A prefetch whose page translation misses holds up the instructions behind it: the processor
//! looks only a few hundred instructions further, less than one transaction. Prefetches that stand
//! side by side translate side by side. So the lines of a quarter of the rounds in flight are
//! gathered and then fetched in one go; the others are on their way meanwhile. Psaropoulos et al.
//! ("Interleaving with Coroutines", VLDB 2017) interleave at every miss; this batches the misses of
//! the interleaved. What it is worth: docs/design/0006-embedded-speed.md.
//!
//! Invariant: a hint only. What is never fetched ahead is fetched when it is used.

use crate::address::LINE_BYTES;

/// Most verbs whose lines are gathered.
const RUNS: usize = 32;
/// So many lines keep the processor's fill buffers busy by themselves.
const ENOUGH_LINES: usize = 16;
/// One in so many of the rounds in flight may wait for others to be fetched with.
const SHARE: usize = 4;

/// The lines of one verb.
#[derive(Clone, Copy)]
pub(super) struct Run {
    /// The first line; any address will do.
    pub(super) first: *const u8,
    /// The stripe that guards it, or null.
    pub(super) stripe: *const u8,
    /// How many lines.
    pub(super) lines: u32,
    /// Whether they will be written.
    pub(super) to_write: bool,
}

/// One thread's gathered lines.
pub(super) struct Ahead {
    runs: [Run; RUNS],
    gathered: usize,
    lines: usize,
    rounds: usize,
    in_flight: usize,
}

impl Ahead {
    pub(super) fn new() -> Ahead {
        let none = std::ptr::null();
        let run = Run { first: none, stripe: none, lines: 0, to_write: false };
        Ahead { runs: [run; RUNS], gathered: 0, lines: 0, rounds: 0, in_flight: 0 }
    }

    /// The lines of one more verb of the round being posted.
    #[inline(always)]
    pub(super) fn add(&mut self, run: Run) {
        if self.gathered == RUNS {
            self.fetch();
        }
        self.runs[self.gathered] = run;
        self.gathered += 1;
        self.lines += run.lines as usize;
    }

    /// The round's lines have been added.
    #[inline(always)]
    pub(super) fn posted(&mut self) {
        self.in_flight += 1;
        self.rounds += 1;
        if self.rounds * SHARE >= self.in_flight || self.lines >= ENOUGH_LINES {
            self.fetch();
        }
    }

    /// A posted round was completed or given up.
    #[inline(always)]
    pub(super) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    #[inline(never)]
    fn fetch(&mut self) {
        for run in &self.runs[..self.gathered] {
            for line in 0..run.lines as usize {
                prefetch_line(run.first.wrapping_add(line * LINE_BYTES), run.to_write);
            }
            if !run.stripe.is_null() {
                prefetch_line(run.stripe, run.to_write);
            }
        }
        (self.gathered, self.lines, self.rounds) = (0, 0, 0);
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
