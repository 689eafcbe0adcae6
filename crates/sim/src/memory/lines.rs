//! Room for lines that some replica has written: runs of one, two, four or eight, which are found again
//! by the number of their first line.
//!
//! Invariant: a run never straddles a chunk, and lines lie on lines of this machine. A run that was given
//! back is used again for as many lines, latest first.

use super::chunks::Chunks;
use super::own::RUN_MASK;
use super::words::CHUNK_WORDS;

/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;
const CHUNK_LINES: usize = CHUNK_WORDS / LINE_WORDS;
/// Lengths of runs: 2 to the power of 0, 1, 2, 3.
const CLASSES: usize = 4;

/// See the module's text.
pub(super) struct Lines {
    /// Free lines of the current chunk.
    next: usize,
    end: usize,
    earlier_lines: usize,
    free: [Vec<u32>; CLASSES],
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { next: 0, end: 0, earlier_lines: 0, free: [const { Vec::new() }; CLASSES] }
    }

    /// Room for two to the power of `class` lines; what they hold is anybody's guess.
    #[inline(always)]
    pub(super) fn allocate(&mut self, chunks: &mut Chunks, class: u32) -> u32 {
        if let Some(index) = self.free[class as usize].pop() {
            return index;
        }
        if self.next + (1 << class) > self.end {
            self.next_chunk(chunks);
        }
        let index = self.next as u32;
        self.next += 1 << class;
        index
    }

    #[cold]
    fn next_chunk(&mut self, chunks: &mut Chunks) {
        self.earlier_lines += if self.end == 0 { 0 } else { CHUNK_LINES };
        self.next = chunks.add() / LINE_WORDS;
        self.end = self.next + CHUNK_LINES;
        assert!(self.end <= RUN_MASK as usize, "64 GiB of simulated memory are in use");
    }

    /// Moves two to the power of `class` lines to another run and takes theirs back.
    pub(super) fn move_run(&mut self, chunks: &mut Chunks, from: u32, to: u32, class: u32) {
        for line in 0..1 << class {
            *line_mut(chunks, to + line) = *self::line(chunks, from + line);
        }
        self.free[class as usize].push(from);
    }

    /// Bytes handed out so far, those that were given back included.
    pub(super) fn bytes(&self) -> u64 {
        let current = if self.end == 0 { 0 } else { CHUNK_LINES + self.next - self.end };
        ((self.earlier_lines + current) * LINE_WORDS * 8) as u64
    }
}

/// A line.
#[inline(always)]
pub(super) fn line(chunks: &Chunks, index: u32) -> &[u64; LINE_WORDS] {
    chunks.tail(index as usize * LINE_WORDS).first_chunk().expect("chunks are whole lines")
}

/// A line, to change.
#[inline(always)]
pub(super) fn line_mut(chunks: &mut Chunks, index: u32) -> &mut [u64; LINE_WORDS] {
    chunks.tail_mut(index as usize * LINE_WORDS).first_chunk_mut().expect("chunks are whole lines")
}

/// Some lines of one run.
#[inline(always)]
pub(super) fn lines_mut(chunks: &mut Chunks, index: u32, count: usize) -> &mut [u64] {
    &mut chunks.tail_mut(index as usize * LINE_WORDS)[..count * LINE_WORDS]
}
