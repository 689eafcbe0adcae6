//! A cache of the version tables of records in the node's own shards. The node itself grants the write locks of these
//! records, so no version table changes without the node's knowledge.
//!
//! Invariants: an entry is one version table as it was at one moment, and contains the [`Stamp`] of that moment. A
//! stamp has two parts: the number of write grants in the bucket of the record's lock, and the epoch in which the
//! node owned the record's shard. A reader names the stamp that the entry must have, so the node need not drop any
//! entry. A new write grant increases the number, and a shard that returns to the node has another epoch. A read
//! returns one consistent entry, however many threads write at the same time. An entry that a thread cannot read
//! immediately counts as missing. The cache is hash-partitioned into sets of [`WAYS`]; each set evicts its least
//! recently used entry. (The cache is that of Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing Disaggregated
//! Transactions with Disaggregated Locks", §4.4. The paper's cache drops entries.)
//!
//! ```text
//! a set    seq | order of use | WAYS tags of 32 bits | (to a line) | WAYS entries
//! an entry stamp | address | table | the slot's used words
//! ```

use super::sync::{AtomicU64, Ordering, Site, Words, fence, order, zeroed};
use tarn_fabric::address::Address;

/// The number of entries of a set of the cache. Loom models use fewer entries.
pub const WAYS: usize = if cfg!(loom) { 1 } else { 8 };
/// The default number of entries of a node's cache.
pub const VERSION_CACHE_ENTRIES_DEFAULT: usize = 65_536;

const SEQ: usize = 0;
const USED: usize = 1;
const TAGS: usize = 2;
/// The number of words of a set before its entries.
const HEAD_WORDS: usize = if cfg!(loom) { 3 } else { 8 };
/// The number of words of an entry before the words of the slot.
const ENTRY_WORDS: usize = 3;
/// The index of the field KEY among a slot's words.
const KEY_WORD: usize = tarn_store::layout::KEY_AT / 8;
/// The initial order of use: the entries 0, 1, 2, … The last entry of the order is the least recently used.
const ORDER_FIRST: u64 = 0x7654_3210;

const _: () = assert!(TAGS + WAYS.div_ceil(2) <= HEAD_WORDS && WAYS <= 8);

/// The moment at which an entry was valid; see the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The number of write grants in the bucket of the record's lock.
    pub grants: u32,
    /// The epoch of the record's shard; 0 if the database has one compute node.
    pub epoch: u32,
}

impl Stamp {
    fn word(self) -> u64 {
        u64::from(self.grants) << 32 | u64::from(self.epoch)
    }

    /// The stamp that the record had before the last write grant.
    #[must_use]
    pub fn before_grant(self) -> Stamp {
        Stamp { grants: self.grants.wrapping_sub(1), ..self }
    }
}

/// The record to which a version table belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whose {
    /// The hash of the name of the record's lock.
    pub hash: u64,
    /// The record's table.
    pub table: u16,
    /// The record's key word.
    pub key: u64,
}

/// A compute node's cache of version tables; see the module's text.
pub struct VersionCache {
    sets: usize,
    /// The number of used words of the largest slot.
    slot_words: usize,
    words: Words,
}

impl VersionCache {
    /// Creates a cache for `entries` version tables, rounded up to whole sets, of at most `slot_words` words each. If
    /// `entries` or `slot_words` is 0, the cache stores nothing.
    pub fn new(entries: usize, slot_words: usize) -> VersionCache {
        let sets = if slot_words == 0 { 0 } else { entries.div_ceil(WAYS) };
        let mut cache = VersionCache { sets, slot_words, words: zeroed(0) };
        cache.words = zeroed(sets * cache.set_words());
        for set in 0..sets {
            cache.set(set)[USED].store(ORDER_FIRST, Ordering::Relaxed);
        }
        cache
    }

