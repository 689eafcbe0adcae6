//! Growth beside reads, with a thread that stops in the middle of moving a bin.
//!
//! Invariant: a get never waits. A thread that has frozen a bin and stopped delays only updates of that bin's keys.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use crate::Table;
use crate::header::Phase;
use crate::look::header_of;
use crate::plant::Site;

#[test]
fn gets_do_not_wait_for_a_thread_that_stopped_while_it_moved_a_bin() {
    const ENTRIES: u64 = 150;
    let (stopped, has_stopped) = channel();
    let (go_on, may_go_on) = channel();
    let (stopped, may_go_on) = (Mutex::new(stopped), Mutex::new(may_go_on));
    let is_armed = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&is_armed);
    let mut table: Table<u64, u64> = Table::with_capacity(150);
    table.raw.plants.hook(move |site| {
        if site == Site::Frozen && armed.swap(false, Ordering::SeqCst) {
            stopped.lock().unwrap().send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        }
    });
    (0..ENTRIES).for_each(|key| table.insert(key, key).unwrap());
    let first = table.raw.current();
    table.raw.begin_growth(first, 2).unwrap();
    is_armed.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        // The first update helps the growth, and stops while it has a bin.
        scope.spawn(|| table.insert(ENTRIES, 0).unwrap());
        has_stopped.recv().unwrap();
        let frozen =
            |key: &u64| header_of(first.bin_of(table.hash_of(key))).phase() == Phase::Moving;
        for key in 0..ENTRIES {
            assert_eq!(table.get(&key), Some(key), "a get answers");
        }
        // All other keys can be changed, and other threads move all other bins.
        for key in (0..ENTRIES).filter(|key| !frozen(key)) {
            assert_eq!(table.insert_or_replace(key, key + 1), Ok(Some(key)));
        }
        (1000..if cfg!(miri) { 1100 } else { 9000 })
            .filter(|key| !frozen(key))
            .for_each(|key| table.insert(key, key).unwrap());
        assert!((0..ENTRIES).any(|key| frozen(&key)), "the thread still has a bin with entries");
        for key in 0..ENTRIES {
            let expected = if frozen(&key) { key } else { key + 1 };
            assert_eq!(table.get(&key), Some(expected));
        }
        let mut seen: Vec<u64> =
            table.iter().map(|(key, _)| key).filter(|key| *key < ENTRIES).collect();
        seen.sort();
        assert_eq!(seen, (0..ENTRIES).collect::<Vec<_>>(), "a walk sees each key once");
        go_on.send(()).unwrap();
    });
    assert_eq!(table.insert(ENTRIES, 0).unwrap_err().value, 0);
}

#[test]
fn walks_and_gets_beside_growths_see_each_old_key_once() {
    let (old, new) = if cfg!(miri) { (50, 200) } else { (2000, 200_000_u64) };
    let table: Table<u64, u64> = Table::new();
    (0..old).for_each(|key| table.insert(key, key).unwrap());
    let is_growing = AtomicBool::new(true);
    let walks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while is_growing.load(Ordering::Relaxed) {
                let mut seen = vec![0; old as usize];
                let keys = table.iter().map(|(key, _)| key);
                keys.filter(|key| *key < old).for_each(|key| seen[key as usize] += 1);
                assert!(seen.iter().all(|times| *times == 1));
                assert!((0..old).all(|key| table.get(&key) == Some(key)));
                walks.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            // Replacements move entries to other slots.
            while is_growing.load(Ordering::Relaxed) {
                (0..old)
                    .for_each(|key| assert_eq!(table.insert_or_replace(key, key), Ok(Some(key))));
            }
        });
        (old..new).for_each(|key| table.insert(key, key).unwrap());
        is_growing.store(false, Ordering::Relaxed);
    });
    assert_eq!(table.iter().count() as u64, new);
    assert!(walks.into_inner() > 0);
}

#[test]
fn the_memory_of_old_indexes_is_given_back() {
    if cfg!(any(miri, not(target_os = "linux"))) {
        return;
    }
    let table: Table<u64, u64> = Table::new();
    let first = table.raw.current();
    (0..400_000).for_each(|key| table.insert(key, key).unwrap());
    let (mut retired, mut mapped) = (0, 0);
    let mut index = first;
    while !std::ptr::eq(index, table.raw.current()) {
        assert!((0..index.bin_count()).all(|it| header_of(index.bin(it)).phase() == Phase::Moved));
        // A bin that was used has a later version than a bin of given back pages, and its slots keep their words.
        let is_empty = |slot: &crate::bin::Slot| slot.key().is_null() && slot.value().is_null();
        if index.bin_count() * size_of::<crate::bin::Bin>() >= crate::memory::MAPPED_MIN_BYTES {
            for bin in (0..index.bin_count()).map(|it| index.bin(it)) {
                assert_eq!(header_of(bin), crate::header::Header(0).moved());
                assert!(bin.slots.iter().all(is_empty));
            }
            mapped += 1;
        }
        // A late operation that still has the old index finds its way.
        retired += 1;
        index = index.next().unwrap();
    }
    assert!(retired > 3 && mapped > 0);
}

