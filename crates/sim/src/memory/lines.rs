//! Room for lines that some replica has written: runs of one, two, four or eight, which are found again
//! by the number of their first line.
//!
//! Invariant: a run never straddles a chunk, chunks never move, and lines lie on lines of this
//! machine. A run that was given back is used again for as many lines, latest first.

use super::words::Words;
use crate::prefetch::prefetch;

/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;
/// Lines of one chunk: 16 MiB, which the machine hands out as they are touched.
const CHUNK_LINES: usize = 1 << 18;
/// Lengths of runs: 2 to the power of 0, 1, 2, 3.
const CLASSES: usize = 4;

/// See the module's text.
pub(super) struct Lines {
    chunks: Vec<Words>,
    /// First free line of the last chunk, counted from the start of all.
    next: usize,
    free: [Vec<u32>; CLASSES],
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { chunks: Vec::new(), next: 0, free: [const { Vec::new() }; CLASSES] }
    }

    /// Room for two to the power of `class` lines; what they hold is anybody's guess.
    #[inline]
    pub(super) fn allocate(&mut self, class: u32) -> u32 {
        if let Some(index) = self.free[class as usize].pop() {
            return index;
        }
        if self.next % CHUNK_LINES + (1 << class) > CHUNK_LINES
            || self.next == self.chunks.len() * CHUNK_LINES
        {
            self.next = self.chunks.len() * CHUNK_LINES;
            self.chunks.push(Words::zeroed(CHUNK_LINES * LINE_WORDS));
        }
        let index = self.next as u32;
        self.next += 1 << class;
        assert!(
            self.next <= super::own::RUN_MASK as usize,
            "64 GiB of simulated memory were written"
        );
        index
    }

    /// Moves two to the power of `class` lines to another run and takes theirs back.
    pub(super) fn move_run(&mut self, from: u32, to: u32, class: u32) {
        for line in 0..1 << class {
            *self.line_mut(to + line) = *self.line(from + line);
        }
        self.give_back(from, class);
    }

    /// Takes a run back.
    fn give_back(&mut self, index: u32, class: u32) {
        self.free[class as usize].push(index);
    }

    #[inline(always)]
    pub(super) fn line(&self, index: u32) -> &[u64; LINE_WORDS] {
        let index = index as usize;
        let words = self.chunks[index / CHUNK_LINES].as_slice();
        words[index % CHUNK_LINES * LINE_WORDS..].first_chunk().expect("chunks are whole lines")
    }

    #[inline(always)]
    pub(super) fn line_mut(&mut self, index: u32) -> &mut [u64; LINE_WORDS] {
        let index = index as usize;
        let words = self.chunks[index / CHUNK_LINES].as_mut_slice();
        words[index % CHUNK_LINES * LINE_WORDS..].first_chunk_mut().expect("chunks are whole lines")
    }

    /// Some lines of one run.
    #[inline(always)]
    pub(super) fn lines_mut(&mut self, index: u32, count: usize) -> &mut [u64] {
        let index = index as usize;
        let words = self.chunks[index / CHUNK_LINES].as_mut_slice();
        &mut words[index % CHUNK_LINES * LINE_WORDS..][..count * LINE_WORDS]
    }

    /// Brings a line.
    #[inline(always)]
    pub(super) fn prefetch(&self, index: u32) {
        let index = index as usize;
        if let Some(chunk) = self.chunks.get(index / CHUNK_LINES) {
            prefetch(chunk.as_slice(), index % CHUNK_LINES * LINE_WORDS);
        }
    }

    /// Bytes handed out so far, those that were given back included.
    pub(super) fn bytes(&self) -> u64 {
        (self.next * LINE_WORDS * 8) as u64
    }
}
