//! The changes that a split of a bucket makes: the slot to which each record moves, and the bytes that must be
//! written.
//!
//! About half of the old bucket's records move to the new bucket. Each record that moves to the new bucket goes to
//! its home bin there, if that bin has room. After that, the split moves records of the old bucket to their home
//! bins, and moves records from the old bucket's overflow blocks into the old bucket. Overflow blocks that become
//! empty stay in the bucket's chain, for later records.
//!
//! Invariants of a split:
//! - A move changes no record: the record's KEY, VERSION, payload and body stay the same. Because moves change no
//!   record, a split leaves the versions of each key as they are, and histories do not record splits.
//! - The VERSION of a slot only grows. A record moves only into a slot whose VERSION is lower than the record's
//!   VERSION. When a record leaves a slot, the slot gets a VERSION that is higher than the record's VERSION.
//! - A split that recovery undoes leaves no trace in the versions of any key. If one record leaves a slot and another
//!   record takes the slot, the undo of the split gives the slot its old VERSION back. If one record leaves a slot
//!   and another takes it, the slot's VERSION grows by more than 1. This growth distinguishes the move from an update
//!   ([`tarn_store::log::undo::LoggedRecord::restored_version`]). A record may move into a slot that another record
//!   leaves only if the slot lies in one cache line. In a slot of several cache lines, a reader could see some lines
//!   from before the move and some lines from after it.
//! - The split loses no body of a record, and lets no two slots have the same body. A slot that a record has left
//!   keeps no pointer to the record's body. If a slot that the split fills had the body of an earlier record, the
//!   emptied slot gets that body; otherwise it gets no body.

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

/// The bucket to which a slot belongs: the old or the new bucket of the split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The bucket that the transaction splits.
    Old,
    /// The bucket that the split fills for the first time.
    New,
}

/// A slot in the state in which the split read it.
#[derive(Clone, Copy, Debug)]
pub struct SeenSlot {
    /// The address of the slot.
    pub address: Address,
    /// The position of the slot's image in the round's buffer. Later, the image that the transaction reads under the
    /// slot's lock replaces this image.
    pub image: BufferOffset,
    side: Side,
    /// The number of the bin that contains the slot; `None` if the slot lies in an overflow block of the chain.
    bin: Option<u8>,
    key: u64,
    version: Version,
    /// The number of the home bin of the slot's record.
    home: u8,
    /// Whether the slot's record belongs to the new bucket.
    leaves: bool,
    /// The index of the slot whose record this slot will contain after the split; `None` if this slot will be free.
    holds: Option<usize>,
    /// Whether the whole slot lies in one cache line.
    is_one_line: bool,
}

impl SeenSlot {
    /// Returns the key of the record that the slot contains before the split.
    pub fn held_key(&self) -> Option<u64> {
        self.version.is_present().then_some(self.key)
    }

    /// Returns whether a record of this version may move into the slot. The move must make the slot's VERSION grow.
    /// If the slot contains a record, the move must raise the slot's VERSION by more than an update would.
    fn may_take(&self, version: Version) -> bool {
        let jump = if self.version.is_present() { 2 } else { 1 };
        version.counter() >= self.version.counter() + jump
    }
}

/// The plan of a split: the slots of both buckets and their chains, and the slot to which each record goes.
#[derive(Default)]
pub struct Relocation {
    slots: Vec<SeenSlot>,
    /// The number of replicas of the slots.
    copies: usize,
}

impl Relocation {
    /// Makes an empty plan of a split for slots in a group with `copies` replicas.
    pub fn of(copies: usize) -> Relocation {
        Relocation { slots: Vec::new(), copies }
    }

    /// Adds the slots of a block to the plan of the split. The block is a bucket (`in_chain` is false) or an overflow
    /// block of a bucket's chain.
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

    /// Returns the number of overflow blocks that the new bucket needs.
    pub fn blocks_wanted(&self, table: &Table) -> usize {
        let leaving = |slot: &&SeenSlot| slot.version.is_present() && slot.leaves;
        let leaving = self.slots.iter().filter(leaving).count();
        leaving.saturating_sub(table.geometry.slots).div_ceil(table.geometry.slots)
    }

    /// Decides the slot to which each record moves. Returns false if the plan finds no slot for a record that must
    /// move to the new bucket.
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