#[test]
fn memory_that_is_short_is_an_error_and_the_table_stays() {
    assert!(
        Table::<u64, u64>::try_with_capacity_and_hasher(usize::MAX, Default::default()).is_err()
    );
    let table: Table<u64, u64> = Table::new();
    table.insert(1, 1).unwrap();
    let huge = usize::MAX / table.bins();
    let refused = table.raw.begin_growth(table.raw.current(), huge);
    assert_eq!(refused, Err(crate::raw::Obstacle::OutOfMemory));
    assert_eq!((table.get(&1), table.len()), (Some(1), 1));
    table.insert(2, 2).unwrap();
}

#[test]
fn full_bins_split_into_parts_with_lines_of_their_own() {
    /// A hasher whose hash is the key, so that the test chooses the bins. The table multiplies it by an odd number.
    #[derive(Clone, Default)]
    struct Chosen(u64);
    impl std::hash::BuildHasher for Chosen {
        type Hasher = Chosen;
        fn build_hasher(&self) -> Self {
            Chosen(0)
        }
    }
    impl std::hash::Hasher for Chosen {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, _bytes: &[u8]) {}
        fn write_u64(&mut self, key: u64) {
            self.0 = key;
        }
    }
    const BINS: u64 = 64;
    let table: Table<u64, u64, Chosen> = Table::with_bins(BINS as usize, false, Chosen(0)).unwrap();
    // The keys of a full bin: four entries for each of three of its parts, and three for the last one.
    let mut keys = vec![Vec::new(); BINS as usize];
    let mut key = 0;
    while keys.iter().take(4).any(|it| it.len() < 15) {
        let hash = table.hash_of(&key);
        let part = ((u128::from(hash) * u128::from(BINS * 4)) >> 64) as usize;
        let room = if part % 4 == 3 { 3 } else { 4 };
        let mine = |it: &&u64| {
            ((u128::from(table.hash_of(*it)) * u128::from(BINS * 4)) >> 64) as usize == part
        };
        if part / 4 < 4 && keys[part / 4].iter().filter(mine).count() < room {
            keys[part / 4].push(key);
        }
        key += 1;
    }
    // Only pairs and singles that exist can be linked; as many bins as possible are full.
    let pairs = table.raw.current().pairs.total() as usize;
    let all: Vec<u64> = keys.into_iter().take(pairs.min(4)).flatten().collect();
    all.iter().for_each(|key| table.insert(*key, *key).unwrap());
    assert!(table.raw.current().next().is_none());
    table.raw.begin_growth(table.raw.current(), 4).unwrap();
    while table.raw.help(table.raw.current(), &table) {}
    assert_eq!(table.bins(), BINS as usize * 4);
    assert!(all.iter().all(|key| table.get(key) == Some(*key)));
    assert_eq!(table.raw.current().singles.used() as usize, 3 * pairs.min(4));
}

#[test]
fn the_hashes_of_a_bin_are_exactly_its_own() {
    for bins in [1, 3, 16, 1000] {
        let table: Table<u64, u64> = Table::with_bins(bins, false, Default::default()).unwrap();
        let index = table.raw.current();
        let mut after = 0;
        for number in 0..bins {
            let (first, last) = index.hashes_of(number);
            assert_eq!((index.number_of(first), index.number_of(last)), (number, number));
            assert_eq!(first, after, "no hash lies between two bins");
            after = last.wrapping_add(1);
        }
        assert_eq!(after, 0, "the last bin ends with the largest hash");
    }
}

/// A hash function that gives a key another hash each time.
#[derive(Default)]
struct Fickle(AtomicU64);

impl std::hash::BuildHasher for Fickle {
    type Hasher = <crate::DefaultHash as std::hash::BuildHasher>::Hasher;
    fn build_hasher(&self) -> Self::Hasher {
        use std::hash::Hasher;
        let mut hasher = crate::DefaultHash::default().build_hasher();
        hasher.write_u64(self.0.fetch_add(1, Ordering::Relaxed));
        hasher
    }
}

