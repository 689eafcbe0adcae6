//! Room for pages and lines: chunks of memory that never move.
//!
//! Invariant: words are numbered through all chunks; a chunk is 16 MiB, which the machine hands out as
//! they are touched. Images and lines lie in chunks of the same numbering, so that whoever looks ahead
//! finds either without asking which it is.

use super::words::Words;
use crate::prefetch::prefetch;

/// Words of one chunk.
pub(super) const CHUNK_WORDS: usize = 1 << 21;

/// See the module's text.
pub(super) struct Chunks(Vec<Words>);

impl Chunks {
    pub(super) fn new() -> Chunks {
        Chunks(Vec::new())
    }

    /// Adds a chunk of zeros; the number of its first word.
    #[cold]
    pub(super) fn add(&mut self) -> usize {
        self.0.push(Words::zeroed(CHUNK_WORDS));
        (self.0.len() - 1) * CHUNK_WORDS
    }

    /// From a word on to the end of its chunk.
    #[inline(always)]
    pub(super) fn from(&self, word: usize) -> &[u64] {
        &self.0[word / CHUNK_WORDS].as_slice()[word % CHUNK_WORDS..]
    }

    /// As above.
    #[inline(always)]
    pub(super) fn from_mut(&mut self, word: usize) -> &mut [u64] {
        &mut self.0[word / CHUNK_WORDS].as_mut_slice()[word % CHUNK_WORDS..]
    }

    /// Brings the line of a word and the next one.
    #[inline(always)]
    pub(super) fn prefetch_two(&self, word: usize) {
        if let Some(chunk) = self.0.get(word / CHUNK_WORDS) {
            prefetch(chunk.as_slice(), word % CHUNK_WORDS);
            prefetch(chunk.as_slice(), word % CHUNK_WORDS + 8);
        }
    }
}
