//! The working set of one transaction: the records that it has read, locked and changed. Protocols work on this
//! data.
//!
//! Invariant: the working set holds positions in the round's buffer, never references. Vectors keep their capacity
//! from transaction to transaction, so a coordinator that has warmed up allocates no memory. An [`Entry`] is one
//! record in one mode. An entry holds the caller's view of the record and the version that validation compares. A
//! [`Lookup`] is an entry's search in the index. A lookup begins only for a record that is not at its expected
//! place. A [`Lock`] must be released. A [`PendingWrite`] is bytes to be written under a lock.

use crate::cluster::lease::LeaseWord;
use crate::services::lock::versions::Stamp;
use crate::services::readers::Reading;
use crate::transaction::HistorySink;
use crate::transaction::chain::Chain;
use crate::transaction::lock_set::LockSet;
use crate::transaction::ordered::Ordered;
use crate::transaction::sequel::{Notes, Sequel, Wish};
use hashbrown::HashTable;
use tarn_fabric::address::Address;
use tarn_fabric::backend::Detached;
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::{BufferOffset, Round, VerbIndex};
use tarn_fabric::window::{Wait, Window};
use tarn_store::ids::{Mode, OwnerTag, Timestamp, ViewNumber};
use tarn_store::index::hash::Lookup;
use tarn_store::index::prints::Prints;
use tarn_store::layout::{Slot, Ticket, Version};
use tarn_store::schema::{Cells, TableId};

/// If a transaction has at most this many records or leaves, it searches them one by one.
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
    /// The transaction only reads. In protocols with snapshots it reads a snapshot.
    ReadOnly,
}

/// The timestamps of a transaction, in protocols that have timestamps. The value 0 means that no timestamp is
/// known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamps {
    /// The transaction to which the timestamps belong.
    pub of: Option<OwnerTag>,
    /// A lower bound of its commit's timestamp.
    pub lower: Timestamp,
    /// The snapshot that it reads.
    pub start: Timestamp,
    /// The position of the commit in the order of all commits.
    pub commit: Timestamp,
    /// The membership view before the transaction's last READs were sent. Later knowledge of membership may be
    /// newer than the bytes that these READs returned.
    pub view: ViewNumber,
}

impl Stamps {
    /// No timestamp has been taken yet.
    pub const NONE: Stamps = Stamps {
        of: None,
        lower: Timestamp::ZERO,
        start: Timestamp::ZERO,
        commit: Timestamp::ZERO,
        view: ViewNumber(0),
    };
}

/// A record that a transaction requests for the first time. [`crate::steps::access::RecordAccess::add`] creates an
/// entry from it.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    /// The key word.
    pub key: u64,
    /// The position of the full key in the round's buffer; 0 means that there is no full key.
    pub full_key: BufferOffset,
    /// The key's hash in its table's index.
    pub hash: u64,
    /// The purpose of the access.
    pub mode: Mode,
    /// The cells that the caller wants.
    pub cells: Cells,
}

/// The access that a further operation on a fetched record needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upgrade {
    /// The operation needs more of the record's cells. These cells are read at the record's address, under the
    /// record's lock if the transaction holds it.
    Cells,
    /// The operation needs the right to change a record that was only read.
    Lock,
    /// The operation inserts or deletes the record. So the operation needs the record's place in the index, and the
    /// right to change that place.
    Index,
}

/// The progress of the protocol with an entry. Each protocol uses the states that it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The record's place is unknown. The next step reads the record's home, at the entry's address.
    Home,
    /// The record is not at its home, or the home does not tell. The next step searches the index.
    Locate,
    /// The record's address is probably known. The next step reads the record there.
    Direct,
    /// The record's address is known. The next step locks the record and reads it again.
    Lock,
    /// The record's payload lies outside its slot. The next step reads the payload.
    Body,
    /// The record is fetched.
    Done,
}

/// Names one record of one transaction, and the last operation on that record. The default value names no record.
///
/// A handle is a number that belongs to the transaction, plus the position of an entry or of a further operation.
/// One subtraction gives the position. The subtraction also detects handles of other transactions, because their
/// numbers differ by far more than any position.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Handle(u64);

impl Handle {
    /// Positions from this number on belong to further operations.
    const FURTHER: u64 = 1 << 32;

