//! The working set of one transaction: the records that it has read, locked and changed. This is the engine's
//! side of a transaction.
//!
//! Invariant: it has positions in the round's buffer, never references. Vectors keep their capacity from
//! transaction to transaction, so a coordinator that has warmed up allocates nothing. An entry is one record,
//! in one mode: the caller's view of it, and the version that validation compares. A lookup is an entry's way
//! through the index, begun only for a record that is not where it should be. A lock must be released; a
//! piece is bytes to be written under a lock.

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

/// A transaction with no more records, or leaves, than this looks through them one by one.
pub const FEW: usize = 64;
/// Records that a transaction may have before a check whether it may have more.
pub const ROOM_STEP: usize = 1024;
/// A transaction whose buffer has this many bytes takes in nothing more that can be refused: its records need
/// some bytes for its log.
pub const BUFFERED_MAX: usize = 1 << 30;

/// The declared intent of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Intent {
    /// Anything.
    #[default]
    ReadWrite,
    /// To read alone. Where there are snapshots it reads one.
    ReadOnly,
}

/// The timestamps of a transaction, in protocols that have them; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamps {
    /// The transaction that they belong to.
    pub of: Option<OwnerTag>,
    /// A lower bound of its commit's timestamp.
    pub lower: Timestamp,
    /// The snapshot that it reads.
    pub start: Timestamp,
    /// Its place in the order of commits.
    pub commit: Timestamp,
    /// The view before its last READs were sent. Later knowledge of lives may be newer than the bytes that
    /// they brought.
    pub view: ViewNumber,
}

impl Stamps {
    /// No timestamp is taken yet.
    pub const NONE: Stamps = Stamps {
        of: None,
        lower: Timestamp::ZERO,
        start: Timestamp::ZERO,
        commit: Timestamp::ZERO,
        view: ViewNumber(0),
    };
}

/// A record that a transaction asks for the first time. [`crate::steps::access::RecordAccess::add`] makes an
/// entry of it.
#[derive(Clone, Copy, Debug)]
pub struct Added {
    /// Key word.
    pub key: u64,
    /// Full key in the round's buffer; position 0 means none.
    pub full_key: BufferOffset,
    /// The key's hash in its table's index.
    pub hash: u64,
    /// The purpose of the access.
    pub mode: Mode,
    /// The cells that the caller wants.
    pub cells: Cells,
}

/// The needs of a further operation on a fetched record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upgrade {
    /// More of the record's cells. They are read in place: under the lock, if the transaction has it.
    Cells,
    /// The right to change the record: it was only read.
    Lock,
    /// The record's place in the index, and the right to change that: the record is to come or to go.
    Index,
}

/// How far the protocol has come with an entry; each protocol uses the states it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Its place is unknown: look at its home, which the address names.
    Home,
    /// It is not at home, or its home says too little: ask the index.
    Locate,
    /// Its place is believed known: read it there.
    Direct,
    /// Its place is known: lock it and read it again.
    Lock,
    /// Its payload lies apart: read it.
    Body,
    /// Fetched.
    Done,
}

/// Names a record of one transaction, and the last operation on it; by default it names none.
///
/// A handle is a number of the transaction's own plus the place of an entry or of a further operation. One
/// subtraction gives the place, and tells handles of other transactions: their numbers are far away.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Handle(u64);

impl Handle {
    /// Places from here on belong to further operations.
    const FURTHER: u64 = 1 << 32;

