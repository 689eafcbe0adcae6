//! Growth: a larger index, to which all threads that update the table move the bins one after another.
//!
//! Invariant: a bin is moved by the one thread that has frozen its header. While a bin is frozen its entries do not
//! change, so reads continue. Only the last step, after all entries are in the next index, marks the bin as moved.
//! No other operation reaches the entries' bins of the next index before that step. So each key is found in exactly one
//! place at each moment.
//!
//! A growth cannot fail in the middle: the next index keeps enough linked lines for it (`Index::new`). A hash function
//! that gives a key another hash than before cannot disturb it either: `travellers` keeps each entry in its bin's part of
//! the next index. All code of the table's user runs before the bin is frozen.

use crate::bin::Word;
use crate::header::{FIRST_OF_PAIR, Header, Phase, SLOTS, SLOTS_INLINE};
use crate::index::Index;
use crate::lines::Purpose;
use crate::look::{Snapshot, header_of};
use crate::plant::{Plant, Site};
use crate::raw::{Obstacle, Raw, Rehash, exchange};
use crate::sync::Ordering;

/// A table with fewer bins grows by the larger factor, since each growth has a fixed cost.
const SMALL_BINS: usize = 1 << 16;
const FACTOR_SMALL: usize = 4;
const FACTOR: usize = 2;
/// The largest factor by which one growth may separate the entries of a full bin.
const FACTOR_MAX: usize = 64;

/// An entry on its way to the next index.
#[derive(Debug, Clone, Copy)]
struct Traveller {
    hash: u64,
    key: Word,
    value: Word,
    is_shadow: bool,
}

impl Raw {
    /// Makes room for an entry whose bin is full: the bin moves to a larger index.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room<R: Rehash>(
        &self,
        index: &Index,
        hash: u64,
        rehash: &R,
    ) -> Result<(), Obstacle> {
        if index.next().is_none() {
            let Some(copy) = Snapshot::of(index, index.bin_of(hash), Header::present) else {
                // The bin has changed, and may have room now.
                return Ok(());
            };
            // If lines are short while an earlier growth fills this index, its end sets free the lines that are kept
            // for it. So the thread helps the earlier growth, as long as there is something to do.
            let (is_full, oldest) = (copy.entries().len() == SLOTS as usize, self.current());
            if !is_full && !std::ptr::eq(oldest, index) && self.help(oldest, rehash) {
                return Ok(());
            }
            let factor = factor_for(index, &copy, hash, rehash).ok_or(Obstacle::Collision)?;
            self.begin_growth(index, factor)?;
        }
        let mut moved = Moved { raw: self, index, bins: 0 };
        moved.bins += usize::from(self.move_bin(index, index.number_of(hash), rehash));
        Ok(())
    }

    /// Gives an index a larger successor, unless it has one.
    pub(crate) fn begin_growth(&self, index: &Index, factor: usize) -> Result<(), Obstacle> {
        let bins = index.bin_count().checked_mul(factor).ok_or(Obstacle::OutOfMemory)?;
        let new = Index::new(bins, Some(index), self.huge_pages).ok_or(Obstacle::OutOfMemory)?;
        index.set_next(new);
        Ok(())
    }

    /// Moves one chunk of bins, if the index has a successor. Returns false if no chunk was left.
    pub(crate) fn help<R: Rehash>(&self, index: &Index, rehash: &R) -> bool {
        if index.next().is_none() {
            return false;
        }
        let Some(chunk) = index.take_chunk() else {
            return false;
        };
        // If the caller's hash function panics, the bins that were moved still count. The chunk's other bins stay in this
        // index until they are full.
        let mut moved = Moved { raw: self, index, bins: 0 };
        for number in chunk {
            moved.bins += usize::from(self.move_bin(index, number, rehash));
        }
        true
    }

    /// Moves the entries of a bin to the next index. Returns false if another thread does it or has done it.
    fn move_bin<R: Rehash>(&self, index: &Index, number: usize, rehash: &R) -> bool {
        let next = index.next().expect("a bin moves only after the next index exists");
        let bin = index.bin(number);
        let leaves_lock = self.plants.has(Plant::LeavesLock);
        let slots: fn(Header) -> u32 = if leaves_lock { Header::valid } else { Header::present };
        let (moving, travellers, count) = loop {
            if header_of(bin).phase() != Phase::Open {
                return false;
            }
            let Some(copy) = Snapshot::of(index, bin, slots) else {
                continue;
            };
            if copy.header.phase() != Phase::Open {
                return false;
            }
            // The caller's hash function may panic, so that it runs before the bin is frozen.
            let (travellers, count) = travellers(index, number, &copy, rehash);
            let moving = copy.header.moving();
            if exchange(bin, copy.header, moving).is_ok() {
                break (moving, travellers, count);
            }
        };
        self.plants.at(Site::Frozen);
        fill(next, &travellers[..count]);
        bin.header.store(moving.moved().0, Ordering::SeqCst);
        true
    }

    /// Retires the oldest indexes whose bins were all moved.
    fn advance(&self) {
        loop {
            let index = self.current();
            if !index.is_moved() {
                return;
            }
            let next = index.next().expect("a bin moves only after the next index exists");
            if self.advance_from(index, next) {
                index.retire();
                next.singles.release_kept();
                next.pairs.release_kept();
            }
        }
    }
}

