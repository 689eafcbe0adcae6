//! The hash index: records lie in their bucket, and one READ brings a key's home.
//!
//! ```text
//! bucket   | directory record, 64 B | bin 0: slot slot | bin 1: slot slot | bin 2 | bin 3 |
//! ```
//! A key has a *bin*, two adjacent slots. The first READ brings its bin; at the planned load nine keys in ten
//! are there. Any other key may live in another slot of the bucket, or in the bucket's chain of overflow
//! blocks (same shape, directory line used for NEXT only). For such a key the second READ brings the
//! directory record, then all slots, then the directory record's head again.
//!
//! A table whose slots are `by_bucket` has no homes. Its first READ brings the whole bucket, and the next
//! ones bring the blocks of its chain. Only a key that is in none of them is looked for in the way that
//! proves absence. Published systems read buckets like this. Buckets may then have more slots than the bins
//! have ([`crate::layout::BucketShape`]).
//!
//! Invariants: a key is present in at most one slot, within the bucket that its hash and the bucket's depth
//! name. A slot becomes used or free, and NEXT changes, only under the directory record's lock and with a new
//! directory VERSION. A directory VERSION is at least the VERSION of every record deleted from its bucket. So
//! "absent as of directory VERSION v" orders an absent read among the key's versions. A directory record that
//! is unlocked and unchanged proves that the key is still absent: no phantoms.
//!
//! Memory that was never written is zero, and a bucket of zeros is an empty bucket.

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

/// The context that a lookup needs from its compute node.
#[derive(Clone, Copy)]
pub struct LookupContext<'a> {
    /// The tables' layouts.
    pub catalog: &'a Catalog,
    /// Where groups lie.
    pub groups: &'a ThreadGroups,
    /// How far indexes have grown.
    pub view: &'a IndexView,
}

/// The key looked for.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Key word: the key, or the hash of a longer one.
    pub word: u64,
    /// Where the full key lies in the round's buffer, for keys longer than a word.
    pub full_key: Option<BufferOffset>,
    /// The tag of the transaction that asks: its own locks are no obstacle.
    pub me: u64,
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

/// The result of a step of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The record was found.
    Found {
        /// The slot's address.
        address: Address,
        /// Where the slot's image lies in the round's buffer.
        image: BufferOffset,
        /// Whether the image is of one moment (unless its LOCK is set). A slot of several lines that was
        /// found outside the key's home is not, and must be read once more.
        consistent: bool,
    },
    /// There is no such record, as of the directory's version.
    Absent,
    /// The answer is not known yet: plan again.
    More,
    /// Another transaction is changing memory that had to be read: abort.
    Unstable,
}

/// The lookup of one key in the index.
#[derive(Clone, Copy, Default, Debug)]
pub struct Lookup {
    /// The bucket's directory record.
    pub directory: Address,
    /// The directory's version, once the bucket was read.
    pub directory_version: Version,
    /// The directory's image in the round's buffer, as read under its lock.
    pub directory_image: BufferOffset,
    /// The bucket's image in the round's buffer, if all of it was read as of the directory's version.
    pub bucket_image: Option<BufferOffset>,
    /// The last block of the bucket's chain, once the bucket was read.
    pub tail: Address,
    /// A free slot and its version, if one was seen. The version is [`Version::NEVER`] if only a fingerprint
    /// names the slot.
    pub free: Option<(Address, Version)>,
    /// Whether one batch that began and ended with the same directory version saw the absence. Such an
    /// absence needs no validation.
    pub stable: bool,
    /// Whether the bucket's chain has slots of deleted records, in layouts where these keep their slots.
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
    /// Starts at the key's home.
    pub fn start(near: LookupContext<'_>, table: &Table, key_word: u64) -> Lookup {
        let mut lookup = Lookup::default();
        lookup.start_at_home(near, table, key_word);
        lookup
    }

    /// Starts anew, at the key's home.
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

