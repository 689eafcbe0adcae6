//! The hash index: records lie in their bucket, and one READ returns the two slots in which a key probably lies.
//!
//! ```text
//! bucket   | directory record, 64 B | bin 0: slot slot | bin 1: slot slot | bin 2 | bin 3 |
//! ```
//! Each key has a *bin*, which is two adjacent slots. The first READ of a lookup returns the key's bin. At the
//! planned load, nine of ten keys lie in their bin. A key that is not in its bin may lie in another slot of the
//! bucket, or in the bucket's chain of overflow blocks. Overflow blocks have the shape of a bucket, but use only the
//! field NEXT of their directory line. For a key outside its bin, the second READ returns the directory record, then
//! all slots, then the directory record's head again.
//!
//! In a table whose slots are `by_bucket`, keys have no bins. The first READ of a lookup returns the whole bucket, and the next READs return the blocks of its chain. If a key is in none of
//! these blocks, a second search proves that the key is absent: one READ may return its lines in any order, so it does
//! not show that a key was in none of them at one moment. Published systems read whole buckets in this way, without
//! the second search ([`LookupContext::proves_absent`]).
//! Buckets that are read whole may have more slots than the bins have ([`crate::layout::BucketShape`]).
//!
//! Invariant: a key is in at most one slot. The key's slot lies in the bucket that the key's hash and the bucket's
//! depth determine. A slot becomes used or free, and NEXT changes, only under the directory record's lock and with a
//! new directory VERSION. A directory VERSION is at least the VERSION of every record deleted from its bucket. So the
//! answer "absent as of directory VERSION v" has a place in the order of the key's versions. If the directory record
//! is still unlocked and unchanged at validation, the key is still absent. So no phantoms are possible.
//!
//! Memory that was never written contains zeros, and a bucket of zeros is an empty bucket.

use super::growth::IndexHeader;
use super::locate::{IndexView, hash_of, low_bits, state_seen};
use super::prints::{Prints, slot_for_new};
use crate::layout::{
    DIRECTORY_BYTES, DIRECTORY_DEPTH_AT, DIRECTORY_NEXT_AT, Geometry, HEADER_BYTES, KEY_AT,
    LOCK_AT, LockWords, SEGMENTS_MAX, Slot, VERSION_AT, Version,
};
use crate::placement::catalog::{Catalog, Table};
use crate::placement::replica_groups::ThreadGroups;
use tarn_fabric::address::{Address, GroupId};
use tarn_fabric::round::{BufferOffset, Round};

/// The data of the compute node that a lookup uses.
#[derive(Clone, Copy)]
pub struct LookupContext<'a> {
    /// The catalog, which has the layouts of all tables.
    pub catalog: &'a Catalog,
    /// The map of replica groups to memory nodes.
    pub groups: &'a ThreadGroups,
    /// The compute node's knowledge of the growth of indexes.
    pub view: &'a IndexView,
    /// Whether a look-up that reads whole buckets proves what one READ of a bucket shows. Without the proof the look-up
    /// is right if no commit falls between two lines of a READ.
    pub proves_absent: bool,
}

impl LookupContext<'_> {
    /// Returns the context with this value of [`LookupContext::proves_absent`].
    #[inline]
    #[must_use]
    pub fn proving(self, proves_absent: bool) -> Self {
        Self { proves_absent, ..self }
    }

    /// Whether one READ of a whole bucket of this table shows what the bucket contains.
    fn believes(&self, table: &Table) -> bool {
        table.slot.by_bucket && !self.proves_absent
    }
}

/// The key that a lookup searches for.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The key word: the key itself, or the hash of a longer key.
    pub word: u64,
    /// The position of the full key in the round's buffer, for keys longer than a word.
    pub full_key: Option<BufferOffset>,
    /// The tag of the transaction that makes the lookup. Locks of this transaction do not block the lookup.
    pub me: u64,
    /// Tells which slots are not free although their LOCK words are 0: the transaction has locked them elsewhere. `None`
    /// if all locks on slots are LOCK words.
    pub taken: Option<&'a dyn Fn(Address) -> bool>,
}