    /// Plans moves for the records for which `moves` is true and whose moves are not planned yet. Each record whose
    /// move is planned moves to the first free slot for which `suits` is true.
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

    /// Returns the slots that the plan of the split changes. The caller locks these changed slots, and reads them
    /// again into new images.
    pub fn changed(&mut self) -> impl Iterator<Item = &mut SeenSlot> {
        self.slots.iter_mut().enumerate().filter_map(|(at, slot)| {
            let before = slot.version.is_present().then_some(at);
            (slot.holds != before).then_some(slot)
        })
    }

    /// Returns the number of slots that the plan of the split changes.
    pub fn changes(&self) -> usize {
        let before = |(at, slot): &(usize, &SeenSlot)| slot.version.is_present().then_some(*at);
        self.slots.iter().enumerate().filter(|each| each.1.holds != before(each)).count()
    }

    /// Returns whether the plan of the split is still valid for the images that the transaction read under the slots'
    /// locks. Another transaction may have updated a record since the plan was made. The plan is invalid if a record
    /// was inserted or deleted, or if a slot's VERSION would no longer grow.
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

    /// Adds the bytes that the split writes, and sets the old and new versions of the locks. The locks from
    /// `first_lock` on are the locks of the changed slots, in the order of these slots.
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

    /// Adds the split's writes in the same way as [`Relocation::write`], for slots that contain several versions of a
    /// record. The split copies slots with several versions whole and unchanged, and each of these slots lies in one
    /// cache line. The VERSION word of a slot with several versions is not the version of its record.
    ///
    /// A slot that is free at the primary may still contain a key at another replica, because an insert failed
    /// between its writes to the two replicas. So the split writes each free slot as free at every replica. If a free
    /// slot kept a key at some replica, two slots of that replica could later contain that key.
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

    /// Adds the split's writes in the same way as [`Relocation::write`], for records that consist of cache lines. The
    /// split writes the slots of records that consist of cache lines whole, and writes their first lines first. The
    /// move of a record into a slot leaves the record unchanged. A slot that its record has left gets a version that
    /// follows the slot's old version. A moved record and an emptied slot both keep the name of the record's last
    /// writer, because the index header names the transaction of the split.
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

    /// Returns the bodies that the slots to fill still have from earlier records, because the split overwrites the
    /// pointers to these bodies.
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

/// Fills a slot with a record that moves there. All bytes of the filled slot except LOCK are the same as in the slot
/// that the record leaves.
fn fill(table: &Table, txn: &mut Txn, to: &SeenSlot, from: &SeenSlot) {
    let slot = &table.slot;
    // The slot contains no record, so the transaction logs the slot's old VERSION, KEY and BODY, but not its payload.
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

/// Empties a slot that its record has left, and removes the pointer to the record's body. Returns the version of the
/// emptied slot.
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

/// Adds the writes of some cache lines of a slot under the slot's lock. The new bytes at `new` replace the bytes at
/// `old`, in the given parts.
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

/// Adds the write of one word under a lock to the transaction's pieces.
pub fn write_word(txn: &mut Txn, address: Address, old: u64, new: u64) {
    let words = txn.round.reserve(16);
    txn.round.set_word(words, new);
    txn.round.set_word(words.plus(8), old);
    let (new, old) = (words, words.plus(8));
    txn.pieces.push(PendingWrite { address, new, old, len_bytes: 8, logged: true });
}

/// Returns the number of slots that contain a record in the block whose image is at the position `at`. The function
/// scales this number to the number of slots in the block's bins.
pub fn used_slots(table: &Table, round: &Round, at: BufferOffset) -> usize {
    let version = |slot: usize| {
        let offset = DIRECTORY_BYTES + slot * table.slot.slot_bytes + VERSION_AT;
        Version::from_word(round.word(at.plus(offset)))
    };
    let slots = table.geometry.slots;
    let used = (0..slots).filter(|&slot| version(slot).is_present()).count();
    used * Geometry::BIN_SLOTS / slots
}

/// Returns the depth that both the old and the new bucket have after the split of this step.
pub fn depth_after(step: &Step) -> u64 {
    u64::from(step.before.level) + 1
}

#[cfg(test)]
#[path = "relocate_tests.rs"]
mod tests;
