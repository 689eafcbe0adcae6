//! The working set of one transaction: the records that it has read, locked and changed. Protocols read and change
//! the working set.
//!
//! Invariant: the working set contains positions in the round's buffer, never references to the buffer. The vectors
//! keep their capacity from transaction to transaction, so a coordinator that has warmed up allocates no memory. An
//! [`Entry`] describes one record that the transaction uses in one access mode. An entry holds the caller's view of
//! the record and the version that validation compares. A [`Lookup`] describes the search for an entry's record in
//! the index. A lookup begins only for a record that is not at its expected address. A [`Lock`] describes a lock that
//! the transaction must release. A [`PendingWrite`] describes bytes that the transaction will write under a lock.

use crate::cluster::lease::LeaseWord;
use crate::services::lock::versions::Stamp;
use crate::services::readers::Reading;
use crate::transaction::HistorySink;
use crate::transaction::chain::Chain;
use crate::transaction::lock::Lock;
use crate::transaction::lock_set::LockSet;
use crate::transaction::ordered::Ordered;
use crate::transaction::sequel::{Notes, Sequel, Wish};
use hashbrown::HashTable;
use tarn_fabric::address::Address;
use tarn_fabric::backend::Detached;
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::{BufferOffset, Round};
use tarn_fabric::window::{Wait, Window};
use tarn_store::ids::{Mode, OwnerTag, Timestamp, ViewNumber};
use tarn_store::index::hash::Lookup;
use tarn_store::layout::{Slot, Version};
use tarn_store::schema::{Cells, TableId};

/// If a transaction has at most this many records or leaves, the engine searches them one by one.
pub const FEW: usize = 64;
/// The number of records that a transaction may have before it checks the limits.
pub const ROOM_STEP: usize = 1024;
/// The maximum size of a transaction's buffer in bytes before the log entry is built. A transaction with a larger
/// buffer accepts no more records, because its log entry needs room too.
pub const BUFFERED_MAX: usize = 1 << 30;

/// The declared intent of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Intent {
    /// The transaction may read and write.
    #[default]
    ReadWrite,
    /// The transaction only reads. A protocol with snapshots lets a read-only transaction read a snapshot.
    ReadOnly,
}

/// The timestamps of a transaction, in protocols that have timestamps. The value 0 means that no timestamp is
/// known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamps {
    /// The transaction to which the timestamps belong.
    pub of: Option<OwnerTag>,
    /// A lower bound of the timestamp of the transaction's commit.
    pub lower: Timestamp,
    /// The timestamp of the snapshot that the transaction reads.
    pub start: Timestamp,
    /// The position of the commit in the order of all commits.
    pub commit: Timestamp,
    /// The number of the membership view before the transaction's last READs were sent. The node's present membership
    /// view may be newer than the bytes that these READs returned.
    pub view: ViewNumber,
}

impl Stamps {
    /// The value of the timestamps if the transaction has taken none yet.
    pub const NONE: Stamps = Stamps {
        of: None,
        lower: Timestamp::ZERO,
        start: Timestamp::ZERO,
        commit: Timestamp::ZERO,
        view: ViewNumber(0),
    };
}

/// A record that a transaction requests for the first time. [`crate::steps::access::RecordAccess::add`] creates an
/// entry of the working set from this record.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    /// The key word of the record.
    pub key: u64,
    /// The position of the full key in the round's buffer; 0 means that there is no full key.
    pub full_key: BufferOffset,
    /// The hash of the key in the index of the record's table.
    pub hash: u64,
    /// The purpose of the access to the record.
    pub mode: Mode,
    /// The cells of the record that the caller wants.
    pub cells: Cells,
}

/// The access that a further operation on a fetched record needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upgrade {
    /// The operation needs more of the record's cells. The next step reads these cells at the record's address, under
    /// the record's lock if the transaction holds that lock.
    Cells,
    /// The transaction has only read the record, and the operation needs the right to change it.
    Lock,
    /// The operation inserts or deletes the record. So the operation needs the record's place in the index, and the
    /// right to change that place.
    Index,
}

/// The progress of the protocol with an entry. Each protocol uses only the states that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The address of the record is unknown. The next step reads the record's home, whose address is in the entry.
    Home,
    /// The record is not at its home, or the image of the home does not show where the record is. The next step
    /// searches the index for the record.
    Locate,
    /// The address of the record is probably known. The next step reads the record at its probable address.
    Direct,
    /// The address of the record is known. The next step locks the record and reads the record again.
    Lock,
    /// The record's payload lies outside its slot. The next step reads the payload.
    Body,
    /// The record is fetched.
    Done,
}

