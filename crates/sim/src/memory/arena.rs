//! Room for packed pages: runs of words. A 32-bit number names each run.
//!
//! Invariant: each run lies within one chunk. The arena reuses a run that was given back for a run of
//! the same length. Among free runs of one length, the run that was given back last is used first.

use super::chunks::Chunks;
use super::words::CHUNK_WORDS;

/// The number of words in the longest run.
pub(super) const RUN_WORDS_MAX: usize = 65;

/// The name of a run. The values zero and one name no run.
pub(super) type RunIndex = u32;

/// The allocator of runs of words.
pub(super) struct Arena {
    /// The position of the first free word of the current chunk.
    next: usize,
    end: usize,
    /// The number of bytes in all chunks before the current chunk.
    earlier_bytes: u64,
    free: Vec<Vec<RunIndex>>,
}

impl Arena {
    pub(super) fn new(chunks: &mut Chunks) -> Arena {
        let start = chunks.add();
        assert!(start == 0, "no run is named by zero or one");
        let free = (0..=RUN_WORDS_MAX).map(|_| Vec::new()).collect();
        Arena { next: 2, end: CHUNK_WORDS, earlier_bytes: 0, free }
    }

    /// Allocates room for `words` words. The contents of the room are arbitrary.
    pub(super) fn allocate(&mut self, chunks: &mut Chunks, words: usize) -> RunIndex {
        assert!(words <= RUN_WORDS_MAX);
        if let Some(index) = self.free[words].pop() {
            return index;
        }
        if self.next + words > self.end {
            self.next = chunks.add();
            self.end = self.next + CHUNK_WORDS;
            self.earlier_bytes += (CHUNK_WORDS * 8) as u64;
        }
        let index = RunIndex::try_from(self.next).expect(
            "at most 32 GiB of simulated memory are \
                                                          in use",
        );
        self.next += words;
        index
    }

    /// Takes a run back, so that it can be used again.
    pub(super) fn give_back(&mut self, index: RunIndex, words: usize) {
        self.free[words].push(index);
    }

    /// Returns the number of bytes that the arena has handed out so far, including the bytes that
    /// were given back.
    pub(super) fn bytes(&self) -> u64 {
        self.earlier_bytes + ((CHUNK_WORDS + self.next - self.end) * 8) as u64
    }
}
