//! The memory of all memory nodes of an explored cluster, in one small flat array.
//!
//! Invariant: the digest of memory covers the words that differ from the image kept by
//! [`Memory::keep`]. The time to restore the image depends only on the number of lines that were
//! written. A line's number is its place in the whole memory. So two pieces access the same line if
//! they touch the same line number.

use super::hash::{Digest, mix};
use tarn_fabric::address::{LINE_BYTES, NodeSlot, Target};

/// The number of words in a line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / 8;

/// The number of a line of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LineId(pub(crate) u32);

/// The memory of all memory nodes.
pub(crate) struct Memory {
    words: Vec<u64>,
    image: Vec<u64>,
    written: Vec<bool>,
    dirty: Vec<u32>,
    nodes: u16,
    replicas: u16,
    /// The number of spare nodes after the other memory nodes. Each spare node has room for every
    /// group.
    spares: u16,
    group_bytes: u64,
    pub(crate) digest: Digest,
}

impl Memory {
    /// Creates memory filled with zeros.
    pub(crate) fn new(
        (nodes, spares): (usize, usize),
        replicas: usize,
        group_bytes: u64,
    ) -> Memory {
        let words = nodes * (replicas + spares) * group_bytes as usize / 8;
        Memory {
            words: vec![0; words],
            image: vec![0; words],
            written: vec![false; words / LINE_WORDS],
            dirty: Vec::new(),
            nodes: nodes as u16,
            replicas: replicas as u16,
            spares: spares as u16,
            group_bytes,
            digest: 0,
        }
    }

    /// Returns the number of lines in all memory.
    pub(crate) fn lines(&self) -> usize {
        self.written.len()
    }

    /// Returns the place of the `len_bytes` bytes from `target` on, in bytes from the start of all
    /// memory. The place is `None` if the memory has no such bytes.
    #[inline]
    pub(crate) fn place(&self, target: Target, len_bytes: usize) -> Option<usize> {
        let (node, address) = (target.node().0, target.address());
        let group = address.group().0;
        let end = address.offset_bytes() + len_bytes as u64;
        if group >= self.nodes || end > self.group_bytes {
            return None;
        }
        let region = self.region(node, group)?;
        Some((region * self.group_bytes + address.offset_bytes()) as usize)
    }

    /// Returns the position of a node's copy of a group, in units of `group_bytes`. The position is
    /// `None` if the node has no copy.
    fn region(&self, node: u16, group: u16) -> Option<u64> {
        let (nodes, group) = (u64::from(self.nodes), u64::from(group));
        let replicas = u64::from(self.replicas);
        if let Some(spare) = node.checked_sub(self.nodes) {
            let is_there = spare < self.spares;
            return is_there.then_some(nodes * (replicas + u64::from(spare)) + group);
        }
        let index = (u64::from(node) + nodes - group) % nodes;
        (index < replicas).then_some(group * replicas + index)
    }

    /// Returns the line of a place.
    #[inline]
    pub(crate) fn line(at: usize) -> LineId {
        LineId((at / LINE_BYTES) as u32)
    }

    /// Returns all words that contain at least one of the `len_bytes` bytes from `at` on.
    #[inline]
    pub(crate) fn touched(&self, at: usize, len_bytes: usize) -> &[u64] {
        &self.words[at / 8..(at + len_bytes).div_ceil(8)]
    }

