//! Models of the synchronisation of the lock table and of the counts of readers. Loom runs each model in every
//! interleaving. In a model, a read may return every value that a machine with weaker order than ours may return.
//!
//! Run the models with `cargo xtask loom`; in an ordinary build this file is empty. The models run the table's own
//! code, on loom's atomics (`crates/engine/src/services/lock/sync.rs`), with buckets of two slots.
//!
//! Invariant checked: each model passes. A model fails if an ordering is removed that it must justify. A model also
//! fails if the paper's algorithm replaces the bit. The models are limited to three preemptions, two or three
//! threads, and a few grants. No model covers spill buckets, because they change only under the bit of their home
//! bucket.

#![cfg(loom)]

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;
use tarn_engine::services::Transport;
use tarn_engine::services::lock::modelled::{BUCKET_BYTES, Site, plant};
use tarn_engine::services::lock::name::LockMode;
use tarn_engine::services::lock::table::{Bits, LockTable};
use tarn_engine::services::lock::versions::{Stamp, VersionCache, Whose};
use tarn_engine::services::readers::{NodeReaders, RecordName};
use tarn_fabric::address::{Address, GroupId, Incarnation, NodeId, NodeSlot};
use tarn_fabric::rpc::RpcConfig;
use tarn_store::schema::TableId;

const PREEMPTIONS: usize = 3;
/// The hash of a lock. This lock and the lock of the next constant belong to the only bucket.
const K: u64 = 7 << 8;
const X: u64 = 9 << 8;
/// The number of words in a slot up to and including its key.
const KEY_WORDS: usize = 3;
const WHOSE: Whose = Whose { hash: 1, table: 0, key: 5 };
const NOW: Stamp = Stamp { grants: 0, epoch: 0 };

