//! The lock table of a compute node: this node's memory decides which transactions may read or write a record.
//!
//! Invariants:
//! - A lock has one writer, or readers, or no holder. Its slot does not move while any transaction holds the lock.
//! - A thread claims a slot only under its bucket's bit. Otherwise two threads that look for a free slot at the same
//!   time could give the lock of one key to two writers. A thread releases a slot without the bit, and a reader joins
//!   other readers without it. The release and the join use a compare-and-swap of a slot's word that was loaded once.
//! - Three actions are one atomic step for every thread that takes the bit: a write grant, the caller's action with
//!   the grant (for example, dropping a cached version), and the increment of the bucket's count of write grants.
//! - No transaction waits for a lock: a lock that cannot be granted is refused. Threads wait for a bucket's bit, but
//!   only for a short time.
//!
//! (Disaggregated locks: Hu et al., "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks". The
//! paper's text has no bit, so two requests that both find a slot free can both be granted.)

use super::bucket::{
    self, BIT, BUCKET_BYTES, READER, WORDS, WRITER, fingerprint, is_of, takes_readers,
};
use super::name::LockMode;
use super::planted::planted_pause;
use super::sync::{AtomicU64, Ordering, Site, Words, fetch_to_write, order, pause, zeroed};
use tarn_store::ids::UsageError;

/// The default size of a lock table, in bytes: 524,288 buckets.
pub const LOCK_TABLE_BYTES_DEFAULT: u64 = 32 << 20;
/// The number of home buckets for each spill bucket. A small table still has a few spill buckets.
const HOMES_PER_SPILL: u64 = 16;
const SPILLS_MIN: u64 = if cfg!(loom) { 1 } else { 16 };
/// The largest size of a table, in bytes. The limit exists because a place has 32 bits.
const TABLE_BYTES_MAX: u64 = 16 << 30;
/// The number of times that a thread tries to take a bucket's bit before its request is refused. Work under a bit
/// takes nanoseconds, unless the operating system has suspended the thread that has the bit. In that case an abort is
/// better than a wait.
const LOOKS_MAX: u32 = if cfg!(loom) { 2 } else { 1 << 12 };

/// How the threads of a node exclude each other while they change a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bits {
    /// The node has one thread, which needs no bits.
    Alone,
    /// The threads exclude each other by the bucket's bit.
    Shared,
    /// **Breaks the invariant**: finds a free slot, then claims it by a compare-and-swap, as the paper's text states.
    /// Tests use this value to prove that they detect the bug.
    #[doc(hidden)]
    PlantedNoBit,
    /// **Breaks the invariant**: readers load a slot's word, then load it again to join. Tests use this value to
    /// prove that they detect the bug.
    #[doc(hidden)]
    PlantedTwoLoads,
}

/// The place of a granted lock's slot in the lock table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(pub(super) u32);

/// The lock table of one compute node; see the module's text.
pub struct LockTable {
    words: Words,
    pub(super) homes: u32,
    pub(super) spills: u32,
    pub(super) bits: Bits,
    /// The number of the first free spill bucket, with a count of changes in the upper bits.
    pub(super) free: AtomicU64,
}

/// The result of a search of a bucket and its spill buckets.
pub(crate) enum Found {
    /// The slot of the requested lock, and the slot's word.
    Held(Place, u64),
    /// A free slot; the lock has no holder.
    Free(Place),
    /// The search found neither the requested lock's slot nor a free slot.
    Full,
}

impl LockTable {
    /// Creates a table whose buckets take `bytes`, rounded down to a power of two. A further sixteenth of this size
    /// is for spill buckets.
    ///
    /// # Errors
    /// The error names the size and the allowed range.
    pub fn new(bytes: u64, bits: Bits) -> Result<LockTable, UsageError> {
        if !(BUCKET_BYTES as u64..=TABLE_BYTES_MAX).contains(&bytes) {
            return Err(UsageError {
                field: "lock_table_bytes".into(),
                value: bytes.to_string(),
                allowed: format!("{BUCKET_BYTES} to {TABLE_BYTES_MAX}"),
            });
        }
        let homes = 1u64 << (bytes / BUCKET_BYTES as u64).ilog2();
        let spills = (homes / HOMES_PER_SPILL).max(SPILLS_MIN);
        let words = zeroed((homes + spills) as usize * WORDS);
        let (homes, spills) = (homes as u32, spills as u32);
        Ok(LockTable { words, homes, spills, bits, free: AtomicU64::new(0) })
    }

