//! The memory of all memory nodes, which comes into being where it is written.
//!
//! Invariant: what a byte holds before anybody wrote it is a function of its address, the same at every
//! replica ([`InitialContents`], and on top of it what was stored while loading). Replicas share that
//! image. The first write to a page of 512 bytes at one replica makes a copy of the page for this
//! replica. So a database costs its packed image once, not once a replica, and a run costs the pages
//! that it changes. Why so: `docs/design/0007-simulated-memory.md`.
//!
//! ```text
//! table of a group, per page:  | image u32 | copy at replica 0 u32 | copy at replica 1 | … |
//! image: 0 not asked for yet, 1 zeros, else a packed page;   copy: 0 none, else 64 words
//! ```
//! One entry is read per access, mostly one line: at this size the table is not in the cache.

mod arena;
mod packed;
#[cfg(test)]
mod tests;
mod words;

use crate::prefetch::prefetch;
use arena::{Arena, RunIndex};
use packed::ZEROS;
use std::ops::Range;
use tarn_fabric::address::GroupId;
use words::Words;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 512;
/// Words of a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// What memory holds before anybody writes it.
pub trait InitialContents {
    /// Fills the page at `offset_bytes` of `group`, which is all zeros when it is handed over. Must
    /// give the same words whenever it is asked.
    fn fill(&self, group: GroupId, offset_bytes: u64, page: &mut [u64; PAGE_WORDS]);
}

/// Fresh memory.
pub struct Zeros;

impl InitialContents for Zeros {
    fn fill(&self, _: GroupId, _: u64, _: &mut [u64; PAGE_WORDS]) {}
}

/// A replica of a group: which copy of the group's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    /// The group.
    pub group: GroupId,
    /// Its position among the group's replicas; 0 is the primary.
    pub index: u16,
}

/// What the simulated memory takes on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryUse {
    /// Tables of pages.
    pub table_bytes: u64,
    /// The image that replicas share, and their copies.
    pub page_bytes: u64,
    /// Pages that some replica has written.
    pub copies: u64,
}

/// A group's table of pages.
struct Table(Words);

impl std::ops::Deref for Table {
    type Target = [RunIndex];

    #[inline(always)]
    fn deref(&self) -> &[RunIndex] {
        bytemuck::cast_slice(self.0.as_slice())
    }
}

impl std::ops::DerefMut for Table {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [RunIndex] {
        bytemuck::cast_slice_mut(self.0.as_mut_slice())
    }
}

/// See the module's text.
pub struct Memory {
    initial: Box<dyn InitialContents>,
    groups: Vec<Table>,
    arena: Arena,
    stride: usize,
    group_bytes: u64,
    copies: u64,
    loading: bool,
}

impl Memory {
    /// Memory of `groups` replica groups; while it is being loaded, writes change the shared image.
    pub fn new(
        groups: usize,
        replicas: usize,
        group_bytes: u64,
        initial: Box<dyn InitialContents>,
    ) -> Memory {
        let stride = 1 + replicas;
        let pages = group_bytes.div_ceil(PAGE_BYTES as u64) as usize;
        Memory {
            initial,
            groups: (0..groups)
                .map(|_| Table(Words::zeroed((pages * stride).div_ceil(2))))
                .collect(),
            arena: Arena::new(),
            stride,
            group_bytes,
            copies: 0,
            loading: true,
        }
    }

    /// From now on a write changes the replica that it is sent to.
    pub fn end_loading(&mut self) {
        self.loading = false;
    }

    /// Whether writes still change the shared image.
    pub fn is_loading(&self) -> bool {
        self.loading
    }

    /// Whether the bytes lie in a group's memory.
    #[inline]
    pub fn contains(&self, offset_bytes: u64, len_bytes: usize) -> bool {
        offset_bytes.checked_add(len_bytes as u64).is_some_and(|end| end <= self.group_bytes)
    }

    /// Copies bytes out.
    #[inline]
    pub fn read(&mut self, replica: Replica, offset_bytes: u64, out: &mut [u8]) {
        for (page, at, piece) in pieces(offset_bytes, out.len()) {
            self.read_piece(replica, page, at, &mut out[piece]);
        }
    }

    /// Copies bytes in.
    #[inline]
    pub fn write(&mut self, replica: Replica, offset_bytes: u64, bytes: &[u8]) {
        for (page, at, piece) in pieces(offset_bytes, bytes.len()) {
            if self.loading {
                self.write_image(replica, page, at, &bytes[piece]);
            } else {
                let words = self.copy_of(replica, page);
                let copy: &mut [u8] = bytemuck::cast_slice_mut(words);
                copy[at..at + piece.len()].copy_from_slice(&bytes[piece]);
            }
        }
    }

    /// The aligned word at `offset_bytes`.
    #[inline]
    pub fn word(&mut self, replica: Replica, offset_bytes: u64) -> u64 {
        debug_assert!(offset_bytes.is_multiple_of(8));
        let mut word = [0; 8];
        self.read(replica, offset_bytes, &mut word);
        u64::from_ne_bytes(word)
    }

    /// Sets the aligned word at `offset_bytes`.
    #[inline]
    pub fn set_word(&mut self, replica: Replica, offset_bytes: u64, word: u64) {
        debug_assert!(offset_bytes.is_multiple_of(8));
        self.write(replica, offset_bytes, &word.to_ne_bytes());
    }

