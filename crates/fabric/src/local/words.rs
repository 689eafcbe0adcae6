//! Words of one process that its threads share, and hints for the processor that go with them.
//!
//! Invariant: the words are zero at first, and begin with a line. Many words lie in huge pages
//! where these are granted. Otherwise accesses to scattered words would miss the page's translation
//! as often as the line.

use super::ahead::prefetch_line;
use super::pages::{Backing, HUGE_BYTES, Mapping};
use crate::address::LINE_BYTES;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A line of words.
#[repr(C, align(64))]
#[derive(Default)]
struct Line([AtomicU64; LINE_BYTES / 8]);

const _: () = assert!(size_of::<Line>() == LINE_BYTES);

/// The memory's owner.
enum Kept {
    Mapped {
        _mapping: Mapping,
    },
    /// A vector: its memory stays where it is when it is moved, also for pointers taken before.
    Lines {
        _lines: Vec<Line>,
    },
}

/// Words that the threads of a process share; see the module's documentation.
pub struct Words {
    start: NonNull<AtomicU64>,
    count: usize,
    _kept: Kept,
}

// SAFETY: the memory is this value's own and is reached through atomics alone.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// Makes `count` words, all zero. The pages of a large number are touched only when they are
    /// used.
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
        // SAFETY: `start` is the beginning of `count` words or more, which `_kept` keeps where they are for as
        // long as this value lives; a mapping is zeroed memory, and zeros are words.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

/// Asks the processor to fetch the line of a word that will be written: a hint, without an effect.
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
