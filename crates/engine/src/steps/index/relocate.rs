//! The changes of a split: which record goes to which slot, and the bytes that say so.
//!
//! Half of the old bucket's records move to the new bucket, each into its own bin if there is room. Then the old
//! bucket is tidied: records away from their bin go home, and records of the chain come into the bucket. Emptied
//! overflow blocks stay linked and are used again.
//!
//! Invariants:
//! - A move changes no record: KEY, VERSION, payload and body are the same before and after. So a key's versions are
//!   not touched, and histories need not know of splits.
//! - A slot's VERSION only grows. A record is put only into a slot whose VERSION was below its own. A slot that a
//!   record left gets a VERSION above that record's.
//! - A split that is undone leaves no trace in any key's versions. A slot that one record leaves and another takes
//!   gets its old VERSION back. The jump of its VERSION distinguishes it from an update
//!   ([`tarn_store::log::undo::LoggedRecord::restored_version`]). Only a slot that lies in one line may be taken so:
//!   of a longer one, a reader could see lines from before and after.
//! - Bodies are neither lost nor shared. A slot that a record left keeps no pointer to its body. It takes over the
//!   body that a filled slot had left over from an earlier record, or none.

use crate::transaction::working_set::{PendingWrite, Txn};
use std::ops::Range;
use tarn_fabric::address::{Address, LINE_BYTES};
use tarn_fabric::round::{BufferOffset, Round};
use tarn_store::index::growth::Step;
use tarn_store::index::hash::growth_bit;
use tarn_store::index::{bin_of, hash_of};
use tarn_store::layout::{
    DIRECTORY_BYTES, Geometry, KEY_AT, Lined, RecordLayout, VERSION_AT, Version,
};
use tarn_store::placement::catalog::Table;

/// The bucket that a slot belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The bucket that is split.
    Old,
    /// The bucket that comes into use.
    New,
}

/// A slot as it was read.
#[derive(Clone, Copy, Debug)]
pub struct SeenSlot {
    /// Where it lies.
    pub address: Address,
    /// Its image in the round's buffer; replaced later by the one read under its lock.
    pub image: BufferOffset,
    side: Side,
    /// Its bin of the bucket; `None` if it lies in the chain.
    bin: Option<u8>,
    key: u64,
    version: Version,
    /// The home bin of its record.
    home: u8,
    /// Whether its record belongs to the new bucket.
    leaves: bool,
    /// The slot whose record it will hold.
    holds: Option<usize>,
    /// Whether all of it lies in one line.
    is_one_line: bool,
}

impl SeenSlot {
    /// Returns the key of the record that it holds before the split.
    pub fn held_key(&self) -> Option<u64> {
        self.version.is_present().then_some(self.key)
    }

    /// Returns whether a record of this version may come. VERSIONs grow; over another record's VERSION they grow by
    /// more than an update adds.
    fn may_take(&self, version: Version) -> bool {
        let jump = if self.version.is_present() { 2 } else { 1 };
        version.counter() >= self.version.counter() + jump
    }
}

/// The slots of both buckets and their chains, with the place to which each record goes.
#[derive(Default)]
pub struct Relocation {
    slots: Vec<SeenSlot>,
    /// The number of copies in which the slots lie.
    copies: usize,
}

impl Relocation {
    /// Makes a plan for slots in a group with so many copies.
    pub fn of(copies: usize) -> Relocation {
        Relocation { slots: Vec::new(), copies }
    }

