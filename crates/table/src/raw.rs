//! The table of words: search, insertion, replacement and removal, each decided by one change of a bin's header.
//!
//! Invariant: an operation takes effect at one atomic step on one header. A removal clears the slot's bit. An insertion
//! claims a free slot, writes it, and sets its bit. A replacement does the same, and clears the old slot's bit in the
//! same step. A slot that the header shows never changes, so no operation can hit a slot that was recycled.
//!
//! An operation that meets a moved bin goes to the index that follows *this* index, never to the newest one: the bins
//! of a newer index may not have received their entries yet.
//!
//! Lock-free: reads, and updates while their bin is not moving. An update waits while another thread copies the at most
//! 15 entries of its bin (`growth.rs`), for a key that a caller has locked, and while other updates have claimed all free
//! slots of its bin.
//!
//! Paper: Katsarakis et al., HPDC 2024. Differences: `docs/design/0022-hash-table.md`.

use crate::bin::{Bin, Slot, Word};
use crate::header::{FIRST_OF_PAIR, Header, PAIR_BITS, Phase, SINGLE_BITS, SLOTS, SLOTS_INLINE};
use crate::index::Index;
use crate::lines::Purpose;
use crate::look::{Found, Look, Probe, header_of, look, same_words};
use crate::plant::{Plant, Plants, Site};
use crate::sync::{AtomicPtr, Ordering, give_way, wait_a_moment};

/// Computes the hash of an entry in a slot.
pub(crate) trait Rehash {
    /// Returns the hash that the entry was inserted with.
    ///
    /// # Safety
    ///
    /// The words are those of one slot that the header of its bin has shown, and a box behind them is not freed during
    /// the call.
    unsafe fn hash(&self, key: Word, value: Word) -> u64;
}

/// The decision of an update about the entry that it found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decision {
    Keep,
    Remove,
    /// Replace the entry, or insert one.
    Write {
        key: Word,
        value: Word,
    },
    /// Insert one more entry.
    Append {
        key: Word,
        value: Word,
    },
}

/// The effect of an update. The words are those of the entry before the update.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Edit {
    Kept,
    Removed(Option<Found>),
    Written(Option<Found>),
}

/// The reason why an update had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    OutOfMemory,
    /// The bin is full of entries with almost equal hashes.
    Collision,
    /// A caller has locked the key.
    Locked,
}

/// The outcome of writing an entry into a free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    Done,
    /// The bin changed: search again.
    Changed,
    /// The bin has 15 entries, or no line is left for one more.
    NoRoom,
}

/// A table of words.
pub(crate) struct Raw {
    /// The oldest index with entries.
    current: AtomicPtr<Index>,
    /// The first index of the table. The indexes form a list.
    first: *mut Index,
    pub(crate) huge_pages: bool,
    pub(crate) plants: Plants,
}

impl Raw {
    /// Creates an empty table, or nothing if memory is short.
    pub(crate) fn new(bins: usize, huge_pages: bool) -> Option<Self> {
        let first = Box::into_raw(Index::new(bins, None, huge_pages)?);
        let plants = Plants::default();
        Some(Self { current: AtomicPtr::new(first), first, huge_pages, plants })
    }

    /// Returns the oldest index with entries. Every operation begins here.
    #[inline(always)]
    pub(crate) fn current(&self) -> &Index {
        // SAFETY: the pointer is one of the list of indexes, which are freed only with the table.
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// Lets all operations begin at the index after `from`, if they begin at `from` now.
    pub(crate) fn advance_from(&self, from: &Index, to: &Index) -> bool {
        let (from, to) = (ptr_of(from), ptr_of(to));
        self.current.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Returns the index that has the entries of a moved bin of `index`.
    pub(crate) fn successor<'a>(&self, index: &'a Index) -> &'a Index {
        index.next().expect("a bin moves only after the next index exists")
    }