    /// How the table's threads exclude each other.
    pub fn bits(&self) -> Bits {
        self.bits
    }

    /// Whether a holder of `held` locks was refused because it holds most of the table itself. A holder holds most of
    /// the table if no spill bucket is free, and the holder has half of the slots.
    #[cold]
    pub(crate) fn is_full_of(&self, held: usize) -> bool {
        let is_spent = self.free.load(Ordering::Acquire) as u32 == self.spills;
        is_spent && held * 2 >= self.homes as usize * (WORDS - 1)
    }

    #[inline(always)]
    pub(crate) fn bucket(&self, number: u32) -> &[AtomicU64; WORDS] {
        &self.words.as_chunks().0[number as usize]
    }

    #[inline(always)]
    pub(crate) fn home(&self, hash: u64) -> u32 {
        hash as u32 & (self.homes - 1)
    }

    #[inline(always)]
    pub(crate) fn slot(&self, Place(at): Place) -> &AtomicU64 {
        &self.words[at as usize]
    }

    #[inline(always)]
    fn is_spilled(&self, Place(at): Place) -> bool {
        at >= self.homes * WORDS as u32
    }

    /// Tells the processor that a request for this lock comes soon, so that the processor can fetch the line of the
    /// lock's bucket in advance.
    #[inline(always)]
    pub fn fetch_ahead(&self, hash: u64) {
        fetch_to_write(&self.bucket(self.home(hash))[0]);
    }

    /// The address of the cache line of a lock's bucket. Code that prefetches several lines uses the address as a
    /// hint.
    #[inline(always)]
    pub fn line(&self, hash: u64) -> *const u8 {
        self.line_in(self.words.as_ptr().cast(), hash)
    }

    /// The address of the lock's bucket line in another table of equal size whose first line is `first`. The returned
    /// address is only a hint, since that table may no longer exist.
    #[inline(always)]
    pub(crate) fn line_in(&self, first: *const u8, hash: u64) -> *const u8 {
        first.wrapping_add(self.home(hash) as usize * BUCKET_BYTES)
    }

    /// Grants a lock, or refuses it. The function runs `on_write` together with a grant to a writer. `on_write` may
    /// not call this table.
    #[inline(always)]
    pub fn acquire(&self, hash: u64, mode: LockMode, on_write: impl FnOnce()) -> Option<Place> {
        let (home, print) = (self.home(hash), fingerprint(hash));
        if self.bits != Bits::Alone {
            return self.acquire_shared(home, print, mode, on_write);
        }
        let bucket = self.bucket(home);
        let header = bucket[0].load(Ordering::Relaxed);
        let (place, header) = match is_empty(bucket, header) {
            true => self.claim((home, bucket, 1), header, (print, mode), on_write),
            false => self.grant::<true>(home, header, (print, mode), on_write),
        };
        bucket[0].store(header, Ordering::Relaxed);
        place
    }

    #[inline(never)]
    fn acquire_shared(
        &self,
        home: u32,
        print: u64,
        mode: LockMode,
        on_write: impl FnOnce(),
    ) -> Option<Place> {
        if self.bits == Bits::PlantedNoBit {
            return self.acquire_without_bit(home, print, mode);
        }
        if mode == LockMode::Read
            && let Some(place) = self.join_beside(home, print)
        {
            return Some(place);
        }
        let header = self.take(home)?;
        let bucket = self.bucket(home);
        let (place, header) = match is_empty(bucket, header) {
            true => self.claim((home, bucket, 1), header, (print, mode), on_write),
            false => self.grant::<false>(home, header, (print, mode), on_write),
        };
        self.give(home, header);
        place
    }