fn check(site: Option<Site>, model: fn()) {
    plant(site);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// A lock table of one bucket, and a word that lock K guards. Accesses to the word have no memory ordering.
struct Guarded {
    table: LockTable,
    word: AtomicU64,
}

impl Guarded {
    fn new(bits: Bits) -> Arc<Guarded> {
        let table = LockTable::new(BUCKET_BYTES as u64, bits).expect("a table");
        Arc::new(Guarded { table, word: AtomicU64::new(0) })
    }

    /// Adds one to the word under lock K, in a way that is safe only for a single thread. Returns whether the lock
    /// was granted.
    fn add(&self) -> bool {
        let Some(place) = self.table.acquire(K, LockMode::Write, || {}) else { return false };
        let before = self.word.load(Ordering::Relaxed);
        self.word.store(before + 1, Ordering::Relaxed);
        self.table.release(place, LockMode::Write, || K);
        true
    }

    /// Takes the read lock and returns the value of the word. The reader never releases its lock.
    fn read(&self) -> Option<u64> {
        self.table.acquire(K, LockMode::Read, || {})?;
        Some(self.word.load(Ordering::Relaxed))
    }
}

/// Models two writers that lock one key, while another key is in the bucket. Each addition must count.
fn writers() {
    let guarded = Guarded::new(Bits::Shared);
    let other = Arc::clone(&guarded);
    let writer = thread::spawn(move || u64::from(other.add()));
    let granted = u64::from(guarded.add());
    let granted = granted + writer.join().expect("no panic");
    assert_eq!(guarded.word.load(Ordering::Relaxed), granted, "an addition was lost");
}

/// Models a writer and two readers that keep their locks. No writer ran between the two readers, so both must see the
/// same value.
fn readers() {
    let guarded = Guarded::new(Bits::Shared);
    let reader = |guarded: &Arc<Guarded>| {
        let guarded = Arc::clone(guarded);
        thread::spawn(move || guarded.read())
    };
    let (first, second) = (reader(&guarded), reader(&guarded));
    guarded.add();
    let (first, second) = (first.join().expect("no panic"), second.join().expect("no panic"));
    if let (Some(first), Some(second)) = (first, second) {
        assert_eq!(first, second, "one of two readers has missed a write");
    }
}

/// Models a reader that becomes the writer while another reader requests the lock. One of the two requests must be
/// refused.
fn upgrade() {
    let guarded = Guarded::new(Bits::Shared);
    let place = guarded.table.acquire(K, LockMode::Read, || {}).expect("nobody else");
    let other = Arc::clone(&guarded);
    let reader = thread::spawn(move || other.read().is_some());
    let is_writer = guarded.table.upgrade(place, K, || {});
    let reads = reader.join().expect("no panic");
    assert!(!(is_writer && reads), "a writer and a reader");
}

/// Models two threads that request one key at the same time, while another key's slot is released.
fn one_key(bits: Bits) {
    let guarded = Guarded::new(bits);
    let other = Arc::clone(&guarded);
    let beside = thread::spawn(move || {
        let table = &other.table;
        let before = table.acquire(X, LockMode::Write, || {});
        let granted = table.acquire(K, LockMode::Write, || {}).is_some();
        if let Some(before) = before {
            table.release(before, LockMode::Write, || X);
        }
        granted
    });
    let granted = guarded.table.acquire(K, LockMode::Write, || {}).is_some();
    let beside = beside.join().expect("no panic");
    assert!(!(granted && beside), "two writers of one key");
}

/// Models a reader that joins another reader that leaves, while readers of another key take the slot.
fn one_slot(bits: Bits) {
    let guarded = Guarded::new(bits);
    let place = guarded.table.acquire(K, LockMode::Read, || {}).expect("nobody else");
    let other = Arc::clone(&guarded);
    let reader = thread::spawn(move || other.table.acquire(K, LockMode::Read, || {}).is_some());
    guarded.table.release(place, LockMode::Read, || K);
    guarded.table.acquire(X, LockMode::Read, || {});
    let reads = reader.join().expect("no panic");
    let writes = guarded.table.acquire(K, LockMode::Write, || {}).is_some();
    assert!(!(reads && writes), "a writer beside a reader");
}

fn with_bit() {
    one_key(Bits::Shared);
}

fn without_bit() {
    one_key(Bits::PlantedNoBit);
}

fn with_one_load() {
    one_slot(Bits::Shared);
}

fn with_two_loads() {
    one_slot(Bits::PlantedTwoLoads);
}

/// Returns the words of a record's version table: its key, and words that all contain the number of their write.
fn slot(write: u64) -> [u64; KEY_WORDS] {
    std::array::from_fn(|word| if word == KEY_WORDS - 1 { WHOSE.key } else { write })
}

/// Whether all words of the cached version table come from one write.
fn is_whole(cache: &VersionCache) -> bool {
    let mut into = [0; KEY_WORDS];
    match cache.get(WHOSE, NOW, &mut into) {
        Some(address) => into == slot(into[0]) && address.offset_bytes() == 64 * into[0],
        None => true,
    }
}

fn remember(cache: &VersionCache, write: u64) {
    cache.put(WHOSE, NOW, Address::new(GroupId(0), 64 * write), &slot(write));
}

/// Models one thread that reads a cached version table while another thread replaces it.
fn remembered() {
    let cache = Arc::new(VersionCache::new(1, KEY_WORDS));
    remember(&cache, 1);
    let other = Arc::clone(&cache);
    let reader = thread::spawn(move || assert!(is_whole(&other), "of two writes"));
    remember(&cache, 2);
    reader.join().expect("of two writes");
}

/// Models two threads that replace a cached version table. One of the two new tables must stay.
fn remembered_by_two() {
    let cache = Arc::new(VersionCache::new(1, KEY_WORDS));
    let other = Arc::clone(&cache);
    let writer = thread::spawn(move || remember(&other, 1));
    remember(&cache, 2);
    writer.join().expect("no panic");
    assert!(is_whole(&cache), "of two writes");
}

/// A record in memory, and a node's counts of the record's readers.
struct Read {
    readers: NodeReaders,
    lock: AtomicU64,
    /// The work that the reader has completed before its window closes.
    done: AtomicU64,
}

/// Models a reader that has not found the lock, and a writer that has found no reader. So the writer knows that the
/// reader has left, and must see all of the reader's work.
fn counted() {
    let name = RecordName::of(TableId(0), 5);
    let id = NodeId { slot: NodeSlot(0), incarnation: Incarnation(1) };
    let readers = NodeReaders::new(id, Transport::Near, RpcConfig::default(), 1);
    let record = Read { readers, lock: AtomicU64::new(0), done: AtomicU64::new(0) };
    let record = Arc::new(record);
    let other = Arc::clone(&record);
    let reader = thread::spawn(move || {
        let Read { readers, lock, done } = &*other;
        let place = readers.place(name);
        readers.enter(place);
        readers.told();
        let is_locked = lock.load(Ordering::Relaxed) != 0;
        done.store(1, Ordering::Relaxed);
        readers.leave(place);
        is_locked
    });
    record.lock.store(1, Ordering::Relaxed);
    let is_read = record.readers.reads_any(std::iter::once(name));
    let has_gone = record.done.load(Ordering::Relaxed) == 1;
    let is_locked = reader.join().expect("no panic");
    assert!(is_locked || is_read || has_gone, "he reads what nobody is told that he reads");
}

/// Asserts that a model fails, and that its own assertion is the cause. If a search only reached its limits, it has
/// found no failure.
fn assert_found(site: Option<Site>, model: fn()) {
    let found = std::panic::catch_unwind(|| check(site, model)).expect_err("it is noticed");
    let text = found
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| found.downcast_ref::<&str>().map(ToString::to_string))
        .unwrap_or_default();
    let bounds = ["exceeded", "deadlock"];
    assert!(!text.is_empty() && !bounds.iter().any(|bound| text.contains(bound)), "{text}");
}

/// Defines a test in which the model passes. For each site, the macro also defines a test in which the model must
/// fail without that site.
macro_rules! models {
    ($($model:ident: $($planted:ident = $site:ident),*;)*) => {$(
        mod $model {
            use super::*;

            #[test]
            fn passes() {
                check(None, super::$model);
            }

            $(#[test]
            fn $planted() {
                assert_found(Some(Site::$site), super::$model);
            })*
        }
    )*};
}

models! {
    writers: finds_bit_taken = BitTaken, finds_bit_released = BitReleased,
        finds_slot_released = SlotReleased, finds_slot_taken = SlotTaken;
    readers: finds_claim = ClaimPublished, finds_slot_taken = SlotTaken,
        finds_slot_released = SlotReleased;
    upgrade: ;
    remembered: finds_read = EntryRead, finds_read_again = EntryReadAgain,
        finds_changing = EntryChanging, finds_written = EntryWritten;
    remembered_by_two: finds_taken = EntryTaken;
    with_bit: ;
    with_one_load: ;
    counted: finds_told = ReadingTold, finds_asked = ReadingAsked, finds_ended = ReadingEnded,
        finds_seen_ended = ReadingSeenEnded;
}

#[test]
fn the_paper_s_find_then_claim_is_noticed() {
    assert_found(None, without_bit);
}

#[test]
fn a_reader_that_reads_the_header_twice_is_noticed() {
    assert_found(None, with_two_loads);
}