/// Names one record of one transaction, and the last operation on that record. The default value names no record.
///
/// A handle is the sum of a number of the transaction and the position of an entry or of a further operation. The
/// engine subtracts the transaction's number from a handle to get the position. The subtraction also detects the
/// handles of other transactions, because the transactions' numbers differ by far more than any position.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Handle(u64);

impl Handle {
    /// Positions from this number on name further operations.
    const FURTHER: u64 = 1 << 32;

    /// The number of the handle that names position 0 of the transaction with this tag. The handle numbers of a
    /// thread's successive transactions are as far apart as possible.
    #[inline]
    fn base(tag: OwnerTag) -> u64 {
        tag.word().wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The value of an entry's lock position if the entry is not locked.
pub const NO_LOCK: u32 = u32::MAX;
/// The value of an entry's lookup position if the entry has not searched the index.
pub const NO_LOOKUP: u32 = u32::MAX;
/// The value of an entry's version place if the slot's next image has not been made.
pub const NO_PLACE: u8 = u8::MAX;

/// One record of the transaction. An entry takes one and a half cache lines, and is built in its final place: see
/// docs/design/0006-embedded-speed.md.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The key word of the record.
    pub key: u64,
    /// The address of the record's home, as long as `progress` is [`Progress::Home`]. Once the record's slot is
    /// known, this field contains the address of the slot.
    pub address: Address,
    /// The version that the record had when it was fetched. For an absent record, this field contains the version of
    /// the directory record.
    pub version: Version,
    /// The record's version after the commit, if the record is written.
    pub new_version: Version,
    /// The cells of the record that the caller wants.
    pub cells: Cells,
    /// The cells of the record that the caller changed.
    pub dirty: Cells,
    /// The address of a payload that lies outside the slot.
    pub body: Address,
    /// The position of the slot's image in the round's buffer.
    pub image: BufferOffset,
    /// The position of the payload in the round's buffer. In an update, the caller changes the payload at this
    /// position.
    pub payload: BufferOffset,
    /// The position of the payload before the change, in the round's buffer. The old payload is kept only if the
    /// slot's image does not contain the old payload in one piece ([`Slot::keeps_old_payload`]).
    pub old_payload: BufferOffset,
    /// The position of the full key in the round's buffer. The value 0 means that the record has no full key, because
    /// the buffer's first bytes are never a key.
    pub full_key: BufferOffset,
    /// The position of the record's lock in `locks`, or [`NO_LOCK`].
    pub lock: u32,
    /// The position of the lock of the directory record in `locks`, or [`NO_LOCK`].
    pub directory_lock: u32,
    /// The position of the entry's lookup in `lookups`, or [`NO_LOOKUP`].
    pub lookup: u32,
    /// The table of the record.
    pub table: TableId,
    /// The purpose of the access to the record.
    pub mode: Mode,
    /// The progress of the protocol with the record.
    pub progress: Progress,
    /// Whether the record exists. The flag `found` is valid once the record is fetched.
    pub found: bool,
    /// Whether the fetched image shows the record at one single moment. If `stable` is set, a transaction that reads
    /// only this record needs no validation.
    pub stable: bool,
    /// Whether the caller has seen this version of the record without a lock on it. If `watched` is set, validation
    /// reads the record again, and a later lock of the record compares the version.
    pub watched: bool,
    /// Whether another transaction held a lock that lets readers pass on the record when this transaction read it. A
    /// reader that found a lock that lets readers pass must read the record again.
    pub marked: bool,
    /// Whether the transaction writes nothing for this record, because it inserted the record and deleted it again.
    /// If `void` is set, `writable` is false.
    pub void: bool,
    /// Whether the transaction deleted an existing record and inserted it again. If `renewed` is set, the transaction
    /// writes the whole record.
    pub renewed: bool,
    /// Whether the transaction will write the columns that the caller sets. The flag `writable` is set only if the
    /// transaction holds a lock of any kind that allows it to change the record. The flag `writable` stays `false`
    /// for an insert that finds its record, and for a change of an absent record.
    pub writable: bool,
    /// The place of the new version, for a record whose versions lie in its slot. The place is set if the new payload
    /// is in the slot's next image. Otherwise the field `place` is [`NO_PLACE`].
    pub place: u8,
}

const _: () = assert!(size_of::<Entry>() == 96);

impl Entry {
    /// Creates the entry of a record about which the transaction knows nothing yet.
    #[inline(always)]
    pub fn new(table: TableId, key: u64, mode: Mode, cells: Cells, progress: Progress) -> Entry {
        Entry {
            key,
            address: Address::NULL,
            version: Version::NEVER,
            new_version: Version::NEVER,
            cells,
            dirty: Cells::NONE,
            body: Address::NULL,
            image: BufferOffset::default(),
            payload: BufferOffset::default(),
            old_payload: BufferOffset::default(),
            full_key: BufferOffset::default(),
            lock: NO_LOCK,
            directory_lock: NO_LOCK,
            lookup: NO_LOOKUP,
            table,
            mode,
            progress,
            found: false,
            stable: false,
            watched: false,
            marked: false,
            void: false,
            renewed: false,
            writable: false,
            place: NO_PLACE,
        }
    }

