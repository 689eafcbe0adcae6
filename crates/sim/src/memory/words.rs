//! Words that are all zero at first, in huge pages if this machine has huge pages.
//!
//! Invariant: a value owns its words and hands them out as slices only, so the compiler checks
//! borrows of the words as for any vector. With pages of 4 KiB, each random access to a gigabyte of
//! memory needs a walk of the page tables. Pages of 2 MiB avoid most of these walks.

use std::ptr::NonNull;
use tarn_fabric::local::{Backing, Mapping};

/// The smallest number of bytes that is mapped from the operating system. Smaller memory is allocated
/// on the heap, so that a small cluster is created and dropped quickly.
const MAPPED_BYTES_MIN: usize = 1 << 20;

/// The number of words in one chunk.
pub(super) const CHUNK_WORDS: usize = 1 << 21;

/// The words of a chunk. The length is a constant, so an access need not read the length.
pub(super) struct Chunk {
    start: NonNull<[u64; CHUNK_WORDS]>,
    _mapping: Box<Mapping>,
}

impl Chunk {
    /// Creates a chunk of zeros.
    ///
    /// # Panics
    /// If the operating system refuses the memory.
    pub(super) fn zeroed() -> Chunk {
        let mapping = map(CHUNK_WORDS * size_of::<u64>());
        Chunk { start: mapping.start().cast(), _mapping: Box::new(mapping) }
    }

    /// Returns all words.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a mapping is a pointer")]
    pub(super) fn words(&self) -> &[u64; CHUNK_WORDS] {
        // SAFETY: `start` points to `CHUNK_WORDS` initialised words (zeroed pages, aligned to their
        // size). `_mapping` keeps the words in place, and no other value points to the words. `&self`
        // borrows the words.
        unsafe { self.start.as_ref() }
    }

    /// Returns all words as a mutable slice.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a mapping is a pointer")]
    pub(super) fn words_mut(&mut self) -> &mut [u64; CHUNK_WORDS] {
        // SAFETY: the pointer is valid as in the shared access above. `&mut self` borrows the words for
        // writing.
        unsafe { self.start.as_mut() }
    }
}

fn map(bytes: usize) -> Mapping {
    Mapping::new(bytes, Backing::Private)
        .unwrap_or_else(|error| panic!("cannot map {bytes} bytes of simulated memory: {error}"))
}

/// The owner of the words, which frees them.
enum Owner {
    Heap(#[expect(dead_code, reason = "kept for its drop")] Vec<u64>),
    Mapped(#[expect(dead_code, reason = "kept for its drop")] Mapping),
}

/// Words that are all zero at first.
pub(super) struct Words {
    start: NonNull<u64>,
    len: usize,
    _owner: Owner,
}

impl Words {
    /// Creates `len` words that are all zero.
    ///
    /// # Panics
    /// If the operating system refuses the memory.
    pub(super) fn zeroed(len: usize) -> Words {
        let bytes = len * size_of::<u64>();
        if bytes < MAPPED_BYTES_MIN {
            let mut words = vec![0u64; len];
            let start = NonNull::from(words.as_mut_slice()).cast();
            return Words { start, len, _owner: Owner::Heap(words) };
        }
        let mapping = map(bytes);
        Words { start: mapping.start().cast(), len, _owner: Owner::Mapped(mapping) }
    }

    /// Returns all words.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a mapping is a pointer")]
    pub(super) fn as_slice(&self) -> &[u64] {
        // SAFETY: `start` points to `len` initialised words (a vector's, or zeroed pages, aligned to
        // their size). `_owner` keeps the words in place, and no other value points to the words.
        // `&self` borrows the words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Returns all words as a mutable slice.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a mapping is a pointer")]
    pub(super) fn as_mut_slice(&mut self) -> &mut [u64] {
        // SAFETY: the pointer is valid as in the shared access above. `&mut self` borrows the words for
        // writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}