/// The purpose of the next READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Step {
    #[default]
    Bin,
    Whole,
    Directory,
    Bucket,
    Chain,
    Header,
    Again,
}

/// The result of one step of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The lookup has found the record.
    Found {
        /// The address of the record's slot.
        address: Address,
        /// The position of the image of the record's slot in the round's buffer.
        image: BufferOffset,
        /// Whether the image is a snapshot of one moment, if its LOCK is free. If a slot has several lines and lies
        /// outside the key's home, its image may not be a snapshot of one moment. If the image is not such a
        /// snapshot, the caller must read the slot again.
        consistent: bool,
    },
    /// The record does not exist, as of the version of the key's directory record.
    Absent,
    /// The answer is not known yet: the caller must plan the next round.
    More,
    /// Another transaction is changing memory that the lookup must read, so the transaction of the lookup must abort.
    Unstable,
}

/// The lookup of one key in the index.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lookup {
    /// The address of the bucket's directory record.
    pub directory: Address,
    /// The version of the directory record, once the lookup has read the bucket.
    pub directory_version: Version,
    /// The position of the directory record's image in the round's buffer. The image was read under the directory's
    /// lock.
    pub directory_image: BufferOffset,
    /// The position of the bucket's image in the round's buffer, if the lookup has read the whole bucket as of the
    /// directory's version.
    pub bucket_image: Option<BufferOffset>,
    /// The last block of the bucket's chain, once the lookup has read the bucket.
    pub tail: Address,
    /// A free slot and its version, if the lookup has seen a free slot. The version is [`Version::NEVER`] if only the
    /// fingerprints show that the slot is free.
    pub free: Option<(Address, Version)>,
    /// Whether the lookup has seen the key's absence in one batch of verbs, which began and ended with the same
    /// directory version. An absence that was seen in one such batch needs no validation.
    pub stable: bool,
    /// Whether the bucket's chain has slots of deleted records, in layouts where a deleted record keeps its slot.
    pub has_tombstones: bool,
    group: GroupIdOrZero,
    bin: u8,
    depth: u8,
    depth_found: u8,
    step: Step,
    block: Address,
    at: BufferOffset,
}

type GroupIdOrZero = u16;

impl Lookup {
    /// Starts a lookup whose first READ is the key's home.
    pub fn start(near: LookupContext<'_>, table: &Table, key_word: u64) -> Lookup {
        let mut lookup = Lookup::default();
        lookup.start_at_home(near, table, key_word);
        lookup
    }

    /// Restarts the lookup at the key's home.
    pub fn start_at_home(&mut self, near: LookupContext<'_>, table: &Table, key_word: u64) {
        let place = near.view.place(near.catalog, table, hash_of(table, key_word));
        self.directory = place.bucket;
        self.group = place.group.0;
        self.bin = place.bin;
        self.depth = place.depth;
        self.block = place.bucket;
        self.step = if table.slot.by_bucket { Step::Whole } else { Step::Bin };
        self.stable = false;
        self.free = None;
        self.bucket_image = None;
    }

    /// Restarts the lookup with a READ of the bucket instead of the key's home. An insert or a delete needs this
    /// READ, or a caller that must read the bucket again.
    pub fn restart_at_bucket(&mut self) {
        self.step = Step::Bucket;
        self.bucket_image = None;
        self.free = None;
    }

    /// Restarts the lookup for an insert. If the table has fingerprints, the next READ returns only the directory
    /// record. If the table has no fingerprints, the next READ returns the bucket.
    pub fn restart_for_insert(&mut self, table: &Table) {
        self.restart_at_bucket();
        if Prints::apply(table) {
            self.step = Step::Directory;
        }
    }

    /// Begins a second check of a key that was in no block of the bucket's chain. The next READ returns the directory
    /// record's head, which shows whether any record has moved since the lookup first read the head.
    pub fn look_again(&mut self) {
        self.step = Step::Again;
    }

    /// The replica group of the key's bucket.
    pub fn group(&self) -> GroupId {
        GroupId(self.group)
    }