    /// The position of the changed record's old payload, as contiguous bytes in the round's buffer.
    #[inline]
    pub fn payload_before(&self, slot: &Slot) -> BufferOffset {
        match slot.keeps_old_payload() {
            true => self.old_payload,
            false => self.image.plus(slot.payload_at),
        }
    }

    /// Whether the transaction only reads the record at its address. An insert that finds an existing record only
    /// reads that record.
    #[inline]
    pub fn only_reads(&self) -> bool {
        self.mode == Mode::Read || self.mode == Mode::Insert
    }
}

/// A directory record that showed an absence, or a leaf that a scan has read, which the transaction has not locked.
/// Validation reads the directory record or the leaf again.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The address of the LOCK word of the directory record or the leaf. The VERSION word follows the LOCK word.
    pub address: Address,
    /// The version that the transaction read.
    pub version: Version,
    /// Whether validation can skip this check, because the transaction has locked the directory record since.
    pub covered: bool,
}

/// Bytes to write under a lock, and the old bytes that they replace.
#[derive(Clone, Copy, Debug)]
pub struct PendingWrite {
    /// The address at which the transaction will write the bytes.
    pub address: Address,
    /// The position of the new bytes in the round's buffer.
    pub new: BufferOffset,
    /// The position of the old bytes, which the new bytes replace, in the round's buffer.
    pub old: BufferOffset,
    /// The number of bytes that the transaction will write.
    pub len_bytes: u32,
    /// Whether the transaction logs the old bytes. Recovery does not need the old bytes of a record that does not
    /// exist.
    pub logged: bool,
}

/// A version of a record that a transaction writes, in protocols with several versions of a record. The list
/// `written` contains such a version from its preparation to the end of the transaction.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The position in `entries` of the entry of the record.
    pub entry: u32,
    /// The address of the record's slot.
    pub slot: Address,
    /// The record's table.
    pub table: TableId,
    /// The number of the slot's cell that contains the version.
    pub cell: u8,
    /// Whether the slot contained no record before this transaction.
    pub came: bool,
    /// The position in the round's buffer of the bytes that recovery writes back.
    pub former: BufferOffset,
    /// The number of bytes that recovery writes back.
    pub former_bytes: usize,
    /// The position in the round's buffer of the bytes that make the version visible. The bytes that make a version
    /// visible are INVISIBLE until the transaction has a timestamp.
    pub visible: BufferOffset,
    /// The offset in the slot of the bytes that make the version visible.
    pub visible_at: u16,
    /// The number of bytes that make the version visible.
    pub visible_bytes: u16,
    /// The address of the record of a version that the transaction discards, if that record lies outside the slot.
    pub discarded: Address,
}

/// A transaction's lease state, in protocols that have leases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Leases {
    /// The window of the transaction's reads, which began before its first READ, and the lease word at that time.
    pub reads_since: Option<(Window, LeaseWord)>,
    /// The wait that began when the transaction's last lock was acknowledged. The field `waits_since` is set if the
    /// wait was noted before the commit.
    pub waits_since: Option<Wait>,
    /// The time when the transaction's present stage began, if its stages are timed.
    pub timed_since: Option<Nanos>,
    /// The earliest end of the transaction's leases on records, in protocols that use clocks.
    pub first_end: Option<Nanos>,
}

