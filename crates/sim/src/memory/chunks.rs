//! Room for pages and lines: chunks of memory that never move.
//!
//! Invariant: words are numbered through all chunks. A chunk has 16 MiB, and the machine provides its
//! pages as they are touched. Images and lines lie in chunks with the same numbering, so a prefetch
//! finds either without asking which it is.

use super::words::{CHUNK_WORDS, Chunk};
use crate::prefetch::prefetch_range;

/// See the module's documentation.
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

    /// The words from `word` on to the end of its chunk.
    #[inline(always)]
    pub(super) fn tail(&self, word: usize) -> &[u64] {
        &self.0[word / CHUNK_WORDS].words()[word % CHUNK_WORDS..]
    }

    /// The same words, mutable.
    #[inline(always)]
    pub(super) fn tail_mut(&mut self, word: usize) -> &mut [u64] {
        &mut self.0[word / CHUNK_WORDS].words_mut()[word % CHUNK_WORDS..]
    }

    /// Prefetches the line of a word and the next line.
    #[inline(always)]
    pub(super) fn prefetch_two(&self, word: usize) {
        if let Some(chunk) = self.0.get(word / CHUNK_WORDS) {
            prefetch_range(std::ptr::from_ref(&chunk.words()[word % CHUNK_WORDS]).cast(), 128);
        }
    }
}