    /// Brings the table's entry for a verb that will be executed some time.
    #[inline]
    pub(crate) fn prefetch_entry(&self, replica: Replica, offset_bytes: u64) {
        let page = offset_bytes as usize / PAGE_BYTES;
        prefetch(&self.groups[usize::from(replica.group.0)], page * self.stride);
    }

    /// Brings the lines that a verb will use soon; its entry should be there by now.
    #[inline]
    pub(crate) fn prefetch_lines(&self, replica: Replica, offset_bytes: u64, len_bytes: usize) {
        let (page, at) =
            (offset_bytes as usize / PAGE_BYTES, offset_bytes as usize % PAGE_BYTES / 8);
        let group = &self.groups[usize::from(replica.group.0)];
        let first = page * self.stride;
        let Some(&copy) = group.get(first + 1 + usize::from(replica.index)) else { return };
        if copy == 0 {
            return self.arena.prefetch(group[first], 0);
        }
        let end = (at + len_bytes.div_ceil(8)).min(PAGE_WORDS);
        (at..end).step_by(8).for_each(|word| self.arena.prefetch(copy, word));
    }

    /// What it takes on this machine.
    pub fn usage(&self) -> MemoryUse {
        let entries: usize = self.groups.iter().map(|table| table.len()).sum();
        MemoryUse {
            table_bytes: (entries * size_of::<RunIndex>()) as u64,
            page_bytes: self.arena.bytes(),
            copies: self.copies,
        }
    }

    #[inline]
    fn entry(&self, replica: Replica, page: usize) -> usize {
        debug_assert!(usize::from(replica.index) + 1 < self.stride);
        let first = page * self.stride;
        debug_assert!(first < self.groups[usize::from(replica.group.0)].len());
        first
    }

    #[inline]
    fn read_piece(&mut self, replica: Replica, page: usize, at: usize, out: &mut [u8]) {
        let first = self.entry(replica, page);
        let group = &self.groups[usize::from(replica.group.0)];
        let copy = group[first + 1 + usize::from(replica.index)];
        if copy != 0 {
            let bytes: &[u8] = bytemuck::cast_slice(self.arena.run(copy, PAGE_WORDS));
            out.copy_from_slice(&bytes[at..at + out.len()]);
            return;
        }
        let image = match group[first] {
            0 => self.ask_for(replica.group, page),
            image => image,
        };
        packed::unpack_bytes(&self.arena, image, at, out);
    }

    /// The page's image, asked for when it is first needed.
    #[cold]
    fn ask_for(&mut self, group: GroupId, page: usize) -> RunIndex {
        let mut words = [0; PAGE_WORDS];
        self.initial.fill(group, (page * PAGE_BYTES) as u64, &mut words);
        let image = packed::repack(&mut self.arena, ZEROS, &words);
        self.groups[usize::from(group.0)][page * self.stride] = image;
        image
    }

    fn image(&mut self, group: GroupId, page: usize) -> RunIndex {
        match self.groups[usize::from(group.0)][page * self.stride] {
            0 => self.ask_for(group, page),
            image => image,
        }
    }

    /// Loaders store the same bytes at every replica: whoever comes second finds them there.
    fn write_image(&mut self, replica: Replica, page: usize, at: usize, bytes: &[u8]) {
        let image = self.image(replica.group, page);
        let mut words = [0; PAGE_WORDS];
        packed::unpack(&self.arena, image, &mut words);
        let plain: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        if plain[at..at + bytes.len()] == *bytes {
            return;
        }
        plain[at..at + bytes.len()].copy_from_slice(bytes);
        let image = packed::repack(&mut self.arena, image, &words);
        self.groups[usize::from(replica.group.0)][page * self.stride] = image;
    }

    /// The replica's own copy of the page, made when it is first written.
    #[inline]
    fn copy_of(&mut self, replica: Replica, page: usize) -> &mut [u64] {
        let entry = self.entry(replica, page) + 1 + usize::from(replica.index);
        let copy = match self.groups[usize::from(replica.group.0)][entry] {
            0 => self.make_copy(replica.group, page, entry),
            copy => copy,
        };
        self.arena.run_mut(copy, PAGE_WORDS)
    }

    #[cold]
    fn make_copy(&mut self, group: GroupId, page: usize, entry: usize) -> RunIndex {
        let image = self.image(group, page);
        let mut words = [0; PAGE_WORDS];
        packed::unpack(&self.arena, image, &mut words);
        let copy = self.arena.allocate(PAGE_WORDS);
        self.arena.run_mut(copy, PAGE_WORDS).copy_from_slice(&words);
        self.groups[usize::from(group.0)][entry] = copy;
        self.copies += 1;
        copy
    }
}

/// Cuts a range at pages: (page, offset in the page, range of the caller's bytes).
#[inline]
fn pieces(offset_bytes: u64, len: usize) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let offset = offset_bytes as usize + done;
        let (page, at) = (offset / PAGE_BYTES, offset % PAGE_BYTES);
        let piece = done..len.min(done + PAGE_BYTES - at);
        done = piece.end;
        Some((page, at, piece))
    })
}