    /// The handle number that position 0 has in the transaction with this tag. The numbers of a thread's successive
    /// transactions are as far apart as possible.
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

/// One record of the transaction. An entry takes one and a half cache lines, and is built in place: see
/// docs/design/0006-embedded-speed.md.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The key word.
    pub key: u64,
    /// The address of the record's home ([`Progress::Home`]). Once the record's slot is known, the address of the
    /// slot.
    pub address: Address,
    /// The record's version when it was fetched. For an absent record, the version of its directory record.
    pub version: Version,
    /// The record's version after the commit, if the record is written.
    pub new_version: Version,
    /// The cells that the caller wants.
    pub cells: Cells,
    /// The cells that the caller changed.
    pub dirty: Cells,
    /// The address of a payload that lies outside the slot.
    pub body: Address,
    /// The position of the slot's image in the round's buffer.
    pub image: BufferOffset,
    /// The position of the payload in the round's buffer. For an update, this is the payload that the caller
    /// changes.
    pub payload: BufferOffset,
    /// The position of the payload before the change. The old payload is kept only if the slot's image does not
    /// contain the old payload in one piece ([`Slot::keeps_old_payload`]).
    pub old_payload: BufferOffset,
    /// The position of the full key in the round's buffer. The value 0 means that there is no full key, because the
    /// buffer's first bytes are never a key.
    pub full_key: BufferOffset,
    /// The position of the record's lock in `locks`, or [`NO_LOCK`].
    pub lock: u32,
    /// The position of the directory record's lock in `locks`, or [`NO_LOCK`].
    pub directory_lock: u32,
    /// The position of the entry's lookup in `lookups`, or [`NO_LOOKUP`].
    pub lookup: u32,
    /// The table of the record.
    pub table: TableId,
    /// The purpose of the access.
    pub mode: Mode,
    /// The progress of the protocol with this entry.
    pub progress: Progress,
    /// Whether the record exists. This flag is valid once the entry is fetched.
    pub found: bool,
    /// Whether the fetched image is a snapshot of one moment. If so, a transaction that reads only this record
    /// needs no validation.
    pub stable: bool,
    /// Whether the caller has seen this version of the record without a lock on it. Validation then reads the
    /// record again, and a later lock compares the version.
    pub watched: bool,
    /// Whether another transaction had locked the record when it was read, with a lock that lets readers pass. Such
    /// a reader must read the record again.
    pub marked: bool,
    /// Whether nothing of this entry will be written, because the record was inserted and deleted again. Then
    /// `writable` is false.
    pub void: bool,
    /// Whether the transaction deleted an existing record and inserted it again. Then the whole record is written.
    pub renewed: bool,
    /// Whether the columns that the caller sets will be written. The transaction must have the right to change the
    /// record, by any kind of lock. This flag stays `false` for an insert that finds its record, and for a change
    /// of an absent record.
    pub writable: bool,
    /// The place of the new version, for a record whose versions lie in its slot. The place is set if the new
    /// payload was put into the slot's next image. Otherwise the place is [`NO_PLACE`].
    pub place: u8,
}

const _: () = assert!(size_of::<Entry>() == 96);

impl Entry {
    /// Creates the entry of a record about which nothing is known yet.
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

    /// The position of the old payload of a changed record, as contiguous bytes.
    #[inline]
    pub fn payload_before(&self, slot: &Slot) -> BufferOffset {
        match slot.keeps_old_payload() {
            true => self.old_payload,
            false => self.image.plus(slot.payload_at),
        }
    }

    /// Whether the record is only read at its address. An insert that finds its record only reads it.
    #[inline]
    pub fn only_reads(&self) -> bool {
        self.mode == Mode::Read || self.mode == Mode::Insert
    }
}

/// A directory record that showed an absence, or a leaf that a scan has read, without a lock. Validation reads it
/// again.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The address of the LOCK word. VERSION is the next word.
    pub address: Address,
    /// The version that was read.
    pub version: Version,
    /// Whether the check is no longer needed, because the transaction has locked the directory record since.
    pub covered: bool,
}

/// The kind of object that a lock protects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// The lock protects the record of an entry.
    Record,
    /// A bucket's directory record, an index header, or a node of an ordered index. VERSION of such an object is
    /// written as a separate piece.
    Directory,
}