#[test]
fn a_hash_function_that_changes_its_mind_breaks_nothing() {
    let count = if cfg!(miri) { 200 } else { 20_000_u64 };
    let value = Arc::new(0);
    let table: Table<u64, Arc<i32>, Fickle> = Table::with_hasher(Fickle::default());
    // One thread first, so that an error is a panic, and no other thread waits for the bin.
    let mut stored =
        (0..count).filter(|key| table.insert(!key, Arc::clone(&value)).is_ok()).count();
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|thread| {
            let (table, value) = (&table, &value);
            scope.spawn(move || {
                let insert = |key| table.insert(key * 2 + thread, Arc::clone(value)).is_ok();
                (0..count).filter(|key| insert(*key)).count()
            })
        });
        stored += threads.into_iter().map(|it| it.join().unwrap()).sum::<usize>();
    });
    assert_eq!(table.iter().count(), stored, "each entry is in one place");
    assert!(table.raw.current().bin_count() > 16, "the table has grown");
    drop(table);
    assert_eq!(Arc::strong_count(&value), 1, "each box is freed once");
}

/// A hash function that panics when a test asks for it.
#[derive(Default, Clone)]
struct Panics(Arc<AtomicU64>);

impl std::hash::BuildHasher for Panics {
    type Hasher = <crate::DefaultHash as std::hash::BuildHasher>::Hasher;
    fn build_hasher(&self) -> Self::Hasher {
        let left = self.0.fetch_sub(1, Ordering::Relaxed);
        assert_ne!(left, 1, "the planned panic");
        crate::DefaultHash::default().build_hasher()
    }
}

#[test]
fn bins_that_were_moved_before_a_panic_count() {
    const ENTRIES: u64 = 60;
    let calls = Arc::new(AtomicU64::new(0));
    let table: Table<u64, u64, Panics> =
        Table::with_bins(40, false, Panics(Arc::clone(&calls))).unwrap();
    (0..ENTRIES).for_each(|key| table.insert(key, key).unwrap());
    let first = table.raw.current();
    table.raw.begin_growth(first, 2).unwrap();
    calls.store(ENTRIES / 2, Ordering::Relaxed);
    let help = || table.raw.help(first, &table);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(help)).is_err());
    let phase = |number: usize| header_of(first.bin(number)).phase();
    assert!((0..40).any(|number| phase(number) == Phase::Open));
    assert!((0..40).any(|number| phase(number) == Phase::Moved));
    // After the other bins were moved too, the old index has ended.
    (0..ENTRIES).for_each(|key| table.raw.make_room(first, table.hash_of(&key), &table).unwrap());
    for number in 0..40 {
        table.raw.make_room(first, first.hashes_of(number).0, &table).unwrap();
    }
    assert_eq!(table.bins(), 80);
    assert!((0..ENTRIES).all(|key| table.get(&key) == Some(key)));
}

#[test]
fn claims_alone_cause_no_growth() {
    const KEY: u64 = 7;
    const THREADS: usize = 14;
    let (stopped, has_stopped) = channel();
    let (stopped, gate) = (Mutex::new(stopped), Arc::new(std::sync::RwLock::new(())));
    let armed = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (own_gate, own_armed) = (Arc::clone(&gate), Arc::clone(&armed));
    let mut table: Table<u64, u64> = Table::with_bins(1, false, Default::default()).unwrap();
    table.raw.plants.hook(move |site| {
        let is_armed = |left: usize| left.checked_sub(1);
        if site == Site::Filled
            && own_armed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_armed).is_ok()
        {
            stopped.lock().unwrap().send(()).unwrap();
            drop(own_gate.read().unwrap());
        }
    });
    table.insert(KEY, 0).unwrap();
    armed.store(THREADS, Ordering::SeqCst);
    let closed = gate.write().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let table = &table;
            scope.spawn(move || assert!(table.insert_or_replace(KEY, thread).unwrap().is_some()));
        }
        (0..THREADS).for_each(|_| has_stopped.recv().unwrap());
        let header = header_of(table.raw.current().bin(0));
        assert_eq!((header.free_slot(), header.present().count_ones()), (None, 1));
        let inserter = scope.spawn(|| table.insert(KEY + 1, 1).unwrap());
        (0..if cfg!(miri) { 100 } else { 10_000 }).for_each(|_| std::thread::yield_now());
        assert!(!inserter.is_finished(), "the insertion waits for a slot");
        assert!(table.raw.current().next().is_none(), "the table does not grow");
        drop(closed);
    });
    assert_eq!((table.bins(), table.len(), table.get(&(KEY + 1))), (1, 2, Some(1)));
    assert!(table.raw.current().next().is_none());
}