    /// Adds the slots of a block: a bucket (`in_chain` false) or a block of its chain.
    pub fn add_block(
        &mut self,
        table: &Table,
        round: &Round,
        (address, at): (Address, BufferOffset),
        (side, in_chain): (Side, bool),
        depth: u8,
    ) {
        for slot in 0..table.geometry.slots {
            let offset = DIRECTORY_BYTES + slot * table.slot.slot_bytes;
            let image = at.plus(offset);
            let key = round.word(image.plus(KEY_AT));
            let version = Version::from_word(round.word(image.plus(VERSION_AT)));
            let bin = (!in_chain).then_some((slot / Geometry::SLOTS_PER_BIN) as u8);
            let home = bin_of(hash_of(table, key));
            let leaves = side == Side::Old && growth_bit(table, key, depth);
            let holds = version.is_present().then_some(self.slots.len());
            let address = address.plus(offset);
            let from = address.offset_bytes() as usize % LINE_BYTES;
            let is_one_line = from + table.slot.slot_bytes <= LINE_BYTES;
            self.slots.push(SeenSlot {
                address,
                image,
                side,
                bin,
                key,
                version,
                home,
                leaves,
                holds,
                is_one_line,
            });
        }
    }

    /// Returns how many blocks the new bucket's chain needs.
    pub fn blocks_wanted(&self, table: &Table) -> usize {
        let leaving = |slot: &&SeenSlot| slot.version.is_present() && slot.leaves;
        let leaving = self.slots.iter().filter(leaving).count();
        leaving.saturating_sub(table.geometry.slots).div_ceil(table.geometry.slots)
    }

    /// Decides where each record goes. Returns false if a record that must leave found no slot.
    pub fn plan(&mut self) -> bool {
        let leaving = |slot: &SeenSlot| slot.leaves;
        for home in [true, false] {
            self.place(leaving, |of, to| to.side == Side::New && (!home || is_home(of, to)));
        }
        let stays = |slot: &SeenSlot| !slot.leaves && slot.side == Side::Old;
        let away = |slot: &SeenSlot| stays(slot) && slot.bin != Some(slot.home);
        self.place(away, |of, to| to.side == Side::Old && is_home(of, to));
        let in_chain = |slot: &SeenSlot| stays(slot) && slot.bin.is_none();
        self.place(in_chain, |_, to| to.side == Side::Old && to.bin.is_some());
        !(0..self.slots.len()).any(|at| self.slots[at].leaves && self.slots[at].holds == Some(at))
    }

    /// Moves records for which `moves` is true, and that have not moved yet. Each goes to the first free slot that
    /// `suits` it.
    fn place(
        &mut self,
        moves: impl Fn(&SeenSlot) -> bool,
        suits: impl Fn(&SeenSlot, &SeenSlot) -> bool,
    ) {
        for from in 0..self.slots.len() {
            let record = self.slots[from];
            if record.holds != Some(from) || !moves(&record) {
                continue;
            }
            let fits = |to: &SeenSlot| {
                to.holds.is_none()
                    && (to.is_one_line || !to.version.is_present())
                    && to.may_take(record.version)
                    && suits(&record, to)
            };
            if let Some(to) = self.slots.iter().position(fits) {
                self.slots[to].holds = Some(from);
                self.slots[from].holds = None;
            }
        }
    }

    /// The slots that change: the caller locks them, and reads them again into new images.
    pub fn changed(&mut self) -> impl Iterator<Item = &mut SeenSlot> {
        self.slots.iter_mut().enumerate().filter_map(|(at, slot)| {
            let before = slot.version.is_present().then_some(at);
            (slot.holds != before).then_some(slot)
        })
    }

    /// Returns how many slots change.
    pub fn changes(&self) -> usize {
        let before = |(at, slot): &(usize, &SeenSlot)| slot.version.is_present().then_some(*at);
        self.slots.iter().enumerate().filter(|each| each.1.holds != before(each)).count()
    }

    /// Returns whether the plan still holds for the images that were read under the locks. Records may have been
    /// updated since; but none may have come or gone, and versions must still grow.
    pub fn still_holds(&mut self, round: &Round) -> bool {
        let mut same = true;
        for slot in self.changed() {
            let version = Version::from_word(round.word(slot.image.plus(VERSION_AT)));
            let present = slot.version.is_present();
            same &= version.is_present() == present;
            same &= !present || round.word(slot.image.plus(KEY_AT)) == slot.key;
            slot.version = version;
        }
        let grows = |(at, slot): (usize, &SeenSlot)| match slot.holds {
            Some(from) if from != at => slot.may_take(self.slots[from].version),
            _ => true,
        };
        same && self.slots.iter().enumerate().all(grows)
    }

