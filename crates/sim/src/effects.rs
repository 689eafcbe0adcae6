//! What a verb does to memory.
//!
//! Invariant: the only code that executes verbs, whoever decides when: on arrival, a line at a time, or
//! at rest.

use crate::memory::{Memory, Replica};
use std::ops::Range;
use tarn_fabric::address::Target;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{Verb, VerbKind};

/// Where groups live: replica `i` of group `g` on node `(g + i) mod nodes`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) nodes: u16,
    pub(crate) replicas: u16,
}

impl Placement {
    /// Which replica a target is, if its node holds its group.
    #[inline]
    pub(crate) fn replica(self, target: Target) -> Option<Replica> {
        let (node, group) = (target.node().0, target.address().group());
        if node >= self.nodes || group.0 >= self.nodes {
            return None;
        }
        let index = if node >= group.0 { node - group.0 } else { node + self.nodes - group.0 };
        (index < self.replicas).then_some(Replica { group, index })
    }

    /// The replica, if all bytes of the verb lie in its memory.
    #[inline]
    pub(crate) fn locate(self, memory: &Memory, verb: &Verb) -> Result<Replica, FabricError> {
        let offset = verb.target.address().offset_bytes();
        self.replica(verb.target)
            .filter(|_| memory.contains(offset, verb.len_bytes()))
            .ok_or(FabricError::OutOfBounds(verb.target))
    }
}

/// Executes a whole verb; `data` is where its `buffer` points into.
#[inline]
pub(crate) fn execute(memory: &mut Memory, replica: Replica, verb: &mut Verb, data: &mut [u64]) {
    if verb.is(VerbKind::Read) || verb.is(VerbKind::Write) {
        transfer(memory, replica, verb, data, 0..verb.len_bytes());
    } else {
        atomic(memory, replica, verb, data);
    }
}

/// The part of a READ or WRITE in one of its pieces of `piece_bytes`, a line unless lines are torn.
pub(crate) fn execute_piece(
    memory: &mut Memory,
    replica: Replica,
    verb: &Verb,
    data: &mut [u64],
    (piece, piece_bytes): (u16, usize),
) {
    let into = verb.target.address().offset_bytes() as usize % piece_bytes;
    let from = (usize::from(piece) * piece_bytes).saturating_sub(into);
    let to = ((usize::from(piece) + 1) * piece_bytes - into).min(verb.len_bytes());
    transfer(memory, replica, verb, data, from..to);
}

/// How many pieces of `piece_bytes` a READ or WRITE touches.
pub(crate) fn pieces(verb: &Verb, piece_bytes: usize) -> u16 {
    let into = verb.target.address().offset_bytes() as usize % piece_bytes;
    (into + verb.len_bytes()).div_ceil(piece_bytes) as u16
}

#[inline]
fn transfer(
    memory: &mut Memory,
    replica: Replica,
    verb: &Verb,
    data: &mut [u64],
    part: Range<usize>,
) {
    let offset = verb.target.address().offset_bytes() + part.start as u64;
    let at = verb.buffer().0 as usize;
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
    let bytes = &mut bytes[at + part.start..at + part.end];
    if verb.is(VerbKind::Read) {
        memory.read(replica, offset, bytes);
    } else {
        memory.write(replica, offset, bytes);
    }
}

#[inline]
pub(crate) fn atomic(memory: &mut Memory, replica: Replica, verb: &mut Verb, data: &[u64]) {
    let offset = verb.target.address().offset_bytes();
    assert!(offset.is_multiple_of(8), "an atomic on a word that is not aligned");
    let (expected, value) = (verb.expected, verb.value);
    verb.value = if verb.is(VerbKind::CompareAndSwap) {
        memory.change_word(replica, offset, |found| (found == expected).then_some(value))
    } else if verb.is(VerbKind::FetchAndAdd) {
        memory.change_word(replica, offset, |found| Some(found.wrapping_add(expected)))
    } else {
        let at = verb.buffer().0 as usize / 8;
        let (compare, swap) = (data[at], data[at + 1]);
        memory.change_word(replica, offset, |found| {
            let equal = found & compare == expected & compare;
            equal.then_some((found & !swap) | (value & swap))
        })
    };
}