    /// Goes to the bucket at once: for an insert or delete, or to read it anew.
    pub fn restart_at_bucket(&mut self) {
        self.step = Step::Bucket;
        self.bucket_image = None;
        self.free = None;
    }

    /// Goes to the directory record alone, if that says which keys the bucket may hold: for an insert.
    pub fn restart_for_insert(&mut self, table: &Table) {
        self.restart_at_bucket();
        if Prints::apply(table) {
            self.step = Step::Directory;
        }
    }

    /// Checks once more an absence that the bucket's chain has shown. The next READ brings the directory
    /// record's head, which says whether any record has moved since the head was first read.
    pub fn look_again(&mut self) {
        self.step = Step::Again;
    }

    /// The replica group.
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
        // One READ brings the lines of such slots in any order. LOCK and VERSION are read apart, before the
        // slots and after.
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
        self.at = round.reserve_lines(bucket_bytes + 16);
        round.read_into(target, self.at, DIRECTORY_BYTES);
        let slots = bucket_bytes - DIRECTORY_BYTES;
        let slots_at = self.at.plus(DIRECTORY_BYTES);
        round.read_into(target.plus(DIRECTORY_BYTES), slots_at, slots);
        round.read_into(target, self.at.plus(bucket_bytes), 16);
    }

    /// Takes in the results of the planned verbs.
    pub fn absorb(
        &mut self,
        near: LookupContext<'_>,
        table: &Table,
        wanted: Wanted,
        round: &Round,
    ) -> Answer {
        match self.step {
            Step::Bin => self.absorb_bin(table, wanted, round),
            Step::Whole => self.absorb_whole(table, wanted, round),
            Step::Bucket => self.absorb_bucket(table, wanted, round),
            Step::Directory => self.absorb_directory(table, wanted, round),
            Step::Chain => {
                self.tail = self.block;
                let next = round.word(self.at.plus(DIRECTORY_NEXT_AT));
                self.absorb_block(table, wanted, round, Address::from_word(next))
            }
            Step::Header => self.absorb_header(near, table, wanted, round),
            Step::Again => {
                let [lock, version] = *round.array::<2>(self.at);
                // If the transaction itself has locked the bucket since, no other transaction has changed it.
                let is_free = lock == 0 || lock == wanted.me;
                self.stable = is_free && version == self.directory_version.word();
                if !self.stable {
                    // A further look begins with the bucket.
                    self.step = Step::Bucket;
                    return Answer::Unstable;
                }
                Answer::Absent
            }
        }
    }

    /// The lock that made the last answer [`Answer::Unstable`], if one did, with its word.
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

    fn absorb_bin(&mut self, table: &Table, wanted: Wanted, round: &Round) -> Answer {
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

    /// The lines of a block come in any order. A record of one line is consistent in itself, and the chain
    /// only grows at its end. But it proves nothing that a key is in no line.
    fn absorb_whole(&mut self, table: &Table, wanted: Wanted, round: &Round) -> Answer {
        for slot in 0..table.geometry.slots {
            let at = DIRECTORY_BYTES + slot * table.slot.slot_bytes;
            let image = self.at.plus(at);
            if holds(&table.slot, wanted, round, image) {
                let (address, consistent) = (self.block.plus(at), table.slot.is_read_at_once());
                return Answer::Found { address, image, consistent };
            }
        }
        let next = Address::from_word(round.word(self.at.plus(DIRECTORY_NEXT_AT)));
        match next.is_null() {
            true => self.step = Step::Bucket,
            false => self.block = next,
        }
        Answer::More
    }

    fn absorb_bucket(&mut self, table: &Table, wanted: Wanted, round: &Round) -> Answer {
        let lock = round.word(self.at.plus(LOCK_AT));
        let again = self.at.plus(table.geometry.bucket_bytes);
        if (lock != 0 && lock != wanted.me) || !same_head(round, self.at, again) {
            return Answer::Unstable;
        }
        if !self.admit(round) {
            return Answer::More;
        }
        self.bucket_image = Some(self.at);
        let next = round.word(self.at.plus(DIRECTORY_NEXT_AT));
        self.absorb_block(table, wanted, round, Address::from_word(next))
    }

    /// Takes in the version of a directory record that was read. Returns whether the bucket is as deep as was
    /// believed.
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

    /// Looks at the directory record alone: one line, so of one moment. True fingerprints without a chain
    /// prove that a key is absent; otherwise the bucket must be read.
    fn absorb_directory(&mut self, table: &Table, wanted: Wanted, round: &Round) -> Answer {
        let lock = round.word(self.at.plus(LOCK_AT));
        if lock != 0 && lock != wanted.me {
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

    /// Looks through one block's slots, and decides whether the chain goes on.
    fn absorb_block(
        &mut self,
        table: &Table,
        wanted: Wanted,
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
            // A reader of the record that lived there may have left a lease. The lease is waited out like any
            // other.
            let is_free = table.slot.lock_words.is_free(lock);
            if !version.is_present() && is_free && (self.free.is_none() || self.is_home(slot)) {
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

    /// Whether a slot of the block being read is in the key's own bin.
    fn is_home(&self, slot: usize) -> bool {
        self.block == self.directory && slot / Geometry::SLOTS_PER_BIN == usize::from(self.bin)
    }

    fn absorb_header(
        &mut self,
        near: LookupContext<'_>,
        table: &Table,
        wanted: Wanted,
        round: &Round,
    ) -> Answer {
        let (assumed, found) = (self.depth, self.depth_found);
        if found <= assumed || usize::from(found) > SEGMENTS_MAX {
            return Answer::Unstable; // a belief is never ahead of a bucket at rest
        }
        // `seen` is certain even while the header is being changed. The rest counts only if the header is
        // free.
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

/// The home of the key with this hash: the address of its bin.
#[inline(always)]
pub fn home(near: LookupContext<'_>, table: &Table, hash: u64) -> Address {
    let place = near.view.place(near.catalog, table, hash);
    place.bucket.plus(DIRECTORY_BYTES + usize::from(place.bin) * table.geometry.bin_bytes)
}

/// Looks for a record of a plain table ([`Slot::is_plain`]) in its bin's image in the round's buffer. Returns
/// how far into the bin the record lies, and its header's words. `None` decides nothing: the record may live
/// elsewhere in its bucket.
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

/// Whether the slot image holds the wanted key's record.
#[inline]
fn holds(slot: &Slot, wanted: Wanted, round: &Round, image: BufferOffset) -> bool {
    let [_, version, key] = *round.array(image);
    if key != wanted.word || !Version::from_word(version).is_present() {
        return false;
    }
    let Some(full_key) = wanted.full_key else { return true };
    let len = slot.full_key_bytes;
    round.bytes(image.plus(slot.full_key_at), len) == round.bytes(full_key, len)
}

/// Whether a slot did not change between two images of its head, one 16 bytes behind the other. Where readers
/// come and go in LOCK, VERSION alone decides: a transaction that finds a record there reads it again under
/// its own lock.
fn is_at_rest(table: &Table, round: &Round, first: BufferOffset) -> bool {
    let again = first.plus(16);
    match table.slot.lock_words {
        LockWords::Tags => same_head(round, first, again),
        LockWords::Tickets => {
            round.word(first.plus(VERSION_AT)) == round.word(again.plus(VERSION_AT))
        }
    }
}

/// Whether LOCK and VERSION are the same in both images.
#[inline]
pub fn same_head(round: &Round, first: BufferOffset, second: BufferOffset) -> bool {
    round.word(first.plus(LOCK_AT)) == round.word(second.plus(LOCK_AT))
        && round.word(first.plus(VERSION_AT)) == round.word(second.plus(VERSION_AT))
}

/// The bit of a key's hash that a split of a bucket of this depth looks at.
pub fn growth_bit(table: &Table, key_word: u64, depth: u8) -> bool {
    low_bits(hash_of(table, key_word), depth + 1) >> depth == 1
}