    /// The number before the first place of the transaction with this tag. The numbers of a thread's
    /// transactions, which follow one another, are as far apart as they can be.
    #[inline]
    fn base(tag: OwnerTag) -> u64 {
        tag.word().wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// "No lock": the entry is not locked.
pub const NO_LOCK: u32 = u32::MAX;
/// "No lookup": the entry has not asked the index.
pub const NO_LOOKUP: u32 = u32::MAX;
/// "No place": the slot's next image was not made.
pub const NO_PLACE: u8 = u8::MAX;

/// One record of the transaction. It is a line and a half, written in place: see
/// docs/design/0006-embedded-speed.md.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Key word.
    pub key: u64,
    /// The address of its home ([`Progress::Home`]); of its slot, once known.
    pub address: Address,
    /// Its version as fetched; for an absent record its directory's version.
    pub version: Version,
    /// Its version after the commit, if it is written.
    pub new_version: Version,
    /// The cells that the caller wants.
    pub cells: Cells,
    /// The cells that the caller changed.
    pub dirty: Cells,
    /// The address of a payload that lies apart.
    pub body: Address,
    /// The slot's image in the round's buffer.
    pub image: BufferOffset,
    /// The payload in the round's buffer; for an update the one to change.
    pub payload: BufferOffset,
    /// The payload as it was. It is kept if the payload is not contiguous at the place of the slot's first
    /// ([`Slot::keeps_old_payload`]).
    pub old_payload: BufferOffset,
    /// Full key in the round's buffer; position 0 means none (the buffer's first bytes are never
    /// a key).
    pub full_key: BufferOffset,
    /// Its position among the locks, or [`NO_LOCK`].
    pub lock: u32,
    /// The directory record's position among the locks, or [`NO_LOCK`].
    pub directory_lock: u32,
    /// Its position among the lookups, or [`NO_LOOKUP`].
    pub lookup: u32,
    /// Its table.
    pub table: TableId,
    /// The purpose of the access.
    pub mode: Mode,
    /// How far the protocol has come.
    pub progress: Progress,
    /// Whether the record exists, once fetched.
    pub found: bool,
    /// Whether the fetched image is of one moment, so that alone it needs no validation.
    pub stable: bool,
    /// Whether the caller was shown this version of the record without a lock on it: validation
    /// re-reads it, and a lock that comes later compares.
    pub watched: bool,
    /// Whether another transaction had locked it when it was read, in a way that lets readers pass: they look
    /// again.
    pub marked: bool,
    /// Whether nothing of it will be written after all (it was inserted and deleted again): then it is not
    /// writable.
    pub void: bool,
    /// Whether it was there, and the transaction has deleted and inserted it again: all of it is written.
    pub renewed: bool,
    /// Whether the columns that the caller sets will be written: the transaction may change the record, by
    /// whatever kind of lock. It stays `false` for an insert that finds its record, and for a change of one
    /// that is not there.
    pub writable: bool,
    /// The new version's place, for a record whose versions lie in its slot, if its payload was put into the
    /// slot's next image; else [`NO_PLACE`].
    pub place: u8,
}

const _: () = assert!(size_of::<Entry>() == 96);

impl Entry {
    /// A record of which nothing is known yet.
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

    /// Where the old payload of a changed record lies, contiguous.
    #[inline]
    pub fn payload_before(&self, slot: &Slot) -> BufferOffset {
        match slot.keeps_old_payload() {
            true => self.old_payload,
            false => self.image.plus(slot.payload_at),
        }
    }

    /// Whether it is read where its address says: an insert that finds its record only reads it.
    #[inline]
    pub fn only_reads(&self) -> bool {
        self.mode == Mode::Read || self.mode == Mode::Insert
    }
}

/// A directory record that an absence was read from, or a leaf that a scan has read, without a lock:
/// validation reads it again.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The address of its LOCK word; VERSION follows.
    pub address: Address,
    /// The version that was read.
    pub version: Version,
    /// Whether it needs no check any more: the transaction has locked the directory since.
    pub covered: bool,
}

/// The object that a lock protects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// An entry's record.
    Record,
    /// A bucket's directory record, an index header, a node of an ordered index. Its VERSION is a piece of
    /// its own.
    Directory,
}

/// The contents of a LOCK word that this transaction holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HeldAs {
    /// Its tag: no other transaction has the record.
    #[default]
    Exclusive,
    /// Its tag and a mark that lets readers pass: see [`tarn_store::layout::LockMode::Intent`].
    Intent,
    /// One of these two: the lock is being raised.
    Either,
    /// A lease, this transaction's or another's: it runs out by itself.
    Lease,
    /// A number of its own in a word of tickets.
    Ticket(Ticket),
}