    /// As `successor`, for a read: the planted error would make updates break the growth itself.
    #[cold]
    #[inline(never)]
    fn successor_for_read<'a>(&self, index: &'a Index) -> &'a Index {
        let mut next = self.successor(index);
        while self.plants.has(Plant::NewestIndex)
            && let Some(newer) = next.next()
        {
            next = newer;
        }
        next
    }

    /// Finds the entry of a key.
    #[inline(always)]
    pub(crate) fn find<P: Probe>(&self, hash: u64, probe: &P) -> Option<Found> {
        let mut index = self.current();
        loop {
            let bin = index.bin_of(hash);
            let header = header_of(bin);
            match look(index, bin, header, header.valid(), probe) {
                Look::Found(found) => return Some(found),
                Look::Changed => {}
                Look::Absent if header.phase() == Phase::Open => return None,
                // While a bin moves, a later growth may already have taken an entry past the next index.
                Look::Absent => index = self.successor_for_read(index),
            }
        }
    }

    /// Finds the entry of a key, and lets `decide` keep, remove or replace it, or insert one. The step is atomic. The
    /// function may call `decide` several times; the last call counts.
    #[inline(always)]
    pub(crate) fn edit<P: Probe, R: Rehash>(
        &self,
        hash: u64,
        probe: &P,
        rehash: &R,
        mut decide: impl FnMut(Option<&Found>) -> Decision,
    ) -> Result<Edit, Obstacle> {
        let mut visit = Visit::new(self, hash);
        loop {
            let header = visit.open_bin(rehash);
            let (index, bin) = (visit.index, visit.bin);
            let found = match look(index, bin, header, header.valid(), probe) {
                Look::Found(found) => Some(found),
                Look::Absent => None,
                Look::Changed => continue,
            };
            if header.shadows() != 0 && !self.plants.has(Plant::OverlooksLock) {
                match look(index, bin, header, header.shadows(), probe) {
                    Look::Found(_) => return Err(Obstacle::Locked),
                    Look::Absent => {}
                    Look::Changed => continue,
                }
            }
            self.plants.at(Site::Validated);
            match decide(found.as_ref()) {
                Decision::Keep => return Ok(Edit::Kept),
                Decision::Remove => {
                    let Some(entry) = found else { return Ok(Edit::Removed(None)) };
                    if self.remove(index, bin, header, entry.slot) {
                        return Ok(Edit::Removed(found));
                    }
                }
                Decision::Write { key, value } => {
                    if let Some(edit) = self.plants.put_in_place(index, bin, header, found, value) {
                        match edit {
                            Some(edit) => return Ok(edit),
                            None => continue,
                        }
                    }
                    let replaced = found.map_or(0, |it| 1 << it.slot);
                    match self.write(index, bin, header, (key, value), replaced) {
                        Placed::Done => return Ok(Edit::Written(found)),
                        Placed::Changed => {}
                        Placed::NoRoom => self.make_room(index, hash, rehash)?,
                    }
                }
                Decision::Append { key, value } => {
                    match self.write(index, bin, header, (key, value), 0) {
                        Placed::Done => return Ok(Edit::Written(None)),
                        Placed::Changed => {}
                        Placed::NoRoom => self.make_room(index, hash, rehash)?,
                    }
                }
            }
        }
    }

    /// Inserts an entry, if its bin is simple and no entry's word is the key's. Returns whether it did; `edit` is for all
    /// other cases.
    ///
    /// The claim is also the second look at the header. So no key of a slot that changed in the meantime is overlooked.
    #[inline(always)]
    pub(crate) fn insert_into_simple_bin(&self, hash: u64, pair: (Word, Word)) -> bool {
        let index = self.current();
        let bin = index.bin_of(hash);
        crate::prefetch::write(bin);
        let header = header_of(bin);
        let matches = same_words(&bin.slots.each_ref().map(Slot::key), pair.0);
        // A simple bin has no lock, so that each present slot is a valid one.
        if matches & header.present() != 0 || !header.is_simple() || index.next().is_some() {
            return false;
        }
        self.plants.at(Site::Validated);
        let confirm = |header: Header, slot| header.confirmed(slot, 0);
        self.place(index, bin, header, pair, confirm) == Placed::Done
    }

    /// Clears the bit of a slot. Returns false if the header has changed.
    #[inline(always)]
    pub(crate) fn remove(&self, index: &Index, bin: &Bin, header: Header, slot: u32) -> bool {
        let removed = exchange(bin, header, header.without(1 << slot)).is_ok();
        if removed {
            self.unlink_after(index, bin, 1 << slot);
        }
        removed
    }

    /// Writes an entry into a free slot. One step shows it and clears the bits of the slots `replaced`.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        index: &Index,
        bin: &Bin,
        header: Header,
        pair: (Word, Word),
        replaced: u32,
    ) -> Placed {
        let confirm = |header: Header, slot| header.confirmed(slot, replaced);
        let placed = self.place(index, bin, header, pair, confirm);
        if placed == Placed::Done {
            self.unlink_after(index, bin, replaced);
        }
        placed
    }

    /// Writes an entry into a free slot, and then applies `confirm` to the header. The step has an effect only if the
    /// bin's entries are still those of `header`.
    #[inline(always)]
    pub(crate) fn place(
        &self,
        index: &Index,
        bin: &Bin,
        header: Header,
        (key, value): (Word, Word),
        confirm: impl Fn(Header, u32) -> Header,
    ) -> Placed {
        let Some(slot) = header.free_slot() else {
            return no_room(bin, header, SLOTS);
        };
        let mut claimed = header.with_claims(1 << slot);
        if exchange(bin, header, claimed).is_err() {
            return Placed::Changed;
        }
        let Some(place) = slot_for(index, bin, slot) else {
            release(bin, 1 << slot);
            return no_room(bin, claimed, slot);
        };
        place.fill(key, value);
        self.plants.at(Site::Filled);
        loop {
            match exchange(bin, claimed, confirm(claimed, slot)) {
                Ok(()) => return Placed::Done,
                Err(now) if now.same_entries(claimed) || self.plants.is_blind(claimed, now) => {
                    claimed = now;
                }
                Err(_) => break,
            }
        }
        release(bin, 1 << slot);
        self.unlink_after(index, bin, 1 << slot);
        Placed::Changed
    }

    /// Gives lines back to their pool that have become empty with the given slots.
    #[inline(always)]
    pub(crate) fn unlink_after(&self, index: &Index, bin: &Bin, slots: u32) {
        if slots & SINGLE_BITS != 0 {
            unlink(index, bin, SINGLE_BITS);
        }
        if slots & PAIR_BITS != 0 {
            unlink(index, bin, PAIR_BITS);
        }
    }

    /// Calls `f` with each entry of the table, and whether it is a lock of its key.
    pub(crate) fn for_each_owned(&mut self, mut f: impl FnMut(Found, bool)) {
        // SAFETY: the list's indexes are freed only with the table.
        let mut next = unsafe { self.first.as_ref() };
        while let Some(index) = next {
            let bins = if index.is_moved() { 0 } else { index.bin_count() };
            for bin in (0..bins).map(|number| index.bin(number)) {
                let header = header_of(bin);
                // The entries of a moved bin are in a later index. A bin is still moving only if its thread has
                // panicked, which no code of the user can cause. Some entries may be in both indexes, so that those of
                // the later index count.
                if header.phase() != Phase::Open {
                    continue;
                }
                let copy = crate::look::Snapshot::of(index, bin, Header::present);
                let copy = copy.expect("no other thread uses the table");
                for found in copy.entries() {
                    f(*found, header.shadows() >> found.slot & 1 == 1);
                }
            }
            next = index.next();
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from a box, and nothing uses the table any more.
        let mut next = Some(unsafe { Box::from_raw(self.first) });
        while let Some(mut index) = next {
            next = index.take_next();
        }
    }
}