    /// Adds the next step's verbs to the round.
    pub fn plan(&mut self, near: LookupContext<'_>, table: &Table, round: &mut Round) {
        match self.step {
            Step::Bin => self.plan_bin(near, table, round),
            Step::Bucket => self.plan_bucket(near, table, round),
            Step::Directory => {
                self.at = round.read(near.groups.primary(self.directory), DIRECTORY_BYTES);
            }
            Step::Again => {
                self.at = round.read(near.groups.primary(self.directory), 16);
            }
            Step::Whole | Step::Chain => {
                let target = near.groups.primary(self.block);
                self.at = round.read(target, table.geometry.bucket_bytes);
            }
            Step::Header => {
                let target = near.groups.primary(table.geometry.header(self.group()));
                self.at = round.reserve_lines(Geometry::HEADER_BYTES + 16);
                round.read_into(target, self.at, Geometry::HEADER_BYTES);
                round.read_into(target, self.at.plus(Geometry::HEADER_BYTES), 16);
            }
        }
    }

    fn plan_bin(&mut self, near: LookupContext<'_>, table: &Table, round: &mut Round) {
        let slot_bytes = table.slot.slot_bytes;
        let bin_bytes = Geometry::SLOTS_PER_BIN * slot_bytes;
        let bin = self.directory.plus(DIRECTORY_BYTES + usize::from(self.bin) * bin_bytes);
        let target = near.groups.primary(bin);
        if table.slot.is_read_at_once() {
            self.at = round.read(target, bin_bytes);
            return;
        }
        // Slots of several lines: one READ may return their lines in any order. So LOCK and VERSION are read
        // separately, before and after the slots.
        self.at = round.reserve_lines(bin_bytes + Geometry::SLOTS_PER_BIN * 32);
        for slot in 0..Geometry::SLOTS_PER_BIN {
            let before = self.at.plus(bin_bytes + slot * 32);
            round.read_into(target.plus(slot * slot_bytes), before, 16);
        }
        round.read_into(target, self.at, bin_bytes);
        for slot in 0..Geometry::SLOTS_PER_BIN {
            let after = self.at.plus(bin_bytes + slot * 32 + 16);
            round.read_into(target.plus(slot * slot_bytes), after, 16);
        }
    }

    fn plan_bucket(&mut self, near: LookupContext<'_>, table: &Table, round: &mut Round) {
        let bucket_bytes = table.geometry.bucket_bytes;
        let target = near.groups.primary(self.directory);
        self.block = self.directory;
        if near.believes(table) {
            self.at = round.read(target, bucket_bytes);
            return;
        }
        self.at = round.reserve_lines(bucket_bytes + 16);
        round.read_into(target, self.at, DIRECTORY_BYTES);
        let slots = bucket_bytes - DIRECTORY_BYTES;
        let slots_at = self.at.plus(DIRECTORY_BYTES);
        round.read_into(target.plus(DIRECTORY_BYTES), slots_at, slots);
        round.read_into(target, self.at.plus(bucket_bytes), 16);
    }

    /// Processes the results of the planned verbs.
    pub fn absorb(
        &mut self,
        near: LookupContext<'_>,
        table: &Table,
        wanted: Wanted<'_>,
        round: &Round,
    ) -> Answer {
        match self.step {
            Step::Bin => self.absorb_bin(table, wanted, round),
            Step::Whole => self.absorb_whole(near, table, wanted, round),
            Step::Bucket => self.absorb_bucket(near, table, wanted, round),
            Step::Directory => self.absorb_directory(table, wanted, round),
            Step::Chain => {
                self.tail = self.block;
                let next = round.word(self.at.plus(DIRECTORY_NEXT_AT));
                self.absorb_block(table, wanted, round, Address::from_word(next))
            }
            Step::Header => self.absorb_header(near, table, wanted, round),
            Step::Again => {
                let [lock, version] = *round.array::<2>(self.at);
                // If the transaction itself has locked the bucket since the lookup's first READ of the directory
                // record, no other transaction has changed the bucket.
                let is_free = lock == 0 || lock == wanted.me;
                self.stable = is_free && version == self.directory_version.word();
                if !self.stable {
                    // If the caller searches again, the search begins with the bucket.
                    self.step = Step::Bucket;
                    return Answer::Unstable;
                }
                Answer::Absent
            }
        }
    }