impl HeldAs {
    /// Whether others may read at the same time.
    #[inline]
    pub fn is_shared(self) -> bool {
        matches!(self, HeldAs::Lease | HeldAs::Ticket(Ticket::Reader))
    }

    /// Whether the verb that asked was a CAS.
    #[inline]
    pub fn is_by_cas(self) -> bool {
        !matches!(self, HeldAs::Ticket(_))
    }
}

/// A lock that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    /// The address of the LOCK word.
    pub address: Address,
    /// The contents of the word, if the lock was granted.
    pub held_as: HeldAs,
    /// The object that it protects.
    pub kind: LockKind,
    /// Whether it was granted.
    pub granted: bool,
    /// Whether VERSION is to be written.
    pub writes: bool,
    /// Whether the bytes that may be written name their VERSION, and not their writer.
    pub nameless: bool,
    /// VERSION as found under the lock.
    pub old_version: Version,
    /// VERSION to write.
    pub new_version: Version,
    /// For a bucket: the fingerprints to write with VERSION.
    pub prints: Prints,
    /// The CAS or FAA, in the round that asked.
    pub verb: VerbIndex,
    /// In protocols that ask again, the word that stood in its way and may be replaced; with tickets, the
    /// word that was found with its ticket; else 0.
    pub met: u64,
    /// Whether it was refused, and is to be asked for again or waited for.
    pub is_due: bool,
    /// How often it was asked for again.
    pub asked_again: u8,
}

impl Lock {
    /// Whether bytes are written that do not name their writer: a transaction that logs and does not write
    /// them takes the entry back.
    #[inline]
    pub fn writes_nameless(&self) -> bool {
        self.writes && self.nameless
    }

    /// A lock that is not asked for, and of which nothing is known.
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

/// Bytes to write under a lock, with the bytes that they replace.
#[derive(Clone, Copy, Debug)]
pub struct PendingWrite {
    /// The address to write to.
    pub address: Address,
    /// The new bytes, in the round's buffer.
    pub new: BufferOffset,
    /// The bytes they replace, in the round's buffer.
    pub old: BufferOffset,
    /// How many bytes they are.
    pub len_bytes: u32,
    /// Whether the old bytes matter; those of a record that does not exist do not.
    pub logged: bool,
}

/// A version that a transaction writes, in protocols with several: from its preparation to the transaction's
/// end.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The transaction's entry.
    pub entry: u32,
    /// The record's slot.
    pub slot: Address,
    /// The record's table.
    pub table: TableId,
    /// The place in the slot.
    pub cell: u8,
    /// Whether the slot held no record before.
    pub came: bool,
    /// The bytes that recovery writes back, in the round's buffer.
    pub former: BufferOffset,
    /// How many bytes these are.
    pub former_bytes: usize,
    /// The bytes that make it visible, in the round's buffer; INVISIBLE until it has a timestamp.
    pub visible: BufferOffset,
    /// How far into the slot these bytes go.
    pub visible_at: u16,
    /// How many bytes these are.
    pub visible_bytes: u16,
    /// The record of the version that goes, if one goes and lies apart.
    pub discarded: Address,
}

/// A transaction's leases, in protocols that have them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Leases {
    /// Its window, which began before its first READ, and the lease word at that time.
    pub reads_since: Option<(Window, LeaseWord)>,
    /// Its wait, which began when its last lock was acknowledged, if that was noted before its commit.
    pub waits_since: Option<Wait>,
    /// When its present stage began, if its stages are timed.
    pub timed_since: Option<Nanos>,
    /// When the first of its leases on records ends, where clocks tell.
    pub first_end: Option<Nanos>,
}

