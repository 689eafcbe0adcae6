//! The memory of all memory nodes, which comes into being where it is written.
//!
//! Invariant: what a byte holds before anybody wrote it is a function of its address, the same at every
//! replica ([`InitialContents`], and on top of it what was stored while loading). Replicas share that
//! image. The first write to a line at one replica makes a copy of the line for this replica. So a
//! database costs its packed image once, not once a replica, and a run costs the lines that it changes.
//! Why so: `docs/design/0007-simulated-memory.md` and `0008-simulator-speed.md`.
//!
//! ```text
//! table of a group, per page:  | image u64 | lines of replica 0 u64 | lines of replica 1 | … |
//! image: 0 not asked for yet, 1 zeros, else a packed page
//! lines: | for each of the page's lines 4 bits: 0 none, else its place + 1 | room 2 bits | run 30 bits |
//! ```
//! One entry is read per access, mostly of one line: at this size the table is not in the cache.

mod arena;
mod lines;
mod packed;
#[cfg(test)]
mod tests;
mod words;

use crate::prefetch::prefetch;
use arena::{Arena, RunIndex};
use lines::{LINE_WORDS, Lines};
use packed::ZEROS;
use tarn_fabric::address::GroupId;
use words::Words;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 512;
/// Words of a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;
const LINE_BYTES: usize = LINE_WORDS * 8;
const PAGE_LINES: usize = PAGE_BYTES / LINE_BYTES;

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
    /// The image that replicas share.
    pub page_bytes: u64,
    /// Lines that some replica has written, each counted once for each such replica.
    pub copies: u64,
    /// What these take.
    pub copy_bytes: u64,
}

/// A group's table of pages.
struct Table(Words);

impl Table {
    #[inline(always)]
    fn entry(&self, at: usize) -> u64 {
        self.0.as_slice()[at]
    }

    #[inline(always)]
    fn set(&mut self, at: usize, entry: u64) {
        self.0.as_mut_slice()[at] = entry;
    }
}

/// Bits of a run's number in the table.
const RUN_BITS: u32 = 30;
const RUN_MASK: u32 = (1 << RUN_BITS) - 1;

/// Which lines of a page a replica has of its own, and where: an entry of the table.
#[derive(Clone, Copy)]
struct OwnLines(u64);

impl OwnLines {
    /// The number of its line, if it has one.
    #[inline(always)]
    fn get(self, line: usize) -> Option<u32> {
        let place = (self.0 >> (32 + 4 * line)) as u32 & 15;
        (place != 0).then(|| self.run() + place - 1)
    }

    /// The number of the first of the lines from `first` to `last`, if it has all of them, one after
    /// the other.
    #[inline(always)]
    fn get_all(self, first: usize, last: usize) -> Option<u32> {
        let places = (self.0 >> 32) as u32 >> (4 * first);
        let place = places & 15;
        let mask = u32::MAX >> (28 - 4 * (last - first));
        let in_a_row = place.wrapping_mul(0x1111_1111).wrapping_add(0x7654_3210);
        (place != 0 && (places ^ in_a_row) & mask == 0).then(|| self.run() + place - 1)
    }

    /// How many there are.
    fn count(self) -> u32 {
        self.count_in(0, PAGE_LINES - 1)
    }

    /// How many there are from line `first` to line `last` of the page.
    fn count_in(self, first: usize, last: usize) -> u32 {
        let places = (self.0 >> 32) as u32;
        let used = (places | places >> 1 | places >> 2 | places >> 3) & 0x1111_1111;
        let from = u32::MAX << (4 * first);
        let to = u32::MAX >> (28 - 4 * last);
        // Sums the eight digits: the highest one of the product.
        (used & from & to).wrapping_mul(0x1111_1111) >> 28
    }

    /// The run's first line.
    #[inline(always)]
    fn run(self) -> u32 {
        self.0 as u32 & RUN_MASK
    }