    #[inline]
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        let bytes: &[u8] = bytemuck::cast_slice(&self.words);
        into.copy_from_slice(&bytes[at..at + into.len()]);
    }

    /// Writes bytes. Returns whether any byte changed.
    pub(crate) fn write(&mut self, at: usize, from: &[u8]) -> bool {
        let (mut done, mut changed) = (0, false);
        while done < from.len() {
            let place = at + done;
            let within = place % 8;
            let len = (8 - within).min(from.len() - done);
            let mut word = self.words[place / 8].to_ne_bytes();
            word[within..within + len].copy_from_slice(&from[done..done + len]);
            changed |= self.set(place / 8, u64::from_ne_bytes(word));
            done += len;
        }
        changed
    }

    /// Returns the aligned word at `at`.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        debug_assert!(at.is_multiple_of(8));
        self.words[at / 8]
    }

    /// Sets the aligned word at `at`. Returns whether the word changed.
    #[inline]
    pub(crate) fn set_word(&mut self, at: usize, value: u64) -> bool {
        assert!(at.is_multiple_of(8), "an atomic on a word that is not aligned");
        self.set(at / 8, value)
    }

    #[inline]
    fn set(&mut self, index: usize, value: u64) -> bool {
        let old = self.words[index];
        if old == value {
            return false;
        }
        let line = index / LINE_WORDS;
        if !self.written[line] {
            self.written[line] = true;
            self.dirty.push(line as u32);
        }
        let (image, place) = (self.image[index], index as u64);
        if old != image {
            self.digest = self.digest.wrapping_sub(mix(place, old));
        }
        if value != image {
            self.digest = self.digest.wrapping_add(mix(place, value));
        }
        self.words[index] = value;
        true
    }

    /// Keeps the present contents as the image to which [`Memory::restore`] returns.
    pub(crate) fn keep(&mut self) {
        for line in self.dirty.drain(..) {
            let from = line as usize * LINE_WORDS;
            self.image[from..from + LINE_WORDS]
                .copy_from_slice(&self.words[from..from + LINE_WORDS]);
            self.written[line as usize] = false;
        }
        self.digest = 0;
    }

    /// Restores the image that was kept.
    pub(crate) fn restore(&mut self) {
        for line in self.dirty.drain(..) {
            let from = line as usize * LINE_WORDS;
            self.words[from..from + LINE_WORDS]
                .copy_from_slice(&self.image[from..from + LINE_WORDS]);
            self.written[line as usize] = false;
        }
        self.digest = 0;
    }

    /// Returns the nodes of each group, primary first.
    pub(crate) fn groups(&self) -> Vec<Vec<NodeSlot>> {
        let group = |group: u16| {
            (group..group + self.replicas).map(|node| NodeSlot(node % self.nodes)).collect()
        };
        (0..self.nodes).map(group).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Address, GroupId};

    fn at(node: u16, group: u16, offset: u64) -> Target {
        Address::new(GroupId(group), offset).at(NodeSlot(node))
    }

    #[test]
    fn replicas_lie_apart_and_nothing_lies_outside() {
        let memory = Memory::new((3, 1), 2, 128);
        assert_eq!(memory.groups()[2], [NodeSlot(2), NodeSlot(0)]);
        let mut seen = Vec::new();
        for group in 0..3 {
            for index in 0..2 {
                seen.push(memory.place(at((group + index) % 3, group, 64), 64).unwrap());
            }
        }
        // A spare node has room for each group.
        seen.extend((0..3).map(|group| memory.place(at(3, group, 64), 64).unwrap()));
        seen.sort_unstable();
        assert_eq!(seen, [64, 192, 320, 448, 576, 704, 832, 960, 1088]);
        assert_eq!(memory.lines(), 18);
        assert_eq!(memory.place(at(2, 0, 0), 8), None);
        assert_eq!(memory.place(at(0, 0, 64), 65), None);
        assert_eq!(memory.place(at(4, 0, 0), 8), None);
    }

    #[test]
    fn the_digest_covers_changed_bytes() {
        let mut memory = Memory::new((1, 0), 1, 128);
        memory.set_word(8, 5);
        memory.keep();
        assert_eq!(memory.digest, 0);
        assert!(memory.write(13, &[1, 2, 3, 4, 5, 6]));
        let digest = memory.digest;
        assert_ne!(digest, 0);
        assert!(memory.write(64, &[9]));
        assert!(memory.write(64, &[0]));
        assert!(!memory.write(64, &[0]));
        assert_eq!(memory.digest, digest);
        memory.restore();
        assert_eq!((memory.digest, memory.word(8), memory.word(16)), (0, 5, 0));
    }
}