/// The value by which this transaction holds a LOCK word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HeldAs {
    /// The transaction's tag: no other transaction can use the record.
    #[default]
    Exclusive,
    /// The transaction's tag with a mark that lets readers pass: see [`tarn_store::layout::LockMode::Intent`].
    Intent,
    /// The value of `Intent` or `Exclusive`, because the lock is being raised from `Intent` to `Exclusive`.
    Either,
    /// A lease of this transaction or another one. A lease ends by itself.
    Lease,
    /// The transaction's own ticket in a word of tickets.
    Ticket(Ticket),
}

impl HeldAs {
    /// Whether other transactions may read at the same time.
    #[inline]
    pub fn is_shared(self) -> bool {
        matches!(self, HeldAs::Lease | HeldAs::Ticket(Ticket::Reader))
    }

    /// Whether the verb that requested the lock was a CAS.
    #[inline]
    pub fn is_by_cas(self) -> bool {
        !matches!(self, HeldAs::Ticket(_))
    }
}

/// A lock that was requested.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// The address of the LOCK word.
    pub address: Address,
    /// The value by which the transaction holds the word, if the lock was granted.
    pub held_as: HeldAs,
    /// The kind of object that the lock protects.
    pub kind: LockKind,
    /// Whether the lock was granted.
    pub granted: bool,
    /// Whether VERSION will be written.
    pub writes: bool,
    /// Whether the bytes that may be written contain their VERSION but not the tag of their writer.
    pub nameless: bool,
    /// VERSION as read under the lock.
    pub old_version: Version,
    /// The VERSION that will be written.
    pub new_version: Version,
    /// For a bucket: the fingerprints that are written together with VERSION.
    pub prints: Prints,
    /// The position, in its round, of the CAS or FAA that requested the lock.
    pub verb: VerbIndex,
    /// A word that was read from the LOCK word. In protocols that repeat a request, it is the word that blocked the
    /// request and may be replaced. With tickets, it is the word that was found when the ticket was taken.
    /// Otherwise it is 0.
    pub met: u64,
    /// Whether the request was refused, and must be repeated or waited for.
    pub is_due: bool,
    /// The number of times that the request was repeated.
    pub asked_again: u8,
}

impl Lock {
    /// Whether this lock's writes contain no tag of their writer. If the transaction logs such writes and then does
    /// not make them, it removes its log entry.
    #[inline]
    pub fn writes_nameless(&self) -> bool {
        self.writes && self.nameless
    }

    /// Creates a lock that was not requested yet and about which nothing is known.
    #[inline(always)]
    pub fn unasked(address: Address, kind: LockKind, held_as: HeldAs) -> Lock {
        Lock {
            address,
            held_as,
            kind,
            granted: false,
            writes: false,
            nameless: false,
            old_version: Version::NEVER,
            new_version: Version::NEVER,
            prints: Prints::UNKNOWN,
            verb: VerbIndex(u32::MAX),
            met: 0,
            is_due: false,
            asked_again: 0,
        }
    }
}

/// Bytes to write under a lock, and the old bytes that they replace.
#[derive(Clone, Copy, Debug)]
pub struct PendingWrite {
    /// The address to write to.
    pub address: Address,
    /// The new bytes, in the round's buffer.
    pub new: BufferOffset,
    /// The old bytes that they replace, in the round's buffer.
    pub old: BufferOffset,
    /// The number of bytes.
    pub len_bytes: u32,
    /// Whether the old bytes are logged. The old bytes of a record that does not exist are not needed.
    pub logged: bool,
}

/// A version that a transaction writes, in protocols with several versions. Such a version is listed from its
/// preparation to the end of the transaction.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The position of the transaction's entry.
    pub entry: u32,
    /// The record's slot.
    pub slot: Address,
    /// The record's table.
    pub table: TableId,
    /// The number of the version's cell in the slot.
    pub cell: u8,
    /// Whether the slot held no record before.
    pub came: bool,
    /// The bytes that recovery writes back, in the round's buffer.
    pub former: BufferOffset,
    /// The number of bytes that recovery writes back.
    pub former_bytes: usize,
    /// The bytes that make the version visible, in the round's buffer. These bytes are INVISIBLE until the
    /// transaction has a timestamp.
    pub visible: BufferOffset,
    /// The offset of these visible bytes in the slot.
    pub visible_at: u16,
    /// The number of visible bytes.
    pub visible_bytes: u16,
    /// The address of the discarded version's record, if a version is discarded and its record lies outside the
    /// slot.
    pub discarded: Address,
}

