//! A page as a map of its words that are not zero, then those words.
//!
//! Invariant: packing and unpacking a page gives the page. Loaded tables are mostly zeros (free slots,
//! padding, locks that nobody holds), so that a packed page takes a fifth of a plain one.

use super::PAGE_WORDS;
use super::arena::{Arena, RunIndex};
use std::ops::Range;

/// A packed page of zeros: no run.
pub(super) const ZEROS: RunIndex = 1;

fn run_words(map: u64) -> usize {
    1 + map.count_ones() as usize
}

/// Unpacks the words of `range` into the same places of `page`.
#[inline]
pub(super) fn unpack(
    arena: &Arena,
    index: RunIndex,
    range: Range<usize>,
    page: &mut [u64; PAGE_WORDS],
) {
    if index == ZEROS {
        page[range].fill(0);
        return;
    }
    let map = arena.run(index, 1)[0];
    let run = arena.run(index, run_words(map));
    let mut next = 1 + (map & ((1 << range.start) - 1)).count_ones() as usize;
    for word in range {
        let present = map >> word & 1;
        page[word] = if present == 1 { run[next] } else { 0 };
        next += present as usize;
    }
}

/// Packs `page` in place of the packed page `old`.
pub(super) fn repack(arena: &mut Arena, old: RunIndex, page: &[u64; PAGE_WORDS]) -> RunIndex {
    let map = page.iter().enumerate().fold(0, |map, (at, word)| map | u64::from(*word != 0) << at);
    let old_words = if old > ZEROS { run_words(arena.run(old, 1)[0]) } else { 0 };
    let words = if map == 0 { 0 } else { run_words(map) };
    let index = if words == old_words {
        old
    } else {
        if old_words > 0 {
            arena.give_back(old, old_words);
        }
        if words > 0 { arena.allocate(words) } else { ZEROS }
    };
    if words > 0 {
        let run = arena.run_mut(index, words);
        run[0] = map;
        let present = page.iter().filter(|word| **word != 0);
        run[1..].iter_mut().zip(present).for_each(|(to, from)| *to = *from);
    }
    index
}
