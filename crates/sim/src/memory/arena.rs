//! Room for pages: runs of words, found again by a number of 32 bits.
//!
//! Invariant: a run never straddles a chunk, and chunks never move. What is given back is used again
//! for runs of the same length, latest first.

use super::words::Words;
use crate::prefetch::prefetch;

/// Words of one chunk: 16 MiB, which the machine hands out as they are touched.
const CHUNK_WORDS: usize = 1 << 21;
/// The longest run.
pub(super) const RUN_WORDS_MAX: usize = 65;

/// Names a run. Zero and one name none.
pub(super) type RunIndex = u32;

/// See the module's text.
pub(super) struct Arena {
    chunks: Vec<Words>,
    /// First free word of the last chunk, counted from the start of all.
    next: usize,
    free: Vec<Vec<RunIndex>>,
}

impl Arena {
    pub(super) fn new() -> Arena {
        let free = (0..=RUN_WORDS_MAX).map(|_| Vec::new()).collect();
        Arena { chunks: vec![Words::zeroed(CHUNK_WORDS)], next: 2, free }
    }

    /// Room for `words`; what it holds is anybody's guess.
    pub(super) fn allocate(&mut self, words: usize) -> RunIndex {
        assert!(words <= RUN_WORDS_MAX);
        if let Some(index) = self.free[words].pop() {
            return index;
        }
        if self.next % CHUNK_WORDS + words > CHUNK_WORDS || self.next.is_multiple_of(CHUNK_WORDS) {
            self.next = self.chunks.len() * CHUNK_WORDS;
            self.chunks.push(Words::zeroed(CHUNK_WORDS));
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
        &self.chunks[index / CHUNK_WORDS].as_slice()[index % CHUNK_WORDS..][..words]
    }

    /// From a run on to the end of its chunk: for whoever reads its length there.
    #[inline(always)]
    pub(super) fn from(&self, index: RunIndex) -> &[u64] {
        let index = index as usize;
        &self.chunks[index / CHUNK_WORDS].as_slice()[index % CHUNK_WORDS..]
    }

    #[inline]
    pub(super) fn run_mut(&mut self, index: RunIndex, words: usize) -> &mut [u64] {
        let index = index as usize;
        &mut self.chunks[index / CHUNK_WORDS].as_mut_slice()[index % CHUNK_WORDS..][..words]
    }

    /// Brings the line of a run's word.
    #[inline]
    pub(super) fn prefetch(&self, index: RunIndex, word: usize) {
        let index = index as usize + word;
        if let Some(chunk) = self.chunks.get(index / CHUNK_WORDS) {
            prefetch(chunk.as_slice(), index % CHUNK_WORDS);
        }
    }

    /// Bytes handed out so far, those that were given back included.
    pub(super) fn bytes(&self) -> u64 {
        (self.next * 8) as u64
    }
}