/// One transaction: its entries, locks, writes, buffer and progress.
pub struct Txn {
    /// The transaction's name, which is also the value in the LOCK words that it holds.
    pub tag: OwnerTag,
    /// The number of the transaction's coordinator. The transaction uses the log area with this number.
    pub coordinator: u32,
    /// The declared intent of the transaction. The intent stays the same from one try of the transaction to the next.
    pub intent: Intent,
    /// The number of earlier tries of the transaction.
    pub tries_before: u32,
    /// The transaction's timestamps. A protocol with timestamps resets the transaction's timestamps.
    pub stamps: Stamps,
    /// The round's verbs that are in flight, and the buffer of the round.
    pub round: Round,
    /// The records that the caller requested, in the order of the requests.
    pub entries: Vec<Entry>,
    /// Whether the transaction has had many records. The flag `has_many` is set after a search among more than
    /// [`FEW`] entries, or when the limits allowed more than [`ROOM_STEP`] records.
    pub has_many: bool,
    /// The number of records that the transaction may have before it checks the limits.
    pub room: usize,
    /// The positions of entries by table and key, for a transaction of many records. The map `by_key` contains the
    /// entries that existed at the most recent search.
    pub by_key: HashTable<u32>,
    /// A filter of 256 bits, with one bit for the hash of each key. If a key's bit is not set, the key is not in
    /// `entries`.
    seen: [u64; 4],
    /// A filter of 256 bits, like `seen`, for the addresses of the locks that the transaction requested.
    locked: [u64; 4],
    /// The number of homes that the planned round reads, or the number of entries whose homes that round will read.
    pub at_home: usize,
    /// The number of entries that the transaction has only noted, counted from the first entry that is not fetched. A
    /// fetch reads the homes of noted entries without a round, unless the same fetch also has other work.
    pub noted: usize,
    /// The entry whose lock is requested in this round, in protocols that request one lock after the other.
    pub in_turn: Option<usize>,
    /// The number of locks on records that a short commit of the protocol can write.
    pub short_locks: usize,
    /// Whether records were read by loads and stores under their locks, and some of these records were unusual.
    pub read_near: bool,
    /// The index lookups of the transaction's entries.
    pub lookups: Vec<Lookup>,
    /// All entries before this position in `entries` are fetched.
    pub fetched: usize,
    /// The directory records and leaves that validation reads again.
    pub checks: Vec<Check>,
    /// The locks that the transaction must release.
    pub locks: Vec<Lock>,
    /// The read locks that are set aside while the other locks are logged.
    pub shares: Vec<Lock>,
    /// The bytes that the transaction will write.
    pub pieces: Vec<PendingWrite>,
    /// The blocks that continue the transaction's log entry, if the entry is longer than its log area.
    pub(crate) chain: Chain,
    /// The locks that the transaction holds in compute nodes.
    pub held: LockSet,
    /// The version tables that the transaction is reading without a lock: the entry of each, and the earliest moment
    /// that its contents can show.
    pub looks: Vec<(u32, Stamp)>,
    /// The versions of records that the transaction will write.
    pub written: Vec<Written>,
    /// The blocks that were allocated for this transaction, and the blocks that become free if the transaction
    /// commits. If the transaction aborts, its allocated blocks are freed.
    pub allocated: Vec<Allocated>,
    /// The bucket in which an insert found slots of deleted records and no free slot. The engine sweeps this bucket
    /// before the next try of the transaction.
    pub to_sweep: Option<(TableId, Address)>,
    /// The buckets in which sweeps have freed no slot since the first try. Inserts add a block to the chains of these
    /// buckets.
    pub swept_in_vain: Vec<Address>,
    /// The groups that the transaction writes to.
    pub groups: Vec<tarn_fabric::address::GroupId>,
    /// The windows and waits of the transaction's leases.
    pub leases: Leases,
    /// Under explicit leases: the nodes that count the transaction as a reader, and the nodes to which it sends
    /// requests.
    pub reading: Reading,
    /// Whether the transaction may have sent a write, or a log entry that recovery would use. Once `in_doubt` is set,
    /// only resolution decides the outcome of the transaction.
    pub in_doubt: bool,
    /// Whether the engine assumes that locks are granted, and does not request them. Only simulations set the flag
    /// `assumes_locks`.
    pub assumes_locks: bool,
    /// The number at which the transaction's handles begin.
    handles: u64,
    /// The notes of matters that the transaction must process before it may commit.
    pub notes: Notes,
    /// The further operations, waiting work and mistakes that the bits of `notes` announce.
    pub sequel: Sequel,
    /// The error of a failed fetch. After a failed fetch, the transaction can only be rolled back.
    pub failed: Option<tarn_store::ids::Failure>,
    /// The rounds that release earlier transactions' locks and whose completions this coordinator has not seen.
    pub unlocking: Vec<Detached>,
    /// Whether the last writes of the previous transaction ended in an error. If `left_unshown` is set, the previous
    /// transaction's log is needed until that transaction is settled.
    pub left_unshown: bool,
    /// The history that records the transaction, if any, and the time when the transaction began.
    pub recorded_in: Option<(HistorySink, Nanos)>,
    /// The transaction's state in ordered indexes.
    pub ordered: Ordered,
}

