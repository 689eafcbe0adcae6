//! Room for lines that a replica has written: runs of one, two, four or eight lines. The name of a run
//! is the number of its first line.
//!
//! Invariant: each run lies within one chunk, and each line is aligned to a cache line of this
//! machine. The allocator reuses a run that was given back for a run of the same number of lines.
//! Among free runs of one length, the run that was given back last is used first.

use super::chunks::Chunks;
use super::own::RUN_MASK;
use super::words::CHUNK_WORDS;

/// The number of words in a line.
pub(super) const LINE_WORDS: usize = 8;
const CHUNK_LINES: usize = CHUNK_WORDS / LINE_WORDS;
/// The number of classes of runs. The lengths of the classes are 2 to the power of 0, 1, 2 and 3.
const CLASSES: usize = 4;

/// The allocator of runs of lines.
pub(super) struct Lines {
    /// The position of the first free line of the current chunk.
    next: usize,
    end: usize,
    earlier_lines: usize,
    free: [Vec<u32>; CLASSES],
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { next: 0, end: 0, earlier_lines: 0, free: [const { Vec::new() }; CLASSES] }
    }

    /// Allocates two to the power of `class` lines. The contents of the lines are arbitrary.
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
        assert!(self.end <= RUN_MASK as usize, "at most 64 GiB of simulated memory are in use");
    }

    /// Moves two to the power of `class` lines to another run, and takes the old run of these lines
    /// back.
    pub(super) fn move_run(&mut self, chunks: &mut Chunks, from: u32, to: u32, class: u32) {
        for line in 0..1 << class {
            *line_mut(chunks, to + line) = *self::line(chunks, from + line);
        }
        self.free[class as usize].push(from);
    }

    /// Returns the number of bytes that the allocator has handed out so far, including the bytes that
    /// were given back.
    pub(super) fn bytes(&self) -> u64 {
        let current = if self.end == 0 { 0 } else { CHUNK_LINES + self.next - self.end };
        ((self.earlier_lines + current) * LINE_WORDS * 8) as u64
    }
}

/// Returns one line.
#[inline(always)]
pub(super) fn line(chunks: &Chunks, index: u32) -> &[u64; LINE_WORDS] {
    chunks.tail(index as usize * LINE_WORDS).first_chunk().expect("chunks are whole lines")
}

/// Returns one line, mutable.
#[inline(always)]
pub(super) fn line_mut(chunks: &mut Chunks, index: u32) -> &mut [u64; LINE_WORDS] {
    chunks.tail_mut(index as usize * LINE_WORDS).first_chunk_mut().expect("chunks are whole lines")
}

/// Returns some successive lines of one run, mutable.
#[inline(always)]
pub(super) fn lines_mut(chunks: &mut Chunks, index: u32, count: usize) -> &mut [u64] {
    &mut chunks.tail_mut(index as usize * LINE_WORDS)[..count * LINE_WORDS]
}