    /// The run has room for two to the power of this.
    fn class(self) -> u32 {
        self.0 as u32 >> RUN_BITS
    }

    /// The same lines in the same places of another run.
    fn moved(self, run: u32, class: u32) -> OwnLines {
        OwnLines(self.0 >> 32 << 32 | u64::from(class << RUN_BITS | run))
    }
}

/// See the module's text.
pub struct Memory {
    initial: Box<dyn InitialContents>,
    groups: Vec<Table>,
    arena: Arena,
    lines: Lines,
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
            groups: (0..groups).map(|_| Table(Words::zeroed(pages * stride))).collect(),
            arena: Arena::new(),
            lines: Lines::new(),
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
        let (mut at, mut rest) = (offset_bytes as usize, out);
        while at % LINE_BYTES + rest.len() > LINE_BYTES {
            let (piece, others) = rest.split_at_mut(LINE_BYTES - at % LINE_BYTES);
            self.read_piece(replica, at, piece);
            (at, rest) = (at + piece.len(), others);
        }
        self.read_piece(replica, at, rest);
    }

    /// Copies bytes in.
    #[inline]
    pub fn write(&mut self, replica: Replica, offset_bytes: u64, bytes: &[u8]) {
        if self.loading {
            return self.load(replica, offset_bytes, bytes);
        }
        let at = offset_bytes as usize;
        if at % LINE_BYTES + bytes.len() > LINE_BYTES {
            return self.write_lines(replica, at, bytes);
        }
        self.write_piece(replica, at, bytes, bytes.len());
    }

    /// Writes several lines: at once, if they lie one after the other, as they do when they were first
    /// written together.
    #[inline]
    fn write_lines(&mut self, replica: Replica, mut at: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let entry = self.entry(replica, at / PAGE_BYTES) + 1 + usize::from(replica.index);
            let own = OwnLines(self.groups[usize::from(replica.group.0)].entry(entry));
            let whole = bytes.len().min(PAGE_BYTES - at % PAGE_BYTES);
            let (first, last) =
                (at % PAGE_BYTES / LINE_BYTES, (at + whole - 1) % PAGE_BYTES / LINE_BYTES);
            let piece = if let Some(index) = own.get_all(first, last) {
                let words = self.lines.lines_mut(index, last - first + 1);
                copy_in(words, at % LINE_BYTES, &bytes[..whole]);
                whole
            } else {
                let piece = whole.min(LINE_BYTES - at % LINE_BYTES);
                self.write_piece(replica, at, &bytes[..piece], whole);
                piece
            };
            (at, bytes) = (at + piece, &bytes[piece..]);
        }
    }

    /// What `change` makes of the aligned word at `offset_bytes`, if anything; returns what it was.
    #[inline]
    pub fn change_word(
        &mut self,
        replica: Replica,
        offset_bytes: u64,
        change: impl Fn(u64) -> Option<u64>,
    ) -> u64 {
        debug_assert!(offset_bytes.is_multiple_of(8));
        let at = offset_bytes as usize;
        let entry = self.entry(replica, at / PAGE_BYTES) + 1 + usize::from(replica.index);
        let own = OwnLines(self.groups[usize::from(replica.group.0)].entry(entry));
        if let Some(index) = own.get(at % PAGE_BYTES / LINE_BYTES) {
            let word = &mut self.lines.line_mut(index)[at % LINE_BYTES / 8];
            let found = *word;
            if let Some(new) = change(found) {
                *word = new;
            }
            return found;
        }
        let found = self.word(replica, offset_bytes);
        if let Some(new) = change(found) {
            self.set_word(replica, offset_bytes, new);
        }
        found
    }

    fn load(&mut self, replica: Replica, offset_bytes: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset_bytes as usize, bytes);
        while !rest.is_empty() {
            let (piece, others) = rest.split_at(rest.len().min(PAGE_BYTES - at % PAGE_BYTES));
            self.write_image(replica, at / PAGE_BYTES, at % PAGE_BYTES, piece);
            (at, rest) = (at + piece.len(), others);
        }
    }

    /// The aligned word at `offset_bytes`.
    #[inline]
    pub fn word(&mut self, replica: Replica, offset_bytes: u64) -> u64 {
        debug_assert!(offset_bytes.is_multiple_of(8));
        let mut word = [0; 8];
        self.read_piece(replica, offset_bytes as usize, &mut word);
        u64::from_ne_bytes(word)
    }

    /// Sets the aligned word at `offset_bytes`.
    #[inline]
    pub fn set_word(&mut self, replica: Replica, offset_bytes: u64, word: u64) {
        debug_assert!(offset_bytes.is_multiple_of(8));
        if self.loading {
            return self.write(replica, offset_bytes, &word.to_ne_bytes());
        }
        self.write_piece(replica, offset_bytes as usize, &word.to_ne_bytes(), 8);
    }

    /// Brings the table's entry for a verb that will be executed some time.
    #[inline]
    pub(crate) fn prefetch_entry(&self, replica: Replica, offset_bytes: u64) {
        let page = offset_bytes as usize / PAGE_BYTES;
        prefetch(self.groups[usize::from(replica.group.0)].0.as_slice(), page * self.stride);
    }

    /// Brings the lines that a verb will use soon; its entry should be there by now.
    #[inline]
    pub(crate) fn prefetch_lines(&self, replica: Replica, offset_bytes: u64, len_bytes: usize) {
        let (page, at) = (offset_bytes as usize / PAGE_BYTES, offset_bytes as usize % PAGE_BYTES);
        let group = self.groups[usize::from(replica.group.0)].0.as_slice();
        let first = page * self.stride;
        let Some(&own) = group.get(first + 1 + usize::from(replica.index)) else { return };
        match OwnLines(own).get(at / LINE_BYTES) {
            Some(index) => {
                self.lines.prefetch(index);
                // Lines that were written together lie together.
                if at % LINE_BYTES + len_bytes > LINE_BYTES {
                    self.lines.prefetch(index + 1);
                }
            }
            None => {
                let image = group[first] as RunIndex;
                self.arena.prefetch(image, 0);
                self.arena.prefetch(image, LINE_WORDS);
            }
        }
    }

    /// What it takes on this machine.
    pub fn usage(&self) -> MemoryUse {
        let entries: usize = self.groups.iter().map(|table| table.0.as_slice().len()).sum();
        MemoryUse {
            table_bytes: (entries * size_of::<u64>()) as u64,
            page_bytes: self.arena.bytes(),
            copies: self.copies,
            copy_bytes: self.lines.bytes(),
        }
    }

    #[inline(always)]
    fn entry(&self, replica: Replica, page: usize) -> usize {
        debug_assert!(usize::from(replica.index) + 1 < self.stride);
        page * self.stride
    }

    /// Bytes of one line.
    #[inline]
    fn read_piece(&mut self, replica: Replica, at: usize, out: &mut [u8]) {
        if out.is_empty() {
            return;
        }
        let page = at / PAGE_BYTES;
        let first = self.entry(replica, page);
        let group = &self.groups[usize::from(replica.group.0)];
        let own = OwnLines(group.entry(first + 1 + usize::from(replica.index)));
        if let Some(index) = own.get(at % PAGE_BYTES / LINE_BYTES) {
            return copy_out(self.lines.line(index), at % LINE_BYTES, out);
        }
        let image = match group.entry(first) {
            0 => self.ask_for(replica.group, page),
            image => image as RunIndex,
        };
        let mut line = [0; LINE_WORDS];
        packed::unpack_line(&self.arena, image, at % PAGE_BYTES / LINE_BYTES, &mut line);
        copy_out(&line, at % LINE_BYTES, out);
    }

    /// The page's image, asked for when it is first needed.
    #[cold]
    fn ask_for(&mut self, group: GroupId, page: usize) -> RunIndex {
        let mut words = [0; PAGE_WORDS];
        self.initial.fill(group, (page * PAGE_BYTES) as u64, &mut words);
        let image = packed::repack(&mut self.arena, ZEROS, &words);
        self.groups[usize::from(group.0)].set(page * self.stride, image.into());
        image
    }

    #[inline]
    fn image(&mut self, group: GroupId, page: usize) -> RunIndex {
        match self.groups[usize::from(group.0)].entry(page * self.stride) {
            0 => self.ask_for(group, page),
            image => image as RunIndex,
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
        self.groups[usize::from(replica.group.0)].set(page * self.stride, image.into());
    }

    /// Bytes into one line of the replica's own, which is made when it is first written; `run` bytes of
    /// the page are about to be written from `at` on.
    #[inline]
    fn write_piece(&mut self, replica: Replica, at: usize, bytes: &[u8], run: usize) {
        if bytes.is_empty() {
            return;
        }
        let page = at / PAGE_BYTES;
        let entry = self.entry(replica, page) + 1 + usize::from(replica.index);
        let own = OwnLines(self.groups[usize::from(replica.group.0)].entry(entry));
        let index = match own.get(at % PAGE_BYTES / LINE_BYTES) {
            Some(index) => index,
            None => self.first_write(replica, at, bytes.len(), run),
        };
        copy_in(self.lines.line_mut(index), at % LINE_BYTES, bytes);
    }

    /// Makes the line at `at`, of which `written` bytes are about to be written.
    #[inline(never)]
    fn first_write(&mut self, replica: Replica, at: usize, written: usize, run: usize) -> u32 {
        let page = at / PAGE_BYTES;
        let entry = self.entry(replica, page) + 1 + usize::from(replica.index);
        let line = at % PAGE_BYTES / LINE_BYTES;
        let last = (at % PAGE_BYTES + run - 1).min(PAGE_BYTES - 1) / LINE_BYTES;
        let index = self.make_line(replica.group, entry, line, last);
        if written < LINE_BYTES {
            let image = self.image(replica.group, page);
            let words = self.lines.line_mut(index);
            *words = [0; LINE_WORDS];
            packed::unpack_line(&self.arena, image, line, words);
        }
        index
    }

    /// Room for one more line of a page, of which the lines up to `last` are about to be written.
    fn make_line(&mut self, group: GroupId, entry: usize, line: usize, last: usize) -> u32 {
        let table = &mut self.groups[usize::from(group.0)];
        let mut own = OwnLines(table.entry(entry));
        let count = own.count();
        if count == 0 || count == 1 << own.class() {
            let wanted = (last - line + 1) as u32 - own.count_in(line, last);
            let class = (count + wanted).next_power_of_two().trailing_zeros();
            let run = self.lines.allocate(class);
            if count > 0 {
                self.lines.move_run(own.run(), run, own.class());
            }
            own = own.moved(run, class);
        }
        let place = count;
        own.0 |= u64::from(place + 1) << (32 + 4 * line);
        table.set(entry, own.0);
        self.copies += 1;
        own.run() + place
    }
}

/// Copies bytes out of a line, whole words at once where they are asked for.
#[inline(always)]
fn copy_out(line: &[u64; LINE_WORDS], at: usize, out: &mut [u8]) {
    if (at | out.len()).is_multiple_of(8) {
        let words = &line[at / 8..at / 8 + out.len() / 8];
        for (to, word) in out.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    } else {
        let bytes: &[u8] = bytemuck::cast_slice(line);
        out.copy_from_slice(&bytes[at..at + out.len()]);
    }
}

/// Copies bytes into lines, whole words at once where they are given.
#[inline(always)]
fn copy_in(line: &mut [u64], at: usize, bytes: &[u8]) {
    if (at | bytes.len()).is_multiple_of(8) {
        let words = &mut line[at / 8..at / 8 + bytes.len() / 8];
        for (word, from) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*from);
        }
    } else {
        let line: &mut [u8] = bytemuck::cast_slice_mut(line);
        line[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