/// A transaction's lease state, in protocols that have leases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Leases {
    /// The window of the transaction's reads, which began before its first READ, and the lease word at that time.
    pub reads_since: Option<(Window, LeaseWord)>,
    /// The wait that began when the transaction's last lock was acknowledged. This field is set if the wait was
    /// noted before the commit.
    pub waits_since: Option<Wait>,
    /// The time when the transaction's present stage began, if its stages are timed.
    pub timed_since: Option<Nanos>,
    /// The earliest end of the transaction's leases on records, in protocols that use clocks.
    pub first_end: Option<Nanos>,
}

/// One transaction: its entries, locks, writes, buffer and progress.
pub struct Txn {
    /// The transaction's name, which is also the value of its locks.
    pub tag: OwnerTag,
    /// The number of the transaction's coordinator. The transaction uses the log area with this number.
    pub coordinator: u32,
    /// The declared intent of the transaction. The intent stays the same from try to try.
    pub intent: Intent,
    /// The number of earlier tries of the transaction.
    pub tries_before: u32,
    /// The transaction's timestamps. A protocol with timestamps resets them.
    pub stamps: Stamps,
    /// The verbs in flight, and the buffer.
    pub round: Round,
    /// The caller's records, in the order in which they were requested.
    pub entries: Vec<Entry>,
    /// Whether the transaction has had many records. This flag is set when more than [`FEW`] entries were searched,
    /// or when the limits allowed more than [`ROOM_STEP`] records.
    pub has_many: bool,
    /// The number of records that the transaction may have before it checks the limits.
    pub room: usize,
    /// The positions of entries by table and key, for a transaction of many records. The map contains the entries
    /// that existed at the most recent search.
    pub by_key: HashTable<u32>,
    /// A filter of 256 bits, with one bit for the hash of each key. If a key's bit is not set, the key is not in
    /// `entries`.
    seen: [u64; 4],
    /// A filter of 256 bits, like `seen`, for the addresses of locks that were requested.
    locked: [u64; 4],
    /// The number of READs of homes in the round that is being planned, or of entries whose homes will be read in
    /// that round.
    pub at_home: usize,
    /// The number of entries that are only noted, counted from the first entry that is not fetched. The homes of
    /// noted entries will be read without a round, unless the same fetch also has other work.
    pub noted: usize,
    /// The entry whose lock is requested in this round, in protocols that request one lock after the other.
    pub in_turn: Option<usize>,
    /// The number of locks on records that a short commit can write: see the protocol.
    pub short_locks: usize,
    /// Whether records were read by loads and stores under their locks, and some of these records were unusual.
    pub read_near: bool,
    /// The index lookups of the transaction's entries.
    pub lookups: Vec<Lookup>,
    /// The entries before this position are fetched.
    pub fetched: usize,
    /// The directory records that validation reads again.
    pub checks: Vec<Check>,
    /// The locks that must be released.
    pub locks: Vec<Lock>,
    /// The read locks that are set aside while the other locks are logged.
    pub shares: Vec<Lock>,
    /// The bytes that will be written.
    pub pieces: Vec<PendingWrite>,
    /// The blocks that continue the transaction's log entry, if the entry is longer than its log area.
    pub(crate) chain: Chain,
    /// The transaction's locks in compute nodes.
    pub held: LockSet,
    /// The version tables that are being read without a lock: the entry of each, and the earliest moment that its
    /// contents can be of.
    pub looks: Vec<(u32, Stamp)>,
    /// The versions that will be written.
    pub written: Vec<Written>,
    /// The blocks that were allocated for this transaction, and the blocks that become free if the transaction
    /// commits. Allocated blocks are freed if the transaction aborts.
    pub allocated: Vec<Allocated>,
    /// The bucket in which an insert found slots of deleted records and no free slot. The bucket is swept before
    /// the next try.
    pub to_sweep: Option<(TableId, Address)>,
    /// The buckets whose sweep freed no slot since the first try. Inserts add a block to the chains of these
    /// buckets.
    pub swept_in_vain: Vec<Address>,
    /// The groups that the transaction writes to.
    pub groups: Vec<tarn_fabric::address::GroupId>,
    /// The windows and waits of the transaction's leases.
    pub leases: Leases,
    /// The nodes at which the transaction is counted as a reader, and the nodes that it asks, under explicit
    /// leases.
    pub reading: Reading,
    /// Whether a write may have been sent, or a log entry that recovery would use. From then on only resolution
    /// decides the outcome.
    pub in_doubt: bool,
    /// Whether locks are assumed to be granted and not requested. Only simulations use this.
    pub assumes_locks: bool,
    /// The number at which the transaction's handles begin.
    handles: u64,
    /// The notes of matters that the transaction must process before it may commit.
    pub notes: Notes,
    /// The details of `notes`.
    pub sequel: Sequel,
    /// The error of a failed fetch. After such an error only a rollback can follow.
    pub failed: Option<tarn_store::ids::Failure>,
    /// The rounds that release earlier transactions' locks and whose completion has not been seen.
    pub unlocking: Vec<Detached>,
    /// Whether the last writes of the previous transaction ended in an error. Then its log is needed until it is
    /// settled.
    pub left_unshown: bool,
    /// The history in which the transaction is recorded, if any, and the time when the transaction began.
    pub recorded_in: Option<(HistorySink, Nanos)>,
    /// The transaction's state in ordered indexes.
    pub ordered: Ordered,
}

