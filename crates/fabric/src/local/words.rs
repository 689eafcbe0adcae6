//! Words of memory that the threads of one process share, and prefetches of these words.
//!
//! Invariant: the words are zero at first, and the first word is at the beginning of a line. If there are many words,
//! they lie in huge pages if the operating system grants such pages. With plain pages, an access to a random word
//! would miss in the TLB as often as in the cache.

use super::ahead::prefetch_line;
use super::pages::{Backing, HUGE_BYTES, Mapping};
use crate::address::LINE_BYTES;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// One cache line of words.
#[repr(C, align(64))]
#[derive(Default)]
struct Line([AtomicU64; LINE_BYTES / 8]);

const _: () = assert!(size_of::<Line>() == LINE_BYTES);

/// The owner of the memory of the words.
enum Kept {
    Mapped {
        _mapping: Mapping,
    },
    /// The memory of a vector. When the vector is moved, its memory stays in place, so earlier pointers stay valid.
    Lines {
        _lines: Vec<Line>,
    },
}

/// Words of memory that the threads of a process share. See the module's documentation.
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
    _kept: Kept,
}

// SAFETY: this value owns the memory, and all accesses to it are atomic.
unsafe impl Send for Words {}
// SAFETY: the value owns the memory, and threads that share the value access the memory only by atomics.
unsafe impl Sync for Words {}

impl Words {
    /// Creates `count` words, which are all zero. If `count` is large, a page is allocated only when its first word
    /// is used.
    pub fn zeroed(count: usize) -> Words {
        let bytes = count * size_of::<AtomicU64>();
        if bytes >= HUGE_BYTES
            && let Ok(mapping) = Mapping::new(bytes, Backing::Private)
        {
            let start = mapping.start().cast();
            return Words { start, count, _kept: Kept::Mapped { _mapping: mapping } };
        }
        let lines: Vec<Line> = (0..bytes.div_ceil(LINE_BYTES)).map(|_| Line::default()).collect();
        let start = NonNull::from(lines.as_slice()).cast();
        Words { start, count, _kept: Kept::Lines { _lines: lines } }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: `start` points to at least `count` words. `_kept` keeps these words in place for as long as this
        // value exists. A mapping contains zeros, and zeros are valid words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

/// Prefetches the line of a word that will be written. The prefetch is only a hint and changes no data.
#[inline(always)]
pub fn fetch_to_write(word: &AtomicU64) {
    prefetch_line(std::ptr::from_ref(word).cast(), true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_begin_at_a_line_and_are_zero_in_any_number() {
        for count in [1, 8, 1000, HUGE_BYTES / 8 + 3] {
            let words = Words::zeroed(count);
            assert_eq!((words.len(), words.as_ptr().addr() % LINE_BYTES), (count, 0));
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            fetch_to_write(&words[count - 1]);
            words[count - 1].store(7, Ordering::Relaxed);
            assert_eq!(words[count - 1].load(Ordering::Relaxed), 7);
        }
    }
}