    /// If a lock was the reason for the last answer [`Answer::Unstable`], returns the lock's address and its word.
    pub fn met(&self, table: &Table, round: &Round) -> Option<(Address, u64)> {
        let word = |at: BufferOffset| round.word(at.plus(LOCK_AT));
        let (address, word) = match self.step {
            Step::Bucket | Step::Directory | Step::Again => (self.directory, word(self.at)),
            Step::Header => (table.geometry.header(self.group()), word(self.at)),
            Step::Bin => {
                let bin = DIRECTORY_BYTES + usize::from(self.bin) * table.geometry.bin_bytes;
                let slots = (0..Geometry::SLOTS_PER_BIN).map(|slot| slot * table.slot.slot_bytes);
                let locked = |slot: &usize| word(self.at.plus(*slot)) != 0;
                let slot = slots.clone().find(locked)?;
                (self.directory.plus(bin + slot), word(self.at.plus(slot)))
            }
            Step::Whole | Step::Chain => return None,
        };
        (word != 0).then_some((address, word))
    }

    fn absorb_bin(&mut self, table: &Table, wanted: Wanted<'_>, round: &Round) -> Answer {
        let slot_bytes = table.slot.slot_bytes;
        for slot in 0..Geometry::SLOTS_PER_BIN {
            let image = self.at.plus(slot * slot_bytes);
            if !holds(&table.slot, wanted, round, image) {
                continue;
            }
            let bin_bytes = Geometry::SLOTS_PER_BIN * slot_bytes;
            let before = self.at.plus(bin_bytes + slot * 32);
            if !table.slot.is_read_at_once() && !is_at_rest(table, round, before) {
                return Answer::Unstable;
            }
            let at = DIRECTORY_BYTES + usize::from(self.bin) * bin_bytes + slot * slot_bytes;
            return Answer::Found { address: self.directory.plus(at), image, consistent: true };
        }
        self.step = Step::Bucket;
        Answer::More
    }

    /// One READ may return the lines of a block in any order. But the image of a record of one line is always
    /// consistent, and a chain grows only at its end. So if the key is in some line, the answer is valid. If the key
    /// is in no line, the key may still exist.
    fn absorb_whole(
        &mut self,
        near: LookupContext<'_>,
        table: &Table,
        wanted: Wanted<'_>,
        round: &Round,
    ) -> Answer {
        for slot in 0..table.geometry.slots {
            let at = DIRECTORY_BYTES + slot * table.slot.slot_bytes;
            let image = self.at.plus(at);
            if holds(&table.slot, wanted, round, image) {
                let (address, consistent) = (self.block.plus(at), table.slot.is_read_at_once());
                return Answer::Found { address, image, consistent };
            }
        }
        let is_first = self.block == self.directory;
        if is_first && near.believes(table) && self.is_free(wanted, round) {
            return self.absorb_first_block(table, wanted, round);
        }
        let next = Address::from_word(round.word(self.at.plus(DIRECTORY_NEXT_AT)));
        match next.is_null() {
            true => self.step = Step::Bucket,
            false => self.block = next,
        }
        Answer::More
    }

    fn absorb_bucket(
        &mut self,
        near: LookupContext<'_>,
        table: &Table,
        wanted: Wanted<'_>,
        round: &Round,
    ) -> Answer {
        let again = self.at.plus(table.geometry.bucket_bytes);
        let is_whole = near.believes(table) || same_head(round, self.at, again);
        if !self.is_free(wanted, round) || !is_whole {
            return Answer::Unstable;
        }
        self.absorb_first_block(table, wanted, round)
    }

    /// Whether no other transaction has locked the directory record that the lookup has read.
    fn is_free(&self, wanted: Wanted<'_>, round: &Round) -> bool {
        let lock = round.word(self.at.plus(LOCK_AT));
        lock == 0 || lock == wanted.me
    }