    /// Whether the capacity of the cache is more than 0.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.sets > 0
    }

    /// The number of bytes that a cache takes.
    pub fn bytes(entries: usize, slot_words: usize) -> u64 {
        let cache = VersionCache { sets: 0, slot_words, words: zeroed(0) };
        (entries.div_ceil(WAYS) * cache.set_words() * 8) as u64
    }

    fn entry_words(&self) -> usize {
        (ENTRY_WORDS + self.slot_words).next_multiple_of(if cfg!(loom) { 1 } else { 8 })
    }

    fn set_words(&self) -> usize {
        HEAD_WORDS + WAYS * self.entry_words()
    }

    fn set(&self, number: usize) -> &[AtomicU64] {
        &self.words[number * self.set_words()..][..self.set_words()]
    }

    /// Returns the set of the cache that a hash selects. The upper half of the hash selects the set, because the lock
    /// table uses the lower half.
    fn set_of(&self, hash: u64) -> &[AtomicU64] {
        self.set(((u128::from(hash) * self.sets as u128) >> 64) as usize)
    }

    fn entry<'a>(&self, set: &'a [AtomicU64], way: usize) -> &'a [AtomicU64] {
        &set[HEAD_WORDS + way * self.entry_words()..][..self.entry_words()]
    }

    /// The index of the set's entry of this record, if there is one. Another thread may change the entry at the same
    /// time.
    fn find(&self, set: &[AtomicU64], whose: Whose) -> Option<usize> {
        (0..WAYS).find(|&way| tag(set, way) == tag_of(whose.hash) && self.is_of(set, way, whose))
    }

    fn is_of(&self, set: &[AtomicU64], way: usize, Whose { table, key, .. }: Whose) -> bool {
        let entry = self.entry(set, way);
        entry[1].load(Ordering::Relaxed) != 0
            && entry[2].load(Ordering::Relaxed) == u64::from(table)
            && entry[ENTRY_WORDS + KEY_WORD].load(Ordering::Relaxed) == key
    }

    /// Looks up the version table of a record, and returns it only if the entry has this stamp. Returns the address
    /// of the table's slot, and copies the slot's first words to `into`.
    pub fn get(&self, whose: Whose, stamp: Stamp, into: &mut [u64]) -> Option<Address> {
        if !self.is_on() || into.len() > self.slot_words {
            return None;
        }
        let set = self.set_of(whose.hash);
        let before = set[SEQ].load(order(Site::EntryRead, Ordering::Acquire));
        if !before.is_multiple_of(2) {
            return None;
        }
        let way = self.find(set, whose)?;
        let entry = self.entry(set, way);
        let is_of_then = entry[0].load(Ordering::Relaxed) == stamp.word();
        let address = entry[1].load(Ordering::Relaxed);
        for (into, word) in into.iter_mut().zip(&entry[ENTRY_WORDS..]) {
            *into = word.load(Ordering::Relaxed);
        }
        // A thread reads all words of the entry before it reads SEQ again.
        fence(Site::EntryReadAgain, Ordering::Acquire);
        if !is_of_then || set[SEQ].load(Ordering::Relaxed) != before {
            return None;
        }
        use_first(set, way);
        Some(Address::from_word(address))
    }

    /// Stores a version table as it is at `stamp`, under the rule of [`crate::services::lock`]. The caller holds the
    /// lock, or calls from within [`super::table::LockTable::keep`]. If another thread is changing the set, the
    /// function does nothing.
    pub fn put(&self, whose: Whose, stamp: Stamp, address: Address, slot: &[u64]) {
        if !self.is_on() || slot.len() > self.slot_words {
            return;
        }
        self.change(whose.hash, |set| {
            let last = (set[USED].load(Ordering::Relaxed) >> (4 * (WAYS - 1))) as usize & 0xf;
            let way = self.find(set, whose).unwrap_or(last);
            set_tag(set, way, tag_of(whose.hash));
            let entry = self.entry(set, way);
            let head = [stamp.word(), address.to_word(), u64::from(whose.table)];
            for (word, value) in entry.iter().zip(head.iter().chain(slot)) {
                word.store(*value, Ordering::Relaxed);
            }
            use_first(set, way);
        });
    }

    /// Replaces the stamp `from` of an entry by the stamp `to`. The caller knows that the version table has not
    /// changed since `from`.
    pub fn restamp(&self, whose: Whose, from: Stamp, to: Stamp) {
        if !self.is_on() {
            return;
        }
        self.change(whose.hash, |set| {
            if let Some(way) = self.find(set, whose) {
                let word = &self.entry(set, way)[0];
                if word.load(Ordering::Relaxed) == from.word() {
                    word.store(to.word(), Ordering::Relaxed);
                }
            }
        });
    }

    /// A digest of all entries, independent of their positions, for code that compares states.
    pub fn digest(&self) -> u64 {
        let entries = (0..self.sets).flat_map(|set| (0..WAYS).map(move |way| (set, way)));
        let digest = |(set, way)| {
            let words = self.entry(self.set(set), way).iter();
            words.fold(0, |all, word| tarn_fabric::rng::mix(all ^ word.load(Ordering::Acquire)))
        };
        let used = |(set, way): &(usize, usize)| {
            self.entry(self.set(*set), *way)[1].load(Ordering::Acquire) != 0
        };
        entries.filter(used).map(digest).fold(0, u64::wrapping_add)
    }

    /// Changes a set of the cache, and keeps the set's sequence number SEQ odd meanwhile. If another thread is
    /// changing the set, the function does nothing.
    fn change(&self, hash: u64, act: impl FnOnce(&[AtomicU64])) {
        let set = self.set_of(hash);
        let seq = set[SEQ].load(Ordering::Relaxed);
        let taken = order(Site::EntryTaken, Ordering::Acquire);
        let is_mine = seq.is_multiple_of(2)
            && set[SEQ].compare_exchange(seq, seq + 1, taken, Ordering::Relaxed).is_ok();
        if is_mine {
            // A thread that sees any part of the change also sees that SEQ is odd.
            fence(Site::EntryChanging, Ordering::Release);
            act(set);
            set[SEQ].store(seq + 2, order(Site::EntryWritten, Ordering::Release));
        }
    }
}

/// The tag of a hash. 0 is a valid tag, because an entry that was never written is recognized by its missing address.
fn tag_of(hash: u64) -> u32 {
    hash as u32
}

