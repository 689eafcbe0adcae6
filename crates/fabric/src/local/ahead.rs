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

/// Most lines that are gathered, those of stripes included: a power of two.
const LINES: usize = 128;
/// Most lines of one verb: of a longer one the processor's own prefetcher sees the rest coming.
const RUN: usize = LINES / 2;
/// So many lines keep the processor's fill buffers busy by themselves.
const ENOUGH: usize = 24;
/// One in so many of the rounds in flight may wait for others to be fetched with.
const SHARE: usize = 4;

/// One thread's gathered lines.
pub(super) struct Ahead {
    /// Addresses; an odd one is of a line that will be written.
    lines: [*const u8; LINES],
    gathered: usize,
    rounds: usize,
}

impl Ahead {
    pub(super) fn new() -> Ahead {
        Ahead { lines: [std::ptr::null(); LINES], gathered: 0, rounds: 0 }
    }

    /// The lines of one more verb of the round being posted, and its stripe's; any address in a
    /// line will do.
    #[inline(always)]
    pub(super) fn add(&mut self, first: *const u8, bytes: usize, stripe: *const u8, write: bool) {
        self.add_line(first, write);
        let end = first.addr() % LINE_BYTES + bytes;
        if end > LINE_BYTES {
            for further in 1..end.div_ceil(LINE_BYTES).min(RUN) {
                self.add_line(first.wrapping_add(further * LINE_BYTES), write);
            }
        }
        if bytes > 8 {
            self.add_line(stripe, write);
        }
        if self.gathered >= LINES - RUN {
            self.fetch();
        }
    }

    #[inline(always)]
    fn add_line(&mut self, line: *const u8, write: bool) {
        self.lines[self.gathered % LINES] = line.map_addr(|at| (at & !1) | usize::from(write));
        self.gathered += 1;
    }

    /// The round's lines have been added; so many rounds are in flight with it.
    #[inline(always)]
    pub(super) fn posted(&mut self, in_flight: usize) {
        self.rounds += 1;
        if self.rounds * SHARE >= in_flight || self.gathered >= ENOUGH {
            self.fetch();
        }
    }

    #[inline(never)]
    fn fetch(&mut self) {
        for &line in &self.lines[..self.gathered.min(LINES)] {
            prefetch_line(line, line.addr() & 1 != 0);
        }
        (self.gathered, self.rounds) = (0, 0);
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