/// One transaction; see the module's text.
pub struct Txn {
    /// Its name, and the value of its locks.
    pub tag: OwnerTag,
    /// The number of its coordinator, whose log area it uses.
    pub coordinator: u32,
    /// Its declared intent, which stays from try to try.
    pub intent: Intent,
    /// How often it was tried before.
    pub tries_before: u32,
    /// Its timestamps. The protocol that has them begins them anew.
    pub stamps: Stamps,
    /// The verbs in flight and the buffer.
    pub round: Round,
    /// The caller's records, in the order they were asked for.
    pub entries: Vec<Entry>,
    /// Whether it has had many records: more than [`FEW`] were looked through, or room was made for more.
    pub has_many: bool,
    /// Records that it may have before a check whether it may have more.
    pub room: usize,
    /// The positions of entries by table and key, in a transaction of many, up to the last that was looked
    /// for.
    pub by_key: HashTable<u32>,
    /// One bit of 256 for each key's hash. A key whose bit is not set is not among the entries.
    seen: [u64; 4],
    /// The same for the addresses of locks that were asked for.
    locked: [u64; 4],
    /// READs of homes in the round that is being planned, or entries whose homes will be read in it.
    pub at_home: usize,
    /// How many entries, from the first that is not fetched on, are only noted. Their homes will be read
    /// without a round, unless something else comes beside them.
    pub noted: usize,
    /// The entry whose lock is asked for in this round, in protocols that ask for one after the other.
    pub in_turn: Option<usize>,
    /// Locks on records that a short commit can write: see the protocol.
    pub short_locks: usize,
    /// Whether records were read by loads and stores, under their locks, and some of them were unusual.
    pub read_near: bool,
    /// The entries' ways through the index.
    pub lookups: Vec<Lookup>,
    /// Entries before this one are fetched.
    pub fetched: usize,
    /// Directory records that validation re-reads.
    pub checks: Vec<Check>,
    /// The locks that must be released.
    pub locks: Vec<Lock>,
    /// Readers' locks that are put away while the others are logged.
    pub shares: Vec<Lock>,
    /// The bytes that will be written.
    pub pieces: Vec<PendingWrite>,
    /// Where its log entry goes on, if it is longer than its area.
    pub(crate) chain: Chain,
    /// Its locks in compute nodes.
    pub held: LockSet,
    /// Version tables that are being read without a lock, by their entry, with the moment that they are at
    /// least of.
    pub looks: Vec<(u32, Stamp)>,
    /// Versions that will be written.
    pub written: Vec<Written>,
    /// Blocks taken for this transaction, which are given back if it aborts, and blocks that become free if
    /// it commits.
    pub allocated: Vec<Allocated>,
    /// The bucket that has slots of deleted records in place of room for an insert. It is swept before the
    /// next try.
    pub to_sweep: Option<(TableId, Address)>,
    /// Buckets that were swept in vain since the first try: inserts make their chains longer.
    pub swept_in_vain: Vec<Address>,
    /// The groups that the transaction writes to.
    pub groups: Vec<tarn_fabric::address::GroupId>,
    /// Its windows and waits.
    pub leases: Leases,
    /// Where it is counted as a reader, and which nodes it asks, under explicit leases.
    pub reading: Reading,
    /// Whether a write may have been sent, or a log that others would go by. From then on only resolution
    /// decides.
    pub in_doubt: bool,
    /// Whether locks are assumed and not asked for. This is for simulations alone.
    pub assumes_locks: bool,
    /// The number at which its handles begin.
    handles: u64,
    /// The matters to look after before it may commit.
    pub notes: Notes,
    /// The details of these matters.
    pub sequel: Sequel,
    /// How a fetch failed: nothing but a rollback can follow.
    pub failed: Option<tarn_store::ids::Failure>,
    /// Rounds that release earlier transactions' locks and have not been seen to complete.
    pub unlocking: Vec<Detached>,
    /// Whether the last writes of the transaction before ended in an error: its log is needed until it is settled.
    pub left_unshown: bool,
    /// Where it is recorded, if it is, and when it began.
    pub recorded_in: Option<(HistorySink, Nanos)>,
    /// Its part in ordered indexes.
    pub ordered: Ordered,
}