/// A block that a transaction allocates, or frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocated {
    /// The block's address.
    pub address: Address,
    /// The block's size in bytes.
    pub bytes: u32,
    /// The use of the block.
    pub memory: Memory,
}

/// The use of a block that a transaction allocates, or frees.
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
        // The room is smaller if the options allow a transaction fewer records.
        (self.has_many, self.room) = (false, self.room.min(ROOM_STEP));
        match self.by_key.capacity() > ROOM_STEP {
            true => self.by_key = HashTable::new(),
            false => self.by_key.clear(),
        }
    }

    /// Names the transaction and clears its buffer, which is enough for a transaction without a working set. All
    /// other fields still belong to the previous transaction, and are not used until [`Txn::begin`].
    #[inline]
    pub(crate) fn begin_without_records(&mut self, tag: OwnerTag) {
        self.tag = tag;
        self.round.clear();
    }

    /// Notes the hash of a key that is added. Returns whether a key with the same filter bit was noted before.
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

    /// Notes the hash of a key that is added.
    #[inline]
    pub fn note(&mut self, hash: u64) {
        let (word, bit) = Txn::bit(hash);
        self.seen[word] |= bit;
    }

    /// The word and the bit of a hash in the filter. These hash bits are used for nothing else.
    #[inline]
    fn bit(hash: u64) -> (usize, u64) {
        ((hash >> 46 & 3) as usize, 1 << (hash >> 40 & 63))
    }

    /// Whether the transaction holds only locks for reading, and will write nothing.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.locks.iter().all(|lock| lock.held_as.is_shared())
    }

    /// Notes the address of a lock that is requested.
    #[inline]
    pub fn note_lock(&mut self, address: Address) {
        let (word, bit) = Txn::bit(spread(address));
        self.locked[word] |= bit;
    }

    /// The position of the lock on `address`, if this transaction requested one and noted it.
    #[inline]
    pub fn lock_on(&self, address: Address) -> Option<u32> {
        let (word, bit) = Txn::bit(spread(address));
        if self.locked[word] & bit == 0 {
            return None;
        }
        self.locks.iter().position(|lock| lock.address == address).map(|index| index as u32)
    }

    /// The lookup of an entry in the index.
    ///
    /// # Panics
    /// If the entry has no lookup (a bug of the engine).
    #[inline]
    pub fn lookup(&self, entry: &Entry) -> &Lookup {
        &self.lookups[entry.lookup as usize]
    }

    /// Adds an entry. Returns its handle.
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

    /// The position of the entry that a handle names. If the handle names no entry, the position is beyond all
    /// entries.
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

    /// Notes that the checks on a directory record are no longer needed. The transaction has locked the directory
    /// record, and has compared its version under the lock.
    pub fn cover(&mut self, directory: Address) {
        for check in self.checks.iter_mut().filter(|check| check.address == directory) {
            check.covered = true;
        }
    }
}