/// The way of an update through the indexes.
pub(crate) struct Visit<'a> {
    raw: &'a Raw,
    hash: u64,
    pub(crate) index: &'a Index,
    pub(crate) bin: &'a Bin,
    has_helped: bool,
}

impl<'a> Visit<'a> {
    #[inline(always)]
    pub(crate) fn new(raw: &'a Raw, hash: u64) -> Self {
        let index = raw.current();
        let bin = index.bin_of(hash);
        // The line comes with the right to write it, which the load below would not ask for.
        crate::prefetch::write(bin);
        Self { raw, hash, index, bin, has_helped: false }
    }

    /// Returns the header of the hash's bin in the index where this bin is open. The function helps a growth once, and
    /// waits while another thread moves the bin.
    #[inline(always)]
    pub(crate) fn open_bin<R: Rehash>(&mut self, rehash: &R) -> Header {
        let header = header_of(self.bin);
        if header.phase() == Phase::Open && (self.has_helped || self.index.next().is_none()) {
            return header;
        }
        // Values go in and out, so that the processor keeps this visit in registers.
        let Self { raw, hash, index, bin, has_helped } = *self;
        let (next, header) = Self { raw, hash, index, bin, has_helped }.follow(rehash);
        *self = next;
        header
    }

    #[cold]
    #[inline(never)]
    fn follow<R: Rehash>(mut self, rehash: &R) -> (Self, Header) {
        let mut rounds = 0;
        if !self.has_helped {
            self.has_helped = true;
            self.raw.help(self.index, rehash);
        }
        loop {
            let header = header_of(self.bin);
            match header.phase() {
                Phase::Open => return (self, header),
                Phase::Moving => wait_a_moment(&mut rounds),
                Phase::Moved => {
                    self.index = self.raw.successor(self.index);
                    self.bin = self.index.bin_of(self.hash);
                }
            }
        }
    }
}

