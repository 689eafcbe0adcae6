//! The memory of all memory nodes. The machine that runs the simulation provides memory only for the
//! parts that are written.
//!
//! Invariant: the initial contents of a byte are a function of its address, and the same at every
//! replica. The initial contents are the [`InitialContents`], overwritten by the bytes that loaders
//! store. All replicas share one image of the initial contents. The first write to a line at one
//! replica makes a copy of the line for this replica. So a database takes the space of its packed
//! image once, not once per replica. A run takes only the space of the lines that it changes. A spare
//! node does not share the image. A spare node holds zeros at all places that have not been written.
//! `docs/design/0007-simulated-memory.md` and `0008-simulator-speed.md` give the reasons.
//!
//! ```text
//! table, per group and page:  | image u64 | lines of replica 0 u64 | lines of replica 1 | … |
//! image: 0 not asked for yet, 1 zeros, else a packed page
//! ```
//! Each access reads one table entry, and usually needs only one cache line of the entry. The table is
//! too large for the cache.

mod access;
mod arena;
mod chunks;
mod lines;
mod own;
mod packed;
mod place;
#[cfg(test)]
mod tests;
mod words;

use crate::prefetch::prefetch;
use arena::{Arena, RunIndex};
use chunks::Chunks;
use lines::{LINE_WORDS, Lines};
use own::OwnLines;
use packed::ZEROS;
pub(crate) use place::Place;
use tarn_fabric::address::GroupId;
use words::Words;

/// The number of bytes in a page.
pub const PAGE_BYTES: usize = 512;
/// The number of bytes in a word of the table. Each page has one such word for the image, and one for
/// each replica.
pub const TABLE_ENTRY_BYTES: usize = size_of::<u64>();
/// The number of words in a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;
const LINE_BYTES: usize = LINE_WORDS * 8;
const PAGE_LINES: usize = PAGE_BYTES / LINE_BYTES;

/// The contents that memory has before the first write.
pub trait InitialContents {
    /// Fills the page at `offset_bytes` of `group`. The caller fills the page with zeros before the
    /// call. Each call for the same page must write the same words.
    fn fill(&self, group: GroupId, offset_bytes: u64, page: &mut [u64; PAGE_WORDS]);
}

/// Fresh memory, which is all zeros.
pub struct Zeros;

impl InitialContents for Zeros {
    fn fill(&self, _: GroupId, _: u64, _: &mut [u64; PAGE_WORDS]) {}
}

/// Names one replica of a group, which is one copy of the group's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    /// The replica group.
    pub group: GroupId,
    /// The replica's position among the group's replicas. Position 0 is the primary.
    pub index: u16,
}

/// The amount of memory that the simulated memory occupies on the machine that runs the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryUse {
    /// The number of bytes of the tables of pages.
    pub table_bytes: u64,
    /// The number of bytes of the image that replicas share.
    pub page_bytes: u64,
    /// The number of lines that replicas have written. A line counts once for each replica that has
    /// written it.
    pub copies: u64,
    /// The number of bytes that the lines in `copies` occupy.
    pub copy_bytes: u64,
}

/// The memory of all memory nodes.
pub struct Memory {
    initial: Box<dyn InitialContents>,
    table: Words,
    chunks: Chunks,
    arena: Arena,
    lines: Lines,
    /// The number of words in an entry of the table.
    stride: usize,
    /// The number of pages in one group.
    pages: u64,
    group_bytes: u64,
    copies: u64,
    loading: bool,
    /// The number of copies of a group that share the image. Copies with this index or a higher index
    /// do not share the image.
    sharing: u16,
}

impl Memory {
    /// Creates memory of `groups` replica groups. While the memory is being loaded, writes change the
    /// shared image.
    ///
    /// # Panics
    /// If the table of pages is larger than 32 GiB.
    pub fn new(
        groups: usize,
        replicas: usize,
        group_bytes: u64,
        initial: Box<dyn InitialContents>,
    ) -> Memory {
        Memory::with_spares(groups, (replicas, 0), group_bytes, initial)
    }

    /// Like [`Memory::new`], with room for `spares` empty copies of each group on spare nodes.
    ///
    /// # Panics
    /// The same panics as [`Memory::new`].
    pub fn with_spares(
        groups: usize,
        (replicas, spares): (usize, usize),
        group_bytes: u64,
        initial: Box<dyn InitialContents>,
    ) -> Memory {
        let stride = 1 + replicas + spares;
        let pages = group_bytes.div_ceil(PAGE_BYTES as u64);
        let entries = pages as usize * groups * stride;
        assert!(u32::try_from(entries).is_ok(), "table = {entries} words; allowed: at most 2^32");
        let mut chunks = Chunks::new();
        Memory {
            initial,
            table: Words::zeroed(entries),
            arena: Arena::new(&mut chunks),
            chunks,
            lines: Lines::new(),
            stride,
            pages,
            group_bytes,
            copies: 0,
            loading: true,
            sharing: replicas as u16,
        }
    }

    /// Ends loading: after this call a write changes only the replica to which it is sent.
    pub fn end_loading(&mut self) {
        self.loading = false;
    }

    /// Returns whether writes still change the shared image.
    pub fn is_loading(&self) -> bool {
        self.loading
    }

    /// Returns the place of some bytes, or `NOWHERE` if some of the bytes lie outside the group's
    /// memory.
    #[inline(always)]
    pub(crate) fn place(&self, replica: Replica, offset_bytes: u64, len_bytes: usize) -> Place {
        if offset_bytes.saturating_add(len_bytes as u64) > self.group_bytes {
            return Place::NOWHERE;
        }
        let page = u64::from(replica.group.0) * self.pages + offset_bytes / PAGE_BYTES as u64;
        let entry = page as u32 * self.stride as u32;
        Place::new(entry, replica.index, offset_bytes as usize % PAGE_BYTES)
    }

