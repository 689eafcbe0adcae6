//! Zeroed words in huge pages, where this machine has them.
//!
//! Invariant: a value owns its words and hands them out as slices only, so that borrowing is checked as
//! for any vector. A gigabyte that is visited at random in pages of 4 KiB costs a walk of the page
//! tables a visit; pages of 2 MiB spare most of them.

use std::ptr::NonNull;
use tarn_fabric::local::{Backing, Mapping};

/// Less than this comes from the heap: a small cluster is made and dropped in no time.
const MAPPED_BYTES_MIN: usize = 1 << 20;

/// Words of one chunk.
pub(super) const CHUNK_WORDS: usize = 1 << 21;

/// As many words as a chunk has: its length need not be read where it is looked into.
pub(super) struct Chunk {
    start: NonNull<[u64; CHUNK_WORDS]>,
    _mapping: Box<Mapping>,
}

impl Chunk {
    /// All zero.
    ///
    /// # Panics
    /// If the machine refuses the memory.
    pub(super) fn zeroed() -> Chunk {
        let mapping = map(CHUNK_WORDS * size_of::<u64>());
        Chunk { start: mapping.start().cast(), _mapping: Box::new(mapping) }
    }

    /// All words.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a mapping is a pointer")]
    pub(super) fn words(&self) -> &[u64; CHUNK_WORDS] {
        // SAFETY: `start` points to as many initialised words (zeroed pages, aligned to their size)
        // that `_mapping` keeps in place and that nobody else points to; `&self` borrows.
        unsafe { self.start.as_ref() }
    }

    /// All words.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a mapping is a pointer")]
    pub(super) fn words_mut(&mut self) -> &mut [u64; CHUNK_WORDS] {
        // SAFETY: as above; `&mut self` borrows for writing.
        unsafe { self.start.as_mut() }
    }
}

fn map(bytes: usize) -> Mapping {
    Mapping::new(bytes, Backing::Private)
        .unwrap_or_else(|error| panic!("{bytes} bytes of simulated memory: {error}"))
}

/// Who frees the words.
enum Owner {
    Heap(#[expect(dead_code, reason = "kept for its drop")] Vec<u64>),
    Mapped(#[expect(dead_code, reason = "kept for its drop")] Mapping),
}

/// See the module's text.
pub(super) struct Words {
    start: NonNull<u64>,
    len: usize,
    _owner: Owner,
}

impl Words {
    /// `len` words, all zero.
    ///
    /// # Panics
    /// If the machine refuses the memory.
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

    /// All words.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a mapping is a pointer")]
    pub(super) fn as_slice(&self) -> &[u64] {
        // SAFETY: `start` points to `len` initialised words (a vector's, or zeroed pages, aligned to
        // their size) that `_owner` keeps in place and that nobody else points to; `&self` borrows.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// All words.
    #[inline(always)]
    #[allow(unsafe_code, reason = "a mapping is a pointer")]
    pub(super) fn as_mut_slice(&mut self) -> &mut [u64] {
        // SAFETY: as above; `&mut self` borrows for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}