fn tag(set: &[AtomicU64], way: usize) -> u32 {
    (set[TAGS + way / 2].load(Ordering::Relaxed) >> (32 * (way % 2))) as u32
}

fn set_tag(set: &[AtomicU64], way: usize, tag: u32) {
    let (word, shift) = (&set[TAGS + way / 2], 32 * (way % 2));
    let others = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
    word.store(others | u64::from(tag) << shift, Ordering::Relaxed);
}

/// Makes this entry the most recently used entry of its set. If two threads do so at the same time, one update may be
/// lost, but the word stays a valid order.
fn use_first(set: &[AtomicU64], way: usize) {
    let order = set[USED].load(Ordering::Relaxed);
    let next = moved_first(order, way as u64);
    if next != order {
        set[USED].store(next, Ordering::Relaxed);
    }
}

/// Moves one nibble of a list of nibbles to the head of the list.
fn moved_first(order: u64, way: u64) -> u64 {
    let at = (0..16).position(|at| order >> (4 * at) & 0xf == way).expect("the list has every way")
        as u32;
    let before = order & ((1 << (4 * at)) - 1);
    let behind = order & (!0xf << (4 * at));
    behind | before << 4 | way
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicBool;
    use tarn_fabric::address::GroupId;

    const WORDS: usize = 5;

    fn whose(key: u64) -> Whose {
        Whose { hash: tarn_fabric::rng::mix(key), table: 3, key }
    }

    fn stamp(grants: u32) -> Stamp {
        Stamp { grants, epoch: 7 }
    }

    fn at(key: u64) -> Address {
        Address::new(GroupId(1), 64 * (key + 1))
    }

    /// The words of a slot for the tests. All words except the key contain the number of the write.
    fn slot(key: u64, write: u64) -> [u64; WORDS] {
        std::array::from_fn(|word| if word == KEY_WORD { key } else { write })
    }

    fn get(cache: &VersionCache, key: u64, grants: u32) -> Option<(Address, [u64; WORDS])> {
        let mut into = [0; WORDS];
        let found = cache.get(whose(key), stamp(grants), &mut into)?;
        Some((found, into))
    }

    #[test]
    fn an_entry_answers_for_its_stamp_its_table_and_its_key_alone() {
        let cache = VersionCache::new(64, WORDS);
        cache.put(whose(5), stamp(9), at(5), &slot(5, 1));
        assert_eq!(get(&cache, 5, 9), Some((at(5), slot(5, 1))));
        assert_eq!(get(&cache, 5, 10), None);
        let mut into = [0; WORDS];
        assert_eq!(cache.get(whose(5), Stamp { grants: 9, epoch: 8 }, &mut into), None);
        assert_eq!(cache.get(Whose { table: 2, ..whose(5) }, stamp(9), &mut into), None);
        assert_eq!(cache.get(Whose { key: 6, ..whose(5) }, stamp(9), &mut into), None);
        cache.restamp(whose(5), stamp(8), stamp(11));
        assert_eq!(get(&cache, 5, 9), Some((at(5), slot(5, 1))), "it is not of then");
        cache.restamp(whose(5), stamp(9), stamp(11));
        assert_eq!((get(&cache, 5, 9), get(&cache, 5, 11)), (None, Some((at(5), slot(5, 1)))));
    }

    #[test]
    fn no_entries_keep_nothing() {
        for cache in [VersionCache::new(0, WORDS), VersionCache::new(8, 0)] {
            cache.put(whose(5), stamp(9), at(5), &slot(5, 1));
            assert!(!cache.is_on() && get(&cache, 5, 9).is_none());
        }
    }

    proptest! {
        /// Compares one set with a list that keeps its entries in the order of use.
        #[test]
        fn the_least_recently_used_goes(steps in prop::collection::vec((0u64..20, any::<bool>()), 1..200)) {
            let cache = VersionCache::new(WAYS, WORDS);
            let mut list: VecDeque<u64> = VecDeque::new();
            for (key, puts) in steps {
                let was = list.iter().position(|it| *it == key);
                if puts {
                    cache.put(whose(key), stamp(0), at(key), &slot(key, key));
                } else {
                    prop_assert_eq!(get(&cache, key, 0), was.map(|_| (at(key), slot(key, key))));
                }
                if let Some(was) = was {
                    list.remove(was);
                }
                if puts || was.is_some() {
                    list.push_front(key);
                    list.truncate(WAYS);
                }
            }
        }
    }

    #[test]
    fn entries_read_beside_writers_are_whole() {
        let (cache, stop) = (VersionCache::new(WAYS, WORDS), AtomicBool::new(false));
        let keys = WAYS as u64 + 2;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for write in 0..200_000u64 {
                    cache.put(
                        whose(write % keys),
                        stamp(0),
                        at(write % keys),
                        &slot(write % keys, write),
                    );
                }
                stop.store(true, Ordering::Release);
            });
            while !stop.load(Ordering::Acquire) {
                for key in 0..keys {
                    if let Some((address, words)) = get(&cache, key, 0) {
                        assert_eq!((address, words), (at(key), slot(key, words[0])));
                    }
                }
            }
        });
    }
}
