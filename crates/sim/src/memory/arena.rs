//! Room for pages: runs of words, found again by a number of 32 bits.
//!
//! Invariant: a run never straddles a chunk, and chunks never move. What is given back is used again
//! for runs of the same length, latest first.

use crate::prefetch::prefetch;

/// Words of one chunk: 1 MiB.
const CHUNK_WORDS: usize = 1 << 17;
/// The longest run.
pub(super) const RUN_WORDS_MAX: usize = 65;

/// Names a run. Zero and one name none.
pub(super) type RunIndex = u32;

/// See the module's text.
pub(super) struct Arena {
    chunks: Vec<Box<[u64]>>,
    /// First free word of the last chunk, counted from the start of all.
    next: usize,
    free: Vec<Vec<RunIndex>>,
}

impl Arena {
    pub(super) fn new() -> Arena {
        let free = (0..=RUN_WORDS_MAX).map(|_| Vec::new()).collect();
        let first = vec![0; CHUNK_WORDS].into_boxed_slice();
        Arena { chunks: vec![first], next: 2, free }
    }

    /// Room for `words`; what it holds is anybody's guess.
    pub(super) fn allocate(&mut self, words: usize) -> RunIndex {
        assert!(words <= RUN_WORDS_MAX);
        if let Some(index) = self.free[words].pop() {
            return index;
        }
        if self.next % CHUNK_WORDS + words > CHUNK_WORDS || self.next.is_multiple_of(CHUNK_WORDS) {
            self.next = self.chunks.len() * CHUNK_WORDS;
            self.chunks.push(vec![0; CHUNK_WORDS].into_boxed_slice());
        }
        let index = RunIndex::try_from(self.next).expect("32 GiB of simulated memory are in use");
        self.next += words;
        index
    }

    /// Takes a run back.
    pub(super) fn give_back(&mut self, index: RunIndex, words: usize) {
        self.free[words].push(index);
    }

    #[inline]
    pub(super) fn run(&self, index: RunIndex, words: usize) -> &[u64] {
        let index = index as usize;
        &self.chunks[index / CHUNK_WORDS][index % CHUNK_WORDS..][..words]
    }

    #[inline]
    pub(super) fn run_mut(&mut self, index: RunIndex, words: usize) -> &mut [u64] {
        let index = index as usize;
        &mut self.chunks[index / CHUNK_WORDS][index % CHUNK_WORDS..][..words]
    }

    /// Brings the line of a run's word.
    #[inline]
    pub(super) fn prefetch(&self, index: RunIndex, word: usize) {
        let index = index as usize + word;
        if let Some(chunk) = self.chunks.get(index / CHUNK_WORDS) {
            prefetch(chunk, index % CHUNK_WORDS);
        }
    }

    /// Bytes taken from the machine.
    pub(super) fn bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK_WORDS * 8) as u64
    }
}