    /// Processes the image of the bucket's own block, which is the content of the bucket at one moment.
    fn absorb_first_block(&mut self, table: &Table, wanted: Wanted<'_>, round: &Round) -> Answer {
        if !self.admit(round) {
            return Answer::More;
        }
        self.bucket_image = Some(self.at);
        let next = round.word(self.at.plus(DIRECTORY_NEXT_AT));
        self.absorb_block(table, wanted, round, Address::from_word(next))
    }

    /// Stores the version of the directory record that the lookup has read. Returns whether the bucket's depth is the
    /// expected depth.
    fn admit(&mut self, round: &Round) -> bool {
        let depth = round.word(self.at.plus(DIRECTORY_DEPTH_AT));
        if depth != u64::from(self.depth) {
            self.depth_found = depth as u8;
            self.step = Step::Header;
            return false;
        }
        self.directory_version = Version::from_word(round.word(self.at.plus(VERSION_AT)));
        self.tail = self.directory;
        self.stable = true;
        self.free = None;
        self.has_tombstones = false;
        true
    }

    /// Processes the result of a READ that returned only the directory record. A directory record is one line, so its
    /// image is a snapshot of one moment. If the fingerprints are valid and the bucket has no chain, they can prove
    /// that a key is absent. If the directory record does not prove the absence, the lookup must read the bucket.
    fn absorb_directory(&mut self, table: &Table, wanted: Wanted<'_>, round: &Round) -> Answer {
        if !self.is_free(wanted, round) {
            return Answer::Unstable;
        }
        if !self.admit(round) {
            return Answer::More;
        }
        let hash = hash_of(table, wanted.word);
        let Some(slot) = slot_for_new(round, self.at, (hash, self.bin)) else {
            self.step = Step::Bucket;
            return Answer::More;
        };
        let at = DIRECTORY_BYTES + slot * table.slot.slot_bytes;
        self.free = Some((self.directory.plus(at), Version::NEVER));
        Answer::Absent
    }

    /// Searches the slots of one block for the key, and decides whether the lookup must read the next block of the
    /// chain.
    fn absorb_block(
        &mut self,
        table: &Table,
        wanted: Wanted<'_>,
        round: &Round,
        next: Address,
    ) -> Answer {
        let slot_bytes = table.slot.slot_bytes;
        for slot in 0..table.geometry.slots {
            let at = DIRECTORY_BYTES + slot * slot_bytes;
            let image = self.at.plus(at);
            if holds(&table.slot, wanted, round, image) {
                let (address, consistent) = (self.block.plus(at), table.slot.is_read_at_once());
                return Answer::Found { address, image, consistent };
            }
            let [lock, version] = *round.array(image.plus(LOCK_AT));
            let version = Version::from_word(version);
            // A reader of the record that was in this slot before may have left a lease. The lease must expire,
            // like any other lease.
            let is_free = table.slot.lock_words.is_free(lock);
            if !version.is_present()
                && is_free
                && (self.free.is_none() || self.is_home(slot))
                && wanted.taken.is_none_or(|taken| !taken(self.block.plus(at)))
            {
                self.free = Some((self.block.plus(at), version));
            }
        }
        if self.step == Step::Chain && !self.has_tombstones {
            let slots = (0..table.geometry.slots).map(|slot| DIRECTORY_BYTES + slot * slot_bytes);
            let image = |at: usize| round.bytes(self.at.plus(at), slot_bytes);
            self.has_tombstones = slots.into_iter().any(|at| table.slot.is_tombstone(image(at)));
        }
        if next.is_null() {
            return Answer::Absent;
        }
        self.block = next;
        self.stable = false;
        self.step = Step::Chain;
        Answer::More
    }

    /// Whether a slot of the block that the lookup is reading belongs to the key's own bin.
    fn is_home(&self, slot: usize) -> bool {
        self.block == self.directory && slot / Geometry::SLOTS_PER_BIN == usize::from(self.bin)
    }

