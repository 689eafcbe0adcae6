//! Room for pages and lines: chunks of memory that never change their addresses.
//!
//! Invariant: words are numbered through all chunks. A chunk has 16 MiB. The operating system
//! provides the pages of a chunk when they are first accessed. Images and lines are in chunks with
//! the same numbering. So a prefetch needs only the number of a word, and need not know whether the
//! word belongs to an image or to a line.

use super::words::{CHUNK_WORDS, Chunk};
use crate::prefetch::prefetch_range;

/// The chunks of one memory.
pub(super) struct Chunks(Vec<Chunk>);

impl Chunks {
    pub(super) fn new() -> Chunks {
        Chunks(Vec::new())
    }

    /// Adds a chunk of zeros. Returns the number of its first word.
    #[cold]
    pub(super) fn add(&mut self) -> usize {
        self.0.push(Chunk::zeroed());
        (self.0.len() - 1) * CHUNK_WORDS
    }

    /// Returns the words from `word` on to the end of the word's chunk.
    #[inline(always)]
    pub(super) fn tail(&self, word: usize) -> &[u64] {
        &self.0[word / CHUNK_WORDS].words()[word % CHUNK_WORDS..]
    }

    /// Returns the words from `word` on to the end of the word's chunk, mutable.
    #[inline(always)]
    pub(super) fn tail_mut(&mut self, word: usize) -> &mut [u64] {
        &mut self.0[word / CHUNK_WORDS].words_mut()[word % CHUNK_WORDS..]
    }

    /// Prefetches the cache line of a word and the next cache line.
    #[inline(always)]
    pub(super) fn prefetch_two(&self, word: usize) {
        if let Some(chunk) = self.0.get(word / CHUNK_WORDS) {
            prefetch_range(std::ptr::from_ref(&chunk.words()[word % CHUNK_WORDS]).cast(), 128);
        }
    }
}