    /// Adds the bytes to write, and sets the versions of the locks. The locks from `first_lock` on belong to the
    /// changed slots, in order.
    pub fn write(&self, table: &Table, txn: &mut Txn, first_lock: usize) {
        if matches!(table.slot.record, RecordLayout::Packed(_) | RecordLayout::Cells(_)) {
            return self.write_whole(table, txn);
        }
        if let Some(lined) = table.slot.lined() {
            return self.write_lined(lined, txn, first_lock);
        }
        let mut left_over = self.left_over_bodies(table, &txn.round);
        let slots = &self.slots;
        let mut lock = first_lock;
        for (at, slot) in slots.iter().enumerate() {
            let present = slot.version.is_present();
            if slot.holds == present.then_some(at) {
                continue;
            }
            let new_version = match slot.holds {
                Some(from) => {
                    fill(table, txn, slot, &slots[from]);
                    slots[from].version
                }
                None => {
                    let body = left_over.pop().unwrap_or(Address::NULL);
                    empty(table, txn, slot, body)
                }
            };
            let held = &mut txn.locks[lock];
            debug_assert_eq!(held.address, slot.address);
            (held.writes, held.old_version, held.new_version) = (true, slot.version, new_version);
            lock += 1;
        }
    }

    /// Writes like [`Relocation::write`], but slots with several versions. They move whole and unchanged, each in one
    /// line. The VERSION of such a slot is not the version of its record.
    ///
    /// A slot that is free at the primary may have been left used at another copy, by an insert that died. So it is
    /// made free at each copy: a key whose slot is chosen anew has no other slot there.
    fn write_whole(&self, table: &Table, txn: &mut Txn) {
        let bytes = table.slot.slot_bytes;
        let empty = txn.round.reserve_lines(bytes);
        txn.round.bytes_mut(empty, bytes).fill(0);
        for (at, slot) in self.slots.iter().enumerate() {
            let present = slot.version.is_present();
            let (new, logged) = match slot.holds {
                Some(from) if from == at => continue,
                Some(from) => (self.slots[from].image, true),
                None if present => (empty, true),
                None if self.copies > 1 => (empty, false),
                None => continue,
            };
            debug_assert!(slot.is_one_line);
            let (address, old, len_bytes) = (slot.address, slot.image, bytes as u32);
            txn.pieces.push(PendingWrite { address, new, old, len_bytes, logged });
        }
    }

    /// Writes like [`Relocation::write`], but records in lines. They are written whole, first lines first. A record
    /// that comes is unchanged. A record that has gone gets a version that follows its slot's. Neither names another
    /// writer than before: the header names the transaction that moves records.
    fn write_lined(&self, lined: Lined, txn: &mut Txn, first_lock: usize) {
        let changed = |(at, slot): &(usize, &SeenSlot)| {
            slot.holds != slot.version.is_present().then_some(*at)
        };
        let changed = self.slots.iter().enumerate().filter(changed);
        for (lock, (_, slot)) in (first_lock..).zip(changed) {
            let (new, version) = match slot.holds {
                Some(from) => (self.slots[from].image, self.slots[from].version),
                None => {
                    let (bytes, version) = (lined.record_bytes(), slot.version.absent_after());
                    let writer = lined.writer(txn.round.bytes(slot.image, bytes));
                    let new = txn.round.reserve_lines(bytes);
                    txn.round.copy_within(slot.image, new, bytes);
                    lined.stamp(txn.round.bytes_mut(new, bytes), version, writer);
                    (new, version)
                }
            };
            write_lines(txn, (slot.address, slot.image), new, lined.writes());
            let held = &mut txn.locks[lock];
            debug_assert_eq!(held.address, slot.address);
            (held.writes, held.old_version, held.new_version) = (true, slot.version, version);
            held.nameless = lined.is_half();
        }
    }

