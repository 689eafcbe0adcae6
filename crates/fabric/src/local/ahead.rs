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

/// Most lines that are gathered.
const LINES: usize = 64;
/// So many lines keep the processor's fill buffers busy by themselves.
const ENOUGH_LINES: usize = 16;
/// One in so many of the rounds in flight may wait for others to be fetched with.
const SHARE: usize = 4;

/// One thread's gathered lines.
pub(super) struct Ahead {
    /// Addresses of lines; bit 0: to be written.
    lines: [usize; LINES],
    gathered: usize,
    rounds: usize,
    in_flight: usize,
}

impl Ahead {
    pub(super) fn new() -> Ahead {
        Ahead { lines: [0; LINES], gathered: 0, rounds: 0, in_flight: 0 }
    }

    /// One more line of the round being posted; any address will do.
    #[inline(always)]
    pub(super) fn add(&mut self, at: *const u8, to_write: bool) {
        if self.gathered == LINES {
            self.fetch();
        }
        self.lines[self.gathered] = (at as usize & !1) | usize::from(to_write);
        self.gathered += 1;
    }

    /// The round's lines have been added.
    #[inline(always)]
    pub(super) fn posted(&mut self) {
        self.in_flight += 1;
        self.rounds += 1;
        if self.rounds * SHARE >= self.in_flight || self.gathered >= ENOUGH_LINES {
            self.fetch();
        }
    }

    /// A posted round was completed or given up.
    #[inline(always)]
    pub(super) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    #[inline(always)]
    fn fetch(&mut self) {
        for &line in &self.lines[..self.gathered] {
            prefetch_line(line as *const u8, line & 1 != 0);
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