/// A block that a transaction allocates or frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocated {
    /// The block's address.
    pub address: Address,
    /// The block's size in bytes.
    pub bytes: u32,
    /// The use that the transaction makes of the block.
    pub memory: Memory,
}

/// The use of a block that a transaction allocates or frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// The block holds a part of an index, and must be filled with zeros.
    Zeros,
    /// The block holds a record of this table, or a version of such a record.
    Record(TableId),
    /// The block held a record of this table that no longer exists once the transaction has committed.
    Gone(TableId),
}

/// Mixes the bits of an address so that the filter bits of neighbouring addresses differ.
#[inline]
fn spread(address: Address) -> u64 {
    address.to_word().wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Txn {
    /// Creates an empty transaction with a first tag.
    pub fn new(tag: OwnerTag, coordinator: u32) -> Txn {
        Txn {
            tag,
            coordinator,
            intent: Intent::default(),
            tries_before: 0,
            stamps: Stamps::NONE,
            round: Round::new(),
            entries: Vec::with_capacity(16),
            has_many: false,
            room: ROOM_STEP,
            by_key: HashTable::new(),
            seen: [0; 4],
            locked: [0; 4],
            at_home: 0,
            in_turn: None,
            noted: 0,
            short_locks: 0,
            read_near: false,
            lookups: Vec::new(),
            fetched: 0,
            checks: Vec::new(),
            locks: Vec::with_capacity(4),
            shares: Vec::new(),
            pieces: Vec::with_capacity(4),
            chain: Chain::default(),
            held: LockSet::default(),
            looks: Vec::new(),
            written: Vec::new(),
            allocated: Vec::new(),
            to_sweep: None,
            swept_in_vain: Vec::new(),
            groups: Vec::with_capacity(2),
            leases: Leases::default(),
            reading: Reading::default(),
            in_doubt: false,
            assumes_locks: false,
            handles: Handle::base(tag),
            notes: Notes::default(),
            sequel: Sequel::default(),
            failed: None,
            unlocking: Vec::new(),
            left_unshown: false,
            recorded_in: None,
            ordered: Ordered::default(),
        }
    }

    /// Begins a new transaction with the name `tag`.
    #[inline]
    pub fn begin(&mut self, tag: OwnerTag) {
        (self.tag, self.handles) = (tag, Handle::base(tag));
        if self.has_many {
            self.forget_many();
        }
        self.round.clear();
        self.entries.clear();
        self.seen = [0; 4];
        self.locked = [0; 4];
        self.at_home = 0;
        self.in_turn = None;
        self.noted = 0;
        self.short_locks = 0;
        self.read_near = false;
        self.lookups.clear();
        self.fetched = 0;
        self.checks.clear();
        self.locks.clear();
        self.shares.clear();
        self.pieces.clear();
        self.allocated.clear();
        self.groups.clear();
        self.leases = Leases::default();
        self.reading.begin();
        self.in_doubt = false;
        self.sequel.begin(&mut self.notes);
        self.failed = None;
        if self.ordered.is_used {
            self.ordered.clear();
        }
    }

    /// Clears the state that only a transaction of many records has.
    #[cold]
    pub(crate) fn forget_many(&mut self) {
        // If the options allow fewer records per transaction, the limit `room` stays smaller than [`ROOM_STEP`].
        (self.has_many, self.room) = (false, self.room.min(ROOM_STEP));
        match self.by_key.capacity() > ROOM_STEP {
            true => self.by_key = HashTable::new(),
            false => self.by_key.clear(),
        }
    }

    /// Names the transaction and clears its buffer, for a transaction that needs no working set. All other fields
    /// still belong to the previous transaction, and no code uses them until [`Txn::begin`].
    #[inline]
    pub(crate) fn begin_without_records(&mut self, tag: OwnerTag) {
        self.tag = tag;
        self.round.clear();
    }

    /// Adds the hash of a new key to the filter `seen`. Returns whether a key with the same filter bit was in the
    /// filter before.
    #[inline(always)]
    pub fn note_again(&mut self, hash: u64) -> bool {
        let (word, bit) = Txn::bit(hash);
        let before = self.seen[word];
        self.seen[word] = before | bit;
        before & bit != 0
    }

    /// Whether a record whose key has this hash may be among the entries.
    #[inline]
    pub fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = Txn::bit(hash);
        self.seen[word] & bit != 0
    }

    /// Adds the hash of a new key to the filter `seen`.
    #[inline]
    pub fn note(&mut self, hash: u64) {
        let (word, bit) = Txn::bit(hash);
        self.seen[word] |= bit;
    }

    /// The position of the filter word, and the bit in this word, that belong to a hash. Only the filter uses these
    /// bits of the hash.
    #[inline]
    fn bit(hash: u64) -> (usize, u64) {
        ((hash >> 46 & 3) as usize, 1 << (hash >> 40 & 63))
    }

    /// Whether the transaction has only read locks, and will write nothing.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.locks.iter().all(|lock| lock.held_as.is_shared())
    }

    /// Adds the address of a requested lock to the filter `locked`.
    #[inline]
    pub fn note_lock(&mut self, address: Address) {
        let (word, bit) = Txn::bit(spread(address));
        self.locked[word] |= bit;
    }

    /// The position in `locks` of the lock on `address`, if this transaction requested and noted that lock.
    #[inline]
    pub fn lock_on(&self, address: Address) -> Option<u32> {
        let (word, bit) = Txn::bit(spread(address));
        if self.locked[word] & bit == 0 {
            return None;
        }
        self.locks.iter().position(|lock| lock.address == address).map(|index| index as u32)
    }

    /// Returns the lookup of an entry in the index.
    ///
    /// # Panics
    /// If the entry has no lookup, which is a bug of the engine.
    #[inline]
    pub fn lookup(&self, entry: &Entry) -> &Lookup {
        &self.lookups[entry.lookup as usize]
    }

    /// Adds an entry to `entries`. Returns the handle of the new entry.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry) -> Handle {
        let handle = self.handle_of(self.entries.len());
        self.entries.push(entry);
        handle
    }

    /// The handle of an entry.
    #[inline(always)]
    pub(crate) fn handle_of(&self, entry: usize) -> Handle {
        Handle(self.handles.wrapping_add(entry as u64))
    }

    /// The handle of a further operation.
    pub(crate) fn handle_of_wish(&self, wish: usize) -> Handle {
        Handle(self.handles.wrapping_add(Handle::FURTHER + wish as u64))
    }

    /// The position of the entry that a handle names. If the handle names no entry, the returned position is beyond
    /// all entries.
    #[inline(always)]
    pub(crate) fn place_of(&self, handle: Handle) -> usize {
        handle.0.wrapping_sub(self.handles) as usize
    }

    /// The further operation that a handle names. Returns `None` if the handle belongs to another transaction.
    #[cold]
    pub(crate) fn wish_of(&self, handle: Handle) -> Option<&Wish> {
        self.sequel.wishes.get(self.place_of_wish(handle)?)
    }

    /// Does the same as [`Txn::wish_of`], with mutable access.
    #[cold]
    pub(crate) fn wish_of_mut(&mut self, handle: Handle) -> Option<&mut Wish> {
        let place = self.place_of_wish(handle)?;
        self.sequel.wishes.get_mut(place)
    }

    fn place_of_wish(&self, handle: Handle) -> Option<usize> {
        let place = handle.0.wrapping_sub(self.handles).checked_sub(Handle::FURTHER)?;
        usize::try_from(place).ok()
    }

    /// Notes that a directory record needs no more checks: it is locked, and its version was compared under the lock.
    pub fn cover(&mut self, directory: Address) {
        for check in self.checks.iter_mut().filter(|check| check.address == directory) {
            check.covered = true;
        }
    }
}