    /// Returns the bodies of free slots that are filled now: their pointers are about to be overwritten.
    fn left_over_bodies(&self, table: &Table, round: &Round) -> Vec<Address> {
        let Some(body_at) = table.slot.body_at else { return Vec::new() };
        let filled = |slot: &&SeenSlot| !slot.version.is_present() && slot.holds.is_some();
        let body = |slot: &SeenSlot| Address::from_word(round.word(slot.image.plus(body_at)));
        let bodies = self.slots.iter().filter(filled).map(body);
        bodies.filter(|body| !body.is_null()).collect()
    }
}

fn is_home(record: &SeenSlot, to: &SeenSlot) -> bool {
    to.bin == Some(record.home)
}

/// Fills a slot with a record: everything but LOCK is as it was in the slot that the record leaves.
fn fill(table: &Table, txn: &mut Txn, to: &SeenSlot, from: &SeenSlot) {
    let slot = &table.slot;
    // A slot without a record: its payload does not matter, but its VERSION, KEY and BODY do.
    let header_end = slot.body_at.map_or(KEY_AT + 8, |body_at| body_at + 8);
    let whole = to.version.is_present();
    let parts = [(VERSION_AT, header_end, true), (header_end, slot.used_bytes(), whole)];
    for (start, end, logged) in parts.into_iter().filter(|(start, end, _)| end > start) {
        txn.pieces.push(PendingWrite {
            address: to.address.plus(start),
            new: from.image.plus(start),
            old: to.image.plus(start),
            len_bytes: (end - start) as u32,
            logged,
        });
    }
}

/// Empties a slot that a record has left, its body included. Returns the slot's new version.
fn empty(table: &Table, txn: &mut Txn, slot: &SeenSlot, body: Address) -> Version {
    let version = slot.version.absent_after();
    let end = table.slot.body_at.map_or(KEY_AT, |body_at| body_at + 8);
    let new = txn.round.reserve(end);
    txn.round.copy_within(slot.image, new, end);
    txn.round.set_word(new.plus(VERSION_AT), version.word());
    if let Some(body_at) = table.slot.body_at {
        txn.round.set_word(new.plus(body_at), body.to_word());
    }
    txn.pieces.push(PendingWrite {
        address: slot.address.plus(VERSION_AT),
        new: new.plus(VERSION_AT),
        old: slot.image.plus(VERSION_AT),
        len_bytes: (end - VERSION_AT) as u32,
        logged: true,
    });
    version
}

/// Adds lines to write under a lock: these parts of the bytes at `new`, over those at `old`.
pub fn write_lines(
    txn: &mut Txn,
    (address, old): (Address, BufferOffset),
    new: BufferOffset,
    parts: impl Iterator<Item = Range<usize>>,
) {
    txn.pieces.extend(parts.map(|part| PendingWrite {
        address: address.plus(part.start),
        new: new.plus(part.start),
        old: old.plus(part.start),
        len_bytes: part.len() as u32,
        logged: true,
    }));
}

/// Adds a word to write under a lock.
pub fn write_word(txn: &mut Txn, address: Address, old: u64, new: u64) {
    let words = txn.round.reserve(16);
    txn.round.set_word(words, new);
    txn.round.set_word(words.plus(8), old);
    let (new, old) = (words, words.plus(8));
    txn.pieces.push(PendingWrite { address, new, old, len_bytes: 8, logged: true });
}

/// Returns how many slots of the block whose image lies at `at` hold a record, scaled to as many slots as its bins
/// have.
pub fn used_slots(table: &Table, round: &Round, at: BufferOffset) -> usize {
    let version = |slot: usize| {
        let offset = DIRECTORY_BYTES + slot * table.slot.slot_bytes + VERSION_AT;
        Version::from_word(round.word(at.plus(offset)))
    };
    let slots = table.geometry.slots;
    let used = (0..slots).filter(|&slot| version(slot).is_present()).count();
    used * Geometry::BIN_SLOTS / slots
}

/// Returns the depth that both buckets have after the split.
pub fn depth_after(step: &Step) -> u64 {
    u64::from(step.before.level) + 1
}

#[cfg(test)]
#[path = "relocate_tests.rs"]
mod tests;