    /// Takes a bucket's bit, and returns the header without the bit. `None` if other threads have held the bit for
    /// the whole wait.
    pub(crate) fn take(&self, home: u32) -> Option<u64> {
        let word = &self.bucket(home)[0];
        for _ in 0..LOOKS_MAX {
            let header = word.fetch_or(BIT, order(Site::BitTaken, Ordering::Acquire));
            if header & BIT == 0 {
                return Some(header);
            }
            pause();
        }
        None
    }

    /// Does the same as [`LockTable::take`], but waits until it has the bit.
    pub(crate) fn take_at_last(&self, home: u32) -> u64 {
        loop {
            if let Some(header) = self.take(home) {
                return header;
            }
        }
    }

    /// Gives a bucket's bit back.
    #[inline]
    pub(crate) fn give(&self, home: u32, header: u64) {
        self.bucket(home)[0].store(header & !BIT, order(Site::BitReleased, Ordering::Release));
    }

    /// Lets a reader join other readers without the bucket's bit. The bit is not needed because the slot's word
    /// states that this lock has readers.
    #[inline]
    fn join_beside(&self, home: u32, print: u64) -> Option<Place> {
        let bucket = self.bucket(home);
        if bucket[1..].iter().all(|slot| slot.load(Ordering::Relaxed) == 0) {
            return None;
        }
        for (at, slot) in bucket.iter().enumerate().skip(1) {
            let mut word = slot.load(Ordering::Relaxed);
            if !is_of(word, print) || !takes_readers(word) {
                continue;
            }
            if self.bits == Bits::PlantedTwoLoads {
                planted_pause();
                word = slot.load(Ordering::Relaxed);
            }
            let order = order(Site::SlotTaken, Ordering::Acquire);
            let joined = slot.compare_exchange(word, word + READER, order, Ordering::Relaxed);
            return joined.ok().map(|_| Place(home * WORDS as u32 + at as u32));
        }
        None
    }

    /// Decides on a request for a lock. The caller has the bucket's bit, or is the table's only thread. The function
    /// also returns the header that the caller must store.
    #[inline(never)]
    fn grant<const ALONE: bool>(
        &self,
        home: u32,
        mut header: u64,
        (print, mode): (u64, LockMode),
        on_write: impl FnOnce(),
    ) -> (Option<Place>, u64) {
        let place = match self.find(home, header, print) {
            Found::Free(place) => place,
            Found::Held(place, word) if mode == LockMode::Read => {
                match self.join::<ALONE>(place, word) {
                    Joined::Yes => return (Some(place), header),
                    Joined::No => return (None, header),
                    Joined::Gone => place,
                }
            }
            Found::Held(..) => return (None, header),
            Found::Full => match self.spill(&mut header) {
                Some(place) => place,
                None => return (None, header),
            },
        };
        let (number, at) = (place.0 / WORDS as u32, place.0 as usize % WORDS);
        self.claim((number, self.bucket(number), at), header, (print, mode), on_write)
    }

    /// Gives a free slot of a bucket to its first holder.
    #[inline(always)]
    fn claim(
        &self,
        (number, bucket, at): (u32, &[AtomicU64; WORDS], usize),
        header: u64,
        (print, mode): (u64, LockMode),
        on_write: impl FnOnce(),
    ) -> (Option<Place>, u64) {
        let place = Place(number * WORDS as u32 + at as u32);
        let order = order(Site::ClaimPublished, Ordering::Release);
        if mode == LockMode::Read {
            bucket[at].store(print | READER, order);
            return (Some(place), header);
        }
        bucket[at].store(print | WRITER, order);
        on_write();
        (Some(place), bucket::counted(header))
    }

    /// Finds the lock's slot, or a free slot, in a bucket and its spill buckets.
    pub(crate) fn find(&self, home: u32, mut header: u64, print: u64) -> Found {
        let (mut free, mut number) = (None, home);
        loop {
            let bucket = self.bucket(number);
            for (at, slot) in bucket.iter().enumerate().skip(1) {
                let word = slot.load(order(Site::SlotTaken, Ordering::Acquire));
                let place = Place(number * WORDS as u32 + at as u32);
                if word == 0 {
                    free = free.or(Some(place));
                } else if is_of(word, print) {
                    return Found::Held(place, word);
                }
            }
            let Some(spill) = bucket::spill(header) else { break };
            number = self.homes + spill;
            header = self.bucket(number)[0].load(Ordering::Relaxed);
        }
        free.map_or(Found::Full, Found::Free)
    }