/// A block that a transaction takes, or makes free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocated {
    /// The block's address.
    pub address: Address,
    /// Its size.
    pub bytes: u32,
    /// The use of the block.
    pub memory: Memory,
}

/// The use of a block that a transaction takes, or makes free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// Zeros, for part of an index.
    Zeros,
    /// For a record of this table, or a version of one.
    Record(TableId),
    /// The memory of a record of this table that exists no more once the transaction has committed.
    Gone(TableId),
}

/// An address's bits, mixed so that those that decide differ between neighbours.
#[inline]
fn spread(address: Address) -> u64 {
    address.to_word().wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Txn {
    /// An empty transaction under a first tag.
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

    /// Starts anew, as the transaction `tag`.
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

    /// Forgets the state that only a transaction of many records has.
    #[cold]
    pub(crate) fn forget_many(&mut self) {
        // The room is smaller where a transaction may have fewer records.
        (self.has_many, self.room) = (false, self.room.min(ROOM_STEP));
        match self.by_key.capacity() > ROOM_STEP {
            true => self.by_key = HashTable::new(),
            false => self.by_key.clear(),
        }
    }

    /// Names the transaction and empties its buffer: a transaction without a working set needs no more. The
    /// rest is the transaction's before, and is not looked at until [`Txn::begin`].
    #[inline]
    pub(crate) fn begin_without_records(&mut self, tag: OwnerTag) {
        self.tag = tag;
        self.round.clear();
    }

    /// Notes the hash of a key that is added. Returns whether a key with the same bit was noted before.
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

    /// The word and the bit of a hash, from bits that decide nothing else.
    #[inline]
    fn bit(hash: u64) -> (usize, u64) {
        ((hash >> 46 & 3) as usize, 1 << (hash >> 40 & 63))
    }

    /// Whether it has locked only for readers, and will write nothing.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.locks.iter().all(|lock| lock.held_as.is_shared())
    }

    /// Notes the address of a lock that is asked for.
    #[inline]
    pub fn note_lock(&mut self, address: Address) {
        let (word, bit) = Txn::bit(spread(address));
        self.locked[word] |= bit;
    }

    /// The lock on `address`, if this transaction asked for one and noted it.
    #[inline]
    pub fn lock_on(&self, address: Address) -> Option<u32> {
        let (word, bit) = Txn::bit(spread(address));
        if self.locked[word] & bit == 0 {
            return None;
        }
        self.locks.iter().position(|lock| lock.address == address).map(|index| index as u32)
    }

    /// An entry's way through the index.
    ///
    /// # Panics
    /// If it has not asked the index: our bug.
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

    /// The place of the entry that a handle names; beyond all entries if it names none.
    #[inline(always)]
    pub(crate) fn place_of(&self, handle: Handle) -> usize {
        handle.0.wrapping_sub(self.handles) as usize
    }

    /// The further operation that a handle names; none if the handle is another transaction's.
    #[cold]
    pub(crate) fn wish_of(&self, handle: Handle) -> Option<&Wish> {
        self.sequel.wishes.get(self.place_of_wish(handle)?)
    }

    /// The same as [`Txn::wish_of`], to change it.
    #[cold]
    pub(crate) fn wish_of_mut(&mut self, handle: Handle) -> Option<&mut Wish> {
        let place = self.place_of_wish(handle)?;
        self.sequel.wishes.get_mut(place)
    }

    fn place_of_wish(&self, handle: Handle) -> Option<usize> {
        let place = handle.0.wrapping_sub(self.handles).checked_sub(Handle::FURTHER)?;
        usize::try_from(place).ok()
    }

    /// Notes that the checks on a directory record are no longer needed: the transaction locks it,
    /// having compared the version under the lock.
    pub fn cover(&mut self, directory: Address) {
        for check in self.checks.iter_mut().filter(|check| check.address == directory) {
            check.covered = true;
        }
    }
}
