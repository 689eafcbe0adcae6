//! A packed page: a map of the page's words that are not zero, followed by these words.
//!
//! Invariant: a page that is packed and then unpacked is unchanged. Loaded tables are mostly zeros
//! (free slots, padding, free locks), so a packed page needs a fifth of the space of a plain page.

use super::PAGE_WORDS;
use super::arena::{Arena, RunIndex};
use super::chunks::Chunks;
use super::lines::LINE_WORDS;

/// The number that means a packed page of zeros. A page of zeros has no run.
pub(super) const ZEROS: RunIndex = 1;

fn run_words(map: u64) -> usize {
    1 + map.count_ones() as usize
}

/// Unpacks a page into `page`, which must be all zeros.
#[inline]
pub(super) fn unpack(chunks: &Chunks, index: RunIndex, page: &mut [u64; PAGE_WORDS]) {
    if index == ZEROS {
        return;
    }
    let run = chunks.tail(index as usize);
    let mut map = run[0];
    let run = &run[..run_words(map)];
    for word in &run[1..] {
        page[map.trailing_zeros() as usize % PAGE_WORDS] = *word;
        map &= map - 1;
    }
}

/// Unpacks the words of a page from word number `first` on. The number of words is at most the number
/// of words in a line.
#[inline(always)]
pub(super) fn unpack_words(chunks: &Chunks, index: RunIndex, first: usize, out: &mut [u64]) {
    let run = chunks.tail(index as usize);
    // A page of zeros has no run. For a page of zeros `run` begins with a word of another object, and
    // the code ignores this word.
    let map = if index == ZEROS { 0 } else { run[0] };
    let before = map & ((1 << first) - 1);
    let mut next = 1 + before.count_ones() as usize;
    let mut wanted = map >> first;
    if let Some(line) = out.first_chunk_mut::<LINE_WORDS>() {
        let mut wanted = wanted as u8;
        *line = [0; LINE_WORDS];
        while wanted != 0 {
            line[wanted.trailing_zeros() as usize % LINE_WORDS] = run[next];
            next += 1;
            wanted &= wanted - 1;
        }
        return;
    }
    for word in out {
        *word = 0;
        if wanted & 1 != 0 {
            *word = run[next];
            next += 1;
        }
        wanted >>= 1;
    }
}

/// Packs `page` and replaces the packed page `old` by the result.
pub(super) fn repack(
    (arena, chunks): (&mut Arena, &mut Chunks),
    old: RunIndex,
    page: &[u64; PAGE_WORDS],
) -> RunIndex {
    let map = page.iter().enumerate().fold(0, |map, (at, word)| map | u64::from(*word != 0) << at);
    let old_words = if old > ZEROS { run_words(chunks.tail(old as usize)[0]) } else { 0 };
    let words = if map == 0 { 0 } else { run_words(map) };
    let index = if words == old_words {
        old
    } else {
        if old_words > 0 {
            arena.give_back(old, old_words);
        }
        if words > 0 { arena.allocate(chunks, words) } else { ZEROS }
    };
    if words > 0 {
        let run = &mut chunks.tail_mut(index as usize)[..words];
        run[0] = map;
        let present = page.iter().filter(|word| **word != 0);
        run[1..].iter_mut().zip(present).for_each(|(to, from)| *to = *from);
    }
    index
}