/// Bins that one call has moved. They are counted when the call ends, even by a panic.
struct Moved<'a> {
    raw: &'a Raw,
    index: &'a Index,
    bins: usize,
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        if self.bins > 0 && self.index.count_moved(self.bins) {
            self.raw.advance();
        }
    }
}

/// Returns the entries of the copy of a bin with their hashes, and their number. A hash that does not belong to the bin
/// is changed to the nearest one that does.
fn travellers<R: Rehash>(
    index: &Index,
    number: usize,
    copy: &Snapshot,
    rehash: &R,
) -> ([Traveller; SLOTS as usize], usize) {
    let (first, last) = index.hashes_of(number);
    let none = std::ptr::null_mut();
    let empty = Traveller { hash: 0, key: none, value: none, is_shadow: false };
    let mut travellers = [empty; SLOTS as usize];
    for (place, found) in travellers.iter_mut().zip(copy.entries()) {
        // SAFETY: the words are from one snapshot. The caller of the operation protects boxes.
        let hash = unsafe { rehash.hash(found.key, found.value) }.clamp(first, last);
        let is_shadow = copy.header.shadows() >> found.slot & 1 == 1;
        *place = Traveller { hash, key: found.key, value: found.value, is_shadow };
    }
    (travellers, copy.entries().len())
}

/// Puts the entries of one bin into the bins of the next index.
fn fill(next: &Index, travellers: &[Traveller]) {
    let mut rest = (1_u32 << travellers.len()) - 1;
    while rest != 0 {
        let number = next.number_of(travellers[rest.trailing_zeros() as usize].hash);
        let mut group = [travellers[0]; SLOTS as usize];
        let mut count = 0;
        for (at, traveller) in travellers.iter().enumerate() {
            if next.number_of(traveller.hash) == number {
                group[count] = *traveller;
                count += 1;
                rest &= !(1 << at);
            }
        }
        if !fill_bin(next, number, &group[..count]) {
            // A later growth has frozen the bin while it was empty. The entries go where the bin's entries go.
            let after = next.next().expect("a bin moves only after the next index exists");
            fill(after, &group[..count]);
        }
    }
}

/// Fills an empty bin. Returns false if a later growth has frozen the bin.
fn fill_bin(index: &Index, number: usize, group: &[Traveller]) -> bool {
    let bin = index.bin(number);
    if header_of(bin) != Header(0) {
        return false;
    }
    let count = group.len() as u32;
    let take = |lines: &crate::lines::Lines, needed: bool| {
        needed.then(|| lines.take(Purpose::Growth).expect("lines are kept for a growth"))
    };
    let single = take(&index.singles, count > SLOTS_INLINE);
    let pair = take(&index.pairs, count > FIRST_OF_PAIR);
    let link = u64::from(single.unwrap_or(0)) | u64::from(pair.unwrap_or(0)) << u32::BITS;
    if link != 0 {
        bin.link.store(link, Ordering::Release);
    }
    let (mut present, mut shadows) = (0, 0);
    for (slot, traveller) in (0..count).zip(group) {
        let place = index.slot(bin, link, slot).expect("the line was just linked");
        place.fill(traveller.key, traveller.value);
        present |= 1 << slot;
        shadows |= u32::from(traveller.is_shadow) << slot;
    }
    if exchange(bin, Header(0), Header::filled(present, shadows)).is_ok() {
        return true;
    }
    if let Some(number) = single {
        index.singles.give(number);
    }
    if let Some(number) = pair {
        index.pairs.give(number);
    }
    false
}

/// Returns the factor by which an index should grow, so that an entry finds room in its bin, of which the caller has a
/// copy. Returns nothing if a very large factor would not separate the bin's entries.
fn factor_for<R: Rehash>(index: &Index, copy: &Snapshot, hash: u64, rehash: &R) -> Option<usize> {
    let usual = if index.bin_count() < SMALL_BINS { FACTOR_SMALL } else { FACTOR };
    if copy.entries().len() < SLOTS as usize {
        return Some(usual);
    }
    let (travellers, count) = travellers(index, index.number_of(hash), copy, rehash);
    let bin_in = |bins: usize, hash: u64| (u128::from(hash) * bins as u128) >> 64;
    let mut factor = usual;
    while factor <= FACTOR_MAX {
        let bins = index.bin_count().checked_mul(factor)?;
        let mine = bin_in(bins, hash);
        if travellers[..count].iter().any(|it| bin_in(bins, it.hash) != mine) {
            return Some(factor);
        }
        factor *= 2;
    }
    None
}