    /// Lets a reader join the readers of a slot. While the slot has readers, no other thread can claim it.
    pub(crate) fn join<const ALONE: bool>(&self, place: Place, mut word: u64) -> Joined {
        let slot = self.slot(place);
        loop {
            if word == 0 {
                return Joined::Gone;
            }
            if !takes_readers(word) {
                return Joined::No;
            }
            if ALONE {
                slot.store(word + READER, Ordering::Relaxed);
                return Joined::Yes;
            }
            let taken = order(Site::SlotTaken, Ordering::Acquire);
            match slot.compare_exchange(word, word + READER, taken, taken) {
                Ok(_) => return Joined::Yes,
                Err(now) => word = now,
            }
        }
    }

    /// Makes the only reader of a lock its writer. Returns whether the reader became the writer. `on_write` is called
    /// as in [`LockTable::acquire`].
    pub fn upgrade(&self, place: Place, hash: u64, on_write: impl FnOnce()) -> bool {
        let (home, print) = (self.home(hash), fingerprint(hash));
        let is_bare = matches!(self.bits, Bits::Alone | Bits::PlantedNoBit);
        let header = match is_bare {
            true => self.bucket(home)[0].load(Ordering::Relaxed),
            false => match self.take(home) {
                Some(header) => header,
                None => return false,
            },
        };
        let (taken, slot) = (order(Site::SlotTaken, Ordering::Acquire), self.slot(place));
        let (from, to) = (print | READER, print | WRITER);
        let is_writer = slot.compare_exchange(from, to, taken, Ordering::Relaxed).is_ok();
        let header = if is_writer { bucket::counted(header) } else { header };
        if is_writer {
            on_write();
        }
        self.give(home, header);
        is_writer
    }

    /// Whether a lock has exactly one holder. The result is a hint, because readers may join and leave at any time.
    pub fn has_one_holder(&self, place: Place) -> bool {
        matches!(bucket::holders(self.slot(place).load(Ordering::Relaxed)), WRITER | READER)
    }

    /// Releases one hold of a lock.
    ///
    /// # Panics
    /// In builds with assertions, if the lock has no holder. A release without a holder would be a bug of this crate.
    #[inline]
    pub fn release(&self, place: Place, mode: LockMode, hash: impl FnOnce() -> u64) {
        if self.is_spilled(place) {
            return self.release_spilled(place, hash(), mode);
        }
        if mode == LockMode::Write {
            debug_assert!(bucket::holders(self.slot(place).load(Ordering::Relaxed)) == WRITER);
            self.slot(place).store(0, order(Site::SlotReleased, Ordering::Release));
        } else {
            self.leave(place);
        }
    }

    #[inline]
    pub(crate) fn leave(&self, place: Place) {
        let slot = self.slot(place);
        let mut word = slot.load(Ordering::Relaxed);
        debug_assert!(bucket::holders(word) & WRITER == 0 && word != 0);
        if self.bits == Bits::Alone {
            return slot.store(bucket::without_reader(word), Ordering::Relaxed);
        }
        let released = order(Site::SlotReleased, Ordering::Release);
        while let Err(now) =
            slot.compare_exchange(word, bucket::without_reader(word), released, Ordering::Relaxed)
        {
            word = now;
        }
    }
}

/// Whether no transaction holds a lock of a bucket or its spill buckets. Most buckets are empty most of the time.
#[inline(always)]
fn is_empty(bucket: &[AtomicU64; WORDS], header: u64) -> bool {
    let order = order(Site::SlotTaken, Ordering::Acquire);
    let used = bucket[1..].iter().fold(0, |used, slot| used | slot.load(order));
    used | bucket::spill_bits(header) == 0
}

/// The result of a reader's attempt to join other readers.
pub(crate) enum Joined {
    /// The reader joined the other readers.
    Yes,
    /// The slot has a writer, or too many readers.
    No,
    /// The other readers have released the lock, and the slot is free.
    Gone,
}
