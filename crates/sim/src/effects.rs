//! The effects of verbs on memory.
//!
//! Invariant: only the functions of this file execute verbs. These functions execute a verb on arrival,
//! one line after the other, or immediately while the cluster is at rest.

use crate::memory::{Memory, Place, Replica};
use std::ops::Range;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{Verb, VerbKind};

/// The places of groups: replica `i` of group `g` is on node `(g + i) mod nodes`. The slots after the
/// memory nodes are the slots of spare nodes. Each spare node has room for one more copy of every
/// group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) nodes: u16,
    pub(crate) replicas: u16,
    pub(crate) spares: u16,
}

impl Placement {
    /// Returns the place of a verb's bytes in simulated memory. The place is `NOWHERE` if the verb's
    /// node does not hold the verb's group, or does not hold all of the bytes.
    #[inline(always)]
    pub(crate) fn place(self, memory: &Memory, verb: &Verb) -> Place {
        let (node, address) = (verb.target.node().0, verb.target.address());
        let group = address.group();
        let ahead = if node >= group.0 { 0 } else { self.nodes };
        let index = node.wrapping_add(ahead).wrapping_sub(group.0);
        if (node >= self.nodes) | (group.0 >= self.nodes) | (index >= self.replicas) {
            return self.place_on_spare(memory, verb);
        }
        memory.place(Replica { group, index }, address.offset_bytes(), verb.len_bytes())
    }

    #[cold]
    fn place_on_spare(self, memory: &Memory, verb: &Verb) -> Place {
        let (node, address) = (verb.target.node().0, verb.target.address());
        let spares = self.nodes..self.nodes + self.spares;
        if !spares.contains(&node) || address.group().0 >= self.nodes {
            return Place::NOWHERE;
        }
        let (group, index) = (address.group(), self.replicas + node - self.nodes);
        memory.place(Replica { group, index }, address.offset_bytes(), verb.len_bytes())
    }

    /// Returns the place of a verb's bytes in simulated memory, or an error if the bytes have no place.
    #[inline]
    pub(crate) fn locate(self, memory: &Memory, verb: &Verb) -> Result<Place, FabricError> {
        let place = self.place(memory, verb);
        if place == Place::NOWHERE { Err(out_of_bounds(verb)) } else { Ok(place) }
    }
}

/// Returns the error of a verb whose bytes have no place in the memory of its node.
#[cold]
pub(crate) fn out_of_bounds(verb: &Verb) -> FabricError {
    FabricError::OutOfBounds(verb.target)
}

/// Executes a whole verb. The verb's `buffer` is an offset into `data`.
#[inline(always)]
pub(crate) fn execute(memory: &mut Memory, place: Place, verb: &mut Verb, data: &mut [u64]) {
    let (at, len_bytes) = (verb.buffer().0 as usize, verb.len_bytes());
    if !verb.is(VerbKind::Read) && !verb.is(VerbKind::Write) {
        atomic(memory, place, verb, data);
    } else if (at | len_bytes).is_multiple_of(8) && place.is_aligned() {
        let words = &mut data[at / 8..][..len_bytes / 8];
        if verb.is(VerbKind::Read) {
            memory.read_words(place, words);
        } else {
            memory.write_words(place, words);
        }
    } else {
        transfer(memory, place, verb, data, 0..len_bytes);
    }
}

/// Executes the part of a READ or WRITE that lies in one piece of `piece_bytes`. A piece is a line, or
/// a word if the bug of torn lines is planted.
pub(crate) fn execute_piece(
    memory: &mut Memory,
    place: Place,
    verb: &Verb,
    data: &mut [u64],
    (piece, piece_bytes): (u16, usize),
) {
    let into = verb.target.address().offset_bytes() as usize % piece_bytes;
    let from = (usize::from(piece) * piece_bytes).saturating_sub(into);
    let to = ((usize::from(piece) + 1) * piece_bytes - into).min(verb.len_bytes());
    transfer(memory, place, verb, data, from..to);
}

/// Returns the number of pieces of `piece_bytes` bytes that a READ or WRITE touches.
pub(crate) fn pieces(verb: &Verb, piece_bytes: usize) -> u16 {
    let into = verb.target.address().offset_bytes() as usize % piece_bytes;
    (into + verb.len_bytes()).div_ceil(piece_bytes) as u16
}

/// Executes any part of a READ or WRITE.
#[inline(never)]
fn transfer(memory: &mut Memory, place: Place, verb: &Verb, data: &mut [u64], part: Range<usize>) {
    let at = verb.buffer().0 as usize;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
    let bytes = &mut bytes[at + part.start..at + part.end];
    let place = memory.further(place, part.start);
    if verb.is(VerbKind::Read) {
        memory.read_bytes(place, bytes);
    } else {
        memory.write_bytes(place, bytes);
    }
}

#[inline(always)]
fn atomic(memory: &mut Memory, place: Place, verb: &mut Verb, data: &[u64]) {
    assert!(place.is_aligned(), "an atomic on a word that is not aligned");
    let (expected, value) = (verb.expected, verb.value);
    let adds = verb.is(VerbKind::FetchAndAdd);
    // A plain CAS compares all bits and swaps all bits.
    let (compare, swap) = if verb.is(VerbKind::MaskedCompareAndSwap) {
        let at = verb.buffer().0 as usize / 8;
        (data[at], data[at + 1])
    } else {
        (u64::MAX, u64::MAX)
    };
    verb.value = memory.change_word(place, |found| {
        let equal = found & compare == expected & compare;
        let swapped = equal.then_some((found & !swap) | (value & swap));
        if adds { Some(found.wrapping_add(expected)) } else { swapped }
    });
}