/// Changes a header. Returns the present header if it is not the expected one.
#[inline(always)]
pub(crate) fn exchange(bin: &Bin, from: Header, to: Header) -> Result<(), Header> {
    bin.header
        .compare_exchange(from.0, to.0, Ordering::SeqCst, Ordering::Acquire)
        .map(|_| ())
        .map_err(Header)
}

/// Returns the outcome of an update that found no free slot among the first `slots` ones. Claims are no entries: their
/// owners end soon. So the table grows only if all these slots have entries. Otherwise the update waits a moment.
#[cold]
#[inline(never)]
fn no_room(bin: &Bin, header: Header, slots: u32) -> Placed {
    let all = (1 << slots) - 1;
    if header.present() & all == all && header_of(bin).present() & all == all {
        return Placed::NoRoom;
    }
    give_way();
    Placed::Changed
}

/// Frees claimed slots, given as bits.
#[inline(always)]
fn release(bin: &Bin, slots: u32) {
    let mut header = header_of(bin);
    // The claims of a bin that was frozen have no effect any more.
    while header.phase() == Phase::Open {
        match exchange(bin, header, header.without_claims(slots)) {
            Ok(()) => return,
            Err(now) => header = now,
        }
    }
}

/// Returns a claimed slot, and links a line for it if needed. Returns nothing if no line is left.
#[inline(always)]
fn slot_for<'a>(index: &'a Index, bin: &'a Bin, slot: u32) -> Option<&'a Slot> {
    if slot < SLOTS_INLINE {
        return Some(&bin.slots[slot as usize]);
    }
    slot_in_line(index, bin, slot)
}

#[inline(never)]
fn slot_in_line<'a>(index: &'a Index, bin: &'a Bin, slot: u32) -> Option<&'a Slot> {
    let (lines, shift) =
        if slot < FIRST_OF_PAIR { (&index.singles, 0) } else { (&index.pairs, u32::BITS) };
    loop {
        let link = bin.link.load(Ordering::Acquire);
        if let Some(place) = index.slot(bin, link, slot) {
            return Some(place);
        }
        let number = lines.take(Purpose::Insertion)?;
        let with_line = link | u64::from(number) << shift;
        let linked =
            bin.link.compare_exchange(link, with_line, Ordering::AcqRel, Ordering::Acquire);
        if linked.is_err() {
            lines.give(number);
        }
    }
}

/// Returns an empty line, given by its slots, to its pool. The claims of all its slots keep other threads away.
#[inline(never)]
fn unlink(index: &Index, bin: &Bin, slots: u32) {
    loop {
        let header = header_of(bin);
        if header.phase() != Phase::Open || header.taken() & slots != 0 {
            return;
        }
        if exchange(bin, header, header.with_claims(slots)).is_ok() {
            break;
        }
    }
    let (lines, shift) =
        if slots == SINGLE_BITS { (&index.singles, 0) } else { (&index.pairs, u32::BITS) };
    let mask = u64::from(u32::MAX) << shift;
    let mut link = bin.link.load(Ordering::Acquire);
    while let Err(now) =
        bin.link.compare_exchange(link, link & !mask, Ordering::AcqRel, Ordering::Acquire)
    {
        link = now;
    }
    let number = (link >> shift) as u32;
    if number != 0 {
        lines.give(number);
    }
    release(bin, slots);
}

fn ptr_of(index: &Index) -> *mut Index {
    std::ptr::from_ref(index).cast_mut()
}
