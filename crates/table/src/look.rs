//! Reads of one bin: the search for a key, and a copy of all entries.
//!
//! Invariant: a result is returned only after the header was read a second time and was equal. So all words of the
//! result were in the bin at one moment. Words of slots that the header does not show are never interpreted as keys or
//! values. They may be compared as words.
//!
//! The instructions that wait for a bin's line decide how far the processor can run ahead into the next operation. So
//! the search has few of them, and no branch on the slot.

use std::array;

use crate::bin::{Bin, Word};
use crate::header::{Header, SLOTS, SLOTS_INLINE};
use crate::index::Index;
use crate::sync::Ordering;

/// The slots of the bin's own line, as bits.
const INLINE_BITS: u32 = (1 << SLOTS_INLINE) - 1;

/// A test of the words of an entry.
pub(crate) trait Probe {
    /// Returns the word of the sought key, if a slot with another word has another key.
    fn word(&self) -> Option<Word>;

    /// Returns whether the key word may belong to the sought key.
    ///
    /// # Safety
    ///
    /// The word is the key of a slot that the header of its bin has shown.
    unsafe fn may_be(&self, key: Word) -> bool;

    /// Returns whether an entry whose key word passed is the sought one.
    ///
    /// # Safety
    ///
    /// The word is the value of the same slot, and the header is still equal. A box behind it is not freed during the
    /// call.
    unsafe fn is(&self, value: Word) -> bool;
}

/// An entry in a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) slot: u32,
    pub(crate) key: Word,
    pub(crate) value: Word,
}

/// The result of a search in one bin.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Look {
    Found(Found),
    /// No slot that was asked for has the key.
    Absent,
    /// The bin's header changed: search again.
    Changed,
}

/// Returns the present header of a bin.
#[inline(always)]
pub(crate) fn header_of(bin: &Bin) -> Header {
    Header(bin.header.load(Ordering::Acquire))
}

/// Returns whether the header is unchanged. `SeqCst`: a reader of boxes has announced itself before, and either the
/// thread that frees a box sees the announcement, or this load sees that the box's entry is gone.
#[inline(always)]
pub(crate) fn is_unchanged(bin: &Bin, header: Header) -> bool {
    bin.header.load(Ordering::SeqCst) == header.0
}

/// Returns the slots of a bin whose key words are equal to a word, as bits.
#[inline(always)]
pub(crate) fn same_words(keys: &[Word; SLOTS_INLINE as usize], word: Word) -> u32 {
    keys.iter().enumerate().fold(0, |bits, (at, key)| bits | u32::from(*key == word) << at)
}

/// Searches for a key in some slots of a bin, given as bits of the header's planes.
#[inline(always)]
pub(crate) fn look<P: Probe>(
    index: &Index,
    bin: &Bin,
    header: Header,
    slots: u32,
    probe: &P,
) -> Look {
    let keys: [Word; SLOTS_INLINE as usize] = array::from_fn(|at| bin.slots[at].key());
    let mut matches = 0;
    if let Some(word) = probe.word() {
        matches = same_words(&keys, word) & slots;
        if matches == 0 && !is_unchanged(bin, header) {
            return Look::Changed;
        }
    } else {
        if !is_unchanged(bin, header) {
            return Look::Changed;
        }
        for (at, key) in keys.into_iter().enumerate() {
            // SAFETY: the header shows the slot, and was equal after the word was read.
            let matched = slots >> at & 1 == 1 && unsafe { probe.may_be(key) };
            matches |= u32::from(matched) << at;
        }
    }
    while matches != 0 {
        let slot = matches.trailing_zeros();
        // SAFETY: `matches` has bits for the three slots of the bin only.
        let place = unsafe { bin.slots.get_unchecked(slot as usize) };
        let value = place.value();
        if !is_unchanged(bin, header) {
            return Look::Changed;
        }
        // SAFETY: the header was equal after the value was read. The caller protects boxes.
        if unsafe { probe.is(value) } {
            return Look::Found(Found { slot, key: keys[slot as usize], value });
        }
        matches &= matches - 1;
    }
    if slots & !INLINE_BITS == 0 {
        Look::Absent
    } else {
        look_at_lines(index, bin, header, slots, probe)
    }
}

/// Searches in the linked lines.
#[inline(never)]
fn look_at_lines<P: Probe>(
    index: &Index,
    bin: &Bin,
    header: Header,
    slots: u32,
    probe: &P,
) -> Look {
    let link = bin.link.load(Ordering::Acquire);
    let mut rest = slots & !INLINE_BITS;
    while rest != 0 {
        let slot = rest.trailing_zeros();
        rest &= rest - 1;
        let Some(place) = index.slot(bin, link, slot) else {
            return Look::Changed;
        };
        let (key, value) = (place.key(), place.value());
        if !is_unchanged(bin, header) {
            return Look::Changed;
        }
        // SAFETY: the header shows the slot, and was equal after both words were read. The caller protects boxes.
        if unsafe { probe.may_be(key) && probe.is(value) } {
            return Look::Found(Found { slot, key, value });
        }
    }
    Look::Absent
}

/// A copy of a bin's entries.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    entries: [Found; SLOTS as usize],
    count: usize,
    pub(crate) header: Header,
}

impl Snapshot {
    /// Copies the slots that `choose` names, or returns nothing if the header changed.
    pub(crate) fn of(index: &Index, bin: &Bin, choose: fn(Header) -> u32) -> Option<Self> {
        let header = header_of(bin);
        let none = Found { slot: 0, key: std::ptr::null_mut(), value: std::ptr::null_mut() };
        let mut copy = Self { entries: [none; SLOTS as usize], count: 0, header };
        let mut rest = choose(header);
        let link = if rest & !INLINE_BITS == 0 { 0 } else { bin.link.load(Ordering::Acquire) };
        while rest != 0 {
            let slot = rest.trailing_zeros();
            rest &= rest - 1;
            let place = index.slot(bin, link, slot)?;
            copy.entries[copy.count] = Found { slot, key: place.key(), value: place.value() };
            copy.count += 1;
        }
        is_unchanged(bin, header).then_some(copy)
    }

    /// Returns the entries.
    pub(crate) fn entries(&self) -> &[Found] {
        &self.entries[..self.count]
    }
}