    fn absorb_header(
        &mut self,
        near: LookupContext<'_>,
        table: &Table,
        wanted: Wanted<'_>,
        round: &Round,
    ) -> Answer {
        let (assumed, found) = (self.depth, self.depth_found);
        if found <= assumed || usize::from(found) > SEGMENTS_MAX {
            return Answer::Unstable; // a compute node never expects a greater depth than an unlocked bucket has
        }
        // The lower bound `seen` is correct even if the header is being changed. The index header's other contents
        // are used only if the header is unlocked.
        let seen = state_seen(table, hash_of(table, wanted.word), assumed, found);
        let again = self.at.plus(Geometry::HEADER_BYTES);
        let free = round.word(self.at.plus(LOCK_AT)) == 0 && same_head(round, self.at, again);
        let mut header = IndexHeader::read(round, self.at);
        if !free || !header.is_complete() || header.state.word() < seen.word() {
            header = header.limited_to(seen);
        }
        if !header.is_complete() {
            return Answer::Unstable;
        }
        near.view.learn(table, self.group(), header.state.word(), &header.segments);
        if near.view.state(table, self.group()).word() < seen.word() {
            return Answer::Unstable; // the header holds an impossible state
        }
        self.start_at_home(near, table, wanted.word);
        Answer::More
    }
}

/// Returns the home of the key with this hash, which is the address of the key's bin.
#[inline(always)]
pub fn home(near: LookupContext<'_>, table: &Table, hash: u64) -> Address {
    let place = near.view.place(near.catalog, table, hash);
    place.bucket.plus(DIRECTORY_BYTES + usize::from(place.bin) * table.geometry.bin_bytes)
}

/// Searches a record of a plain table ([`Slot::is_plain`]) in the image of its bin in the round's buffer. Returns the
/// record's offset in the bin, and the words of its header. `None` does not prove that the key is absent, because the
/// record may lie elsewhere in its bucket.
#[inline(always)]
pub fn head_at_home(
    table: &Table,
    key: u64,
    round: &Round,
    image: BufferOffset,
) -> Option<(usize, [u64; 3])> {
    const { assert!(Geometry::SLOTS_PER_BIN == 2 && HEADER_BYTES == 3 * 8) };
    for offset in [0, table.slot.slot_bytes] {
        let head = round.array::<3>(image.plus(offset));
        if head[KEY_AT / 8] == key && Version::from_word(head[VERSION_AT / 8]).is_present() {
            return Some((offset, *head));
        }
    }
    None
}

/// Whether the slot image holds the record of the wanted key.
#[inline]
fn holds(slot: &Slot, wanted: Wanted<'_>, round: &Round, image: BufferOffset) -> bool {
    let [_, version, key] = *round.array(image);
    if key != wanted.word || !Version::from_word(version).is_present() {
        return false;
    }
    let Some(full_key) = wanted.full_key else { return true };
    let len = slot.full_key_bytes;
    round.bytes(image.plus(slot.full_key_at), len) == round.bytes(full_key, len)
}

/// Whether a slot did not change between two images of its head. The second image of the head lies 16 bytes behind
/// the first image. In tables where readers change LOCK, the function compares only VERSION. In tables where readers
/// change LOCK, a transaction that has found a record reads the record again under its own lock.
fn is_at_rest(table: &Table, round: &Round, first: BufferOffset) -> bool {
    let again = first.plus(16);
    match table.slot.lock_words {
        LockWords::Tags => same_head(round, first, again),
        LockWords::Tickets => {
            round.word(first.plus(VERSION_AT)) == round.word(again.plus(VERSION_AT))
        }
    }
}

/// Whether LOCK and VERSION are the same in two images of a slot's or directory record's head.
#[inline]
pub fn same_head(round: &Round, first: BufferOffset, second: BufferOffset) -> bool {
    round.word(first.plus(LOCK_AT)) == round.word(second.plus(LOCK_AT))
        && round.word(first.plus(VERSION_AT)) == round.word(second.plus(VERSION_AT))
}

/// The bit of a key's hash that decides in which bucket the key lies after the split of a bucket of this depth.
pub fn growth_bit(table: &Table, key_word: u64, depth: u8) -> bool {
    low_bits(hash_of(table, key_word), depth + 1) >> depth == 1
}