    /// Returns the place that is `bytes` bytes after `place`.
    pub(crate) fn further(&self, place: Place, bytes: usize) -> Place {
        place.plus(bytes, self.stride)
    }

    /// Like [`Memory::place`], for bytes that must exist.
    fn there(&self, replica: Replica, offset_bytes: u64, len_bytes: usize) -> Place {
        assert!(usize::from(replica.index) + 1 < self.stride, "the group has no {replica:?}");
        let place = self.place(replica, offset_bytes, len_bytes);
        assert!(
            place != Place::NOWHERE,
            "{len_bytes} bytes at {offset_bytes} lie outside the \
                                          memory"
        );
        place
    }

    /// Copies bytes out of the memory.
    ///
    /// # Panics
    /// If the memory does not have the requested bytes. The other accesses of this type panic in the
    /// same case.
    pub fn read(&mut self, replica: Replica, offset_bytes: u64, out: &mut [u8]) {
        let place = self.there(replica, offset_bytes, out.len());
        self.read_bytes(place, out);
    }

    /// Copies bytes into the memory.
    pub fn write(&mut self, replica: Replica, offset_bytes: u64, bytes: &[u8]) {
        let place = self.there(replica, offset_bytes, bytes.len());
        self.write_bytes(place, bytes);
    }

    /// Returns the aligned word at `offset_bytes`.
    pub fn word(&mut self, replica: Replica, offset_bytes: u64) -> u64 {
        debug_assert!(offset_bytes.is_multiple_of(8));
        let mut word = [0];
        let place = self.there(replica, offset_bytes, 8);
        self.read_words(place, &mut word);
        word[0]
    }

    /// Sets the aligned word at `offset_bytes`.
    pub fn set_word(&mut self, replica: Replica, offset_bytes: u64, word: u64) {
        debug_assert!(offset_bytes.is_multiple_of(8));
        let place = self.there(replica, offset_bytes, 8);
        self.write_words(place, &[word]);
    }

    /// Prefetches the table entry for a verb that will be executed later.
    #[inline(always)]
    pub(crate) fn prefetch_entry(&self, place: Place) {
        prefetch(self.table.as_slice(), place.entry());
    }

    /// Prefetches the first two lines that a verb will use soon. The verb's table entry should be in
    /// the cache before this call. Lines that were written together are adjacent in memory, and the
    /// lines of an image are adjacent too.
    #[inline(always)]
    pub(crate) fn prefetch_lines(&self, place: Place) {
        let table = self.table.as_slice();
        let Some(&own) = table.get(place.own()) else { return };
        // The processor cannot predict whether the bytes are in the image or in a line. So the index is
        // selected without a branch.
        let image = table[place.entry()] as RunIndex as usize;
        let line = OwnLines(own).get(place.line()).map(|line| line as usize * LINE_WORDS);
        self.chunks.prefetch_two(line.unwrap_or(image));
    }

    /// Returns the amount of memory that the simulated memory occupies on the machine that runs the
    /// simulation.
    pub fn usage(&self) -> MemoryUse {
        MemoryUse {
            table_bytes: size_of_val(self.table.as_slice()) as u64,
            page_bytes: self.arena.bytes(),
            copies: self.copies,
            copy_bytes: self.lines.bytes(),
        }
    }

    /// Returns whether the copy at this place belongs to a spare node, so it began with zeros.
    #[inline(always)]
    fn began_empty(&self, place: Place) -> bool {
        place.copy() >= self.sharing
    }

    /// Returns the image of the page at this place.
    #[inline(always)]
    fn image(&mut self, place: Place) -> RunIndex {
        match self.table.as_slice()[place.entry()] {
            0 => self.ask_for(place),
            image => image as RunIndex,
        }
    }

    /// Computes the page's image when the image is first needed.
    #[cold]
    fn ask_for(&mut self, place: Place) -> RunIndex {
        let page = (place.entry() / self.stride) as u64;
        let group = GroupId((page / self.pages) as u16);
        let mut words = [0; PAGE_WORDS];
        self.initial.fill(group, page % self.pages * PAGE_BYTES as u64, &mut words);
        let image = packed::repack((&mut self.arena, &mut self.chunks), ZEROS, &words);
        self.table.as_mut_slice()[place.entry()] = image.into();
        image
    }

    /// Stores bytes into the image.
    fn load(&mut self, mut place: Place, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (piece, others) = bytes.split_at(bytes.len().min(PAGE_BYTES - place.at()));
            self.write_image(place, piece);
            (place, bytes) = (place.plus(piece.len(), self.stride), others);
        }
    }

    /// Stores bytes into the image of one page. Loaders store the same bytes at every replica. After
    /// the first replica, the image already holds these bytes.
    fn write_image(&mut self, place: Place, bytes: &[u8]) {
        let image = self.image(place);
        let mut words = [0; PAGE_WORDS];
        packed::unpack(&self.chunks, image, &mut words);
        let plain: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        let plain = &mut plain[place.at()..place.at() + bytes.len()];
        if plain == bytes {
            return;
        }
        plain.copy_from_slice(bytes);
        let image = packed::repack((&mut self.arena, &mut self.chunks), image, &words);
        self.table.as_mut_slice()[place.entry()] = image.into();
    }
}
