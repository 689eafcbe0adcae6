//! Tests that compare the lock table with a map of holders, and run it under real threads.
//!
//! Invariants checked: a lock has one writer or readers. A refused lock has a holder. Released locks leave no used
//! slot and no used spill bucket. The tests detect the two ways in which the paper's text breaks these invariants.

use super::bucket::{READERS_MAX, SLOTS};
use super::name::{LockMode, LockName};
use super::table::{Bits, LockTable, Place};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Creates a table with so few buckets that most names share a bucket.
fn small(bits: Bits) -> LockTable {
    LockTable::new(2 * 64, bits).unwrap()
}

fn hash(key: u64) -> u64 {
    LockName::row(3, key).hash()
}

#[derive(Clone, Debug)]
enum Step {
    Acquire { key: u64, mode: LockMode },
    Upgrade { nth: usize },
    Release { nth: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let mode = prop_oneof![Just(LockMode::Read), Just(LockMode::Write)];
    let step = prop_oneof![
        5 => (0..40u64, mode).prop_map(|(key, mode)| Step::Acquire { key, mode }),
        1 => (0..100usize).prop_map(|nth| Step::Upgrade { nth }),
        3 => (0..100usize).prop_map(|nth| Step::Release { nth }),
    ];
    prop::collection::vec(step, 0..300)
}

/// Executes the steps on a lock table and on a map of holds, and compares the table with the map.
fn play(bits: Bits, steps: &[Step]) {
    let table = small(bits);
    let mut holds: Vec<(u64, LockMode, Place)> = Vec::new();
    let mut writes: BTreeMap<u64, u32> = BTreeMap::new();
    for step in steps {
        let written = Cell::new(false);
        match *step {
            Step::Acquire { key, mode } => {
                let wanted = |held: &&(u64, LockMode, Place)| {
                    held.0 == key && (mode == LockMode::Write || held.1 == LockMode::Write)
                };
                let may = holds.iter().find(wanted).is_none();
                let place = table.acquire(hash(key), mode, || written.set(true));
                assert_eq!(place.is_some(), may, "{step:?} of {holds:?}");
                holds.extend(place.map(|place| (key, mode, place)));
                assert_eq!(written.get(), may && mode == LockMode::Write);
                *writes.entry(key).or_default() += u32::from(written.get());
            }
            Step::Upgrade { nth } if !holds.is_empty() => {
                let nth = nth % holds.len();
                let (key, mode, place) = holds[nth];
                let alone = holds.iter().filter(|held| held.0 == key).count() == 1;
                let may = mode == LockMode::Read && alone;
                assert_eq!(table.upgrade(place, hash(key), || written.set(true)), may);
                holds[nth].1 = if may { LockMode::Write } else { mode };
                *writes.entry(key).or_default() += u32::from(written.get());
            }
            Step::Release { nth } if !holds.is_empty() => {
                let (key, mode, place) = holds.swap_remove(nth % holds.len());
                table.release(place, mode, || hash(key));
            }
            _ => {}
        }
        let mut keys: Vec<u64> = holds.iter().map(|held| held.0).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(table.held(), keys.len());
    }
    let counted = |home: u64| {
        let there = writes.iter().filter(|(key, _)| hash(**key) % 2 == home);
        there.map(|(_, count)| count).sum::<u32>()
    };
    for key in 0..2u64 {
        let name = (0..).find(|&it| hash(it) % 2 == key).expect("some key lies there");
        assert_eq!(table.count(hash(name)), counted(key));
    }
    for (key, mode, place) in holds.drain(..) {
        table.release(place, mode, || hash(key));
    }
    assert_eq!((table.held(), table.spilled(), table.digest()), (0, 0, 0));
}

proptest! {
    #[test]
    fn a_table_grants_as_a_map_of_holds_does(steps in steps()) {
        play(Bits::Alone, &steps);
        play(Bits::Shared, &steps);
    }
}

#[test]
fn a_bucket_holds_more_keys_at_once_than_it_has_slots() {
    for bits in [Bits::Alone, Bits::Shared] {
        let table = small(bits);
        let keys = 0..12 * SLOTS as u64;
        let write = |key| table.acquire(hash(key), LockMode::Write, || {});
        let held: Vec<Place> = keys.clone().map(|key| write(key).expect("spilled")).collect();
        assert!(table.spilled() >= 10, "{}", table.spilled());
        assert!(keys.clone().all(|key| write(key).is_none()), "all are held");
        for (key, place) in keys.zip(held) {
            table.release(place, LockMode::Write, || hash(key));
        }
        assert_eq!((table.held(), table.spilled()), (0, 0));
    }
}

#[test]
fn a_table_that_is_full_refuses_and_goes_on() {
    let table = small(Bits::Shared);
    let (keys, spills) = (0..10_000u64, 16);
    let write = |key| table.acquire(hash(key), LockMode::Write, || {}).map(|place| (key, place));
    let held: Vec<(u64, Place)> = keys.filter_map(write).collect();
    assert_eq!(held.len(), SLOTS * (2 + spills));
    assert_eq!(table.spilled(), spills);
    for (key, place) in held {
        table.release(place, LockMode::Write, || hash(key));
    }
    assert_eq!((table.held(), table.spilled()), (0, 0));
    assert!(write(10_001).is_some());
}

#[test]
fn readers_are_counted_to_their_limit() {
    for bits in [Bits::Alone, Bits::Shared] {
        let table = small(bits);
        let read = || table.acquire(hash(1), LockMode::Read, || unreachable!());
        let held: Vec<Place> = (0..READERS_MAX).map(|_| read().expect("below")).collect();
        assert_eq!(read(), None);
        assert_eq!(table.acquire(hash(1), LockMode::Write, || unreachable!()), None);
        for place in held {
            table.release(place, LockMode::Read, || hash(1));
        }
        assert!(table.acquire(hash(1), LockMode::Write, || {}).is_some());
    }
}

#[test]
fn a_table_read_before_a_write_grant_is_not_remembered() {
    for bits in [Bits::Alone, Bits::Shared] {
        let table = small(bits);
        let kept = Cell::new(0);
        let keep = |count| table.keep(hash(1), count, || kept.set(kept.get() + 1));
        let before = table.count(hash(1));
        assert!(keep(before));
        let place = table.acquire(hash(1), LockMode::Write, || {}).unwrap();
        assert!(!keep(before) && !keep(table.count(hash(1))), "while it is written");
        table.release(place, LockMode::Write, || hash(1));
        assert!(!keep(before) && keep(table.count(hash(1))));
        let place = table.acquire(hash(1), LockMode::Read, || {}).unwrap();
        assert!(keep(table.count(hash(1))), "readers do not change it");
        table.release(place, LockMode::Read, || hash(1));
        assert_eq!(kept.get(), 3);
    }
}

#[test]
fn an_impossible_size_is_refused() {
    for bytes in [0, 63, u64::MAX] {
        let error = LockTable::new(bytes, Bits::Alone).err().expect("refused");
        let text = format!("lock_table_bytes = {bytes}; allowed: 64 to 17179869184");
        assert_eq!(error.to_string(), text);
    }
}

/// A lock table whose threads lock keys of one bucket. One word for each key counts the key's holders: writers in the
/// upper half, readers in the lower half.
struct Watched {
    table: LockTable,
    states: Vec<AtomicU64>,
    broken: AtomicBool,
}

const A_WRITER: u64 = 1 << 32;

impl Watched {
    fn new(bits: Bits, keys: u64) -> Watched {
        let states = (0..keys).map(|_| AtomicU64::new(0)).collect();
        Watched { table: LockTable::new(64, bits).unwrap(), states, broken: AtomicBool::new(false) }
    }

    /// Takes and releases one lock. Returns `false` after any thread has seen two holders that must exclude each
    /// other.
    fn hold(&self, key: u64, mode: LockMode) -> bool {
        let Some(place) = self.table.acquire(hash(key), mode, || {}) else {
            return !self.broken.load(Ordering::SeqCst);
        };
        let (state, mine) = match mode {
            LockMode::Write => (&self.states[key as usize], A_WRITER),
            LockMode::Read => (&self.states[key as usize], 1),
        };
        let before = state.fetch_add(mine, Ordering::SeqCst);
        let wrong = before >= A_WRITER
            || (mode == LockMode::Write && before != 0)
            || !self.table.is_at(place, hash(key));
        if wrong {
            self.broken.store(true, Ordering::SeqCst);
        }
        (0..before % 3 + key % 5).for_each(|_| std::hint::spin_loop());
        // After an error, a thread releases no lock, because the slots may belong to other holders.
        if self.broken.load(Ordering::SeqCst) {
            return false;
        }
        state.fetch_sub(mine, Ordering::SeqCst);
        self.table.release(place, mode, || hash(key));
        true
    }

    /// Runs threads that draw random keys and modes. Returns whether no thread saw an error.
    fn run(&self, threads: u64, tries: u64) -> bool {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    let mut drawn = thread + 1;
                    for _ in 0..tries {
                        drawn = tarn_fabric::rng::mix(drawn.wrapping_add(0x9e37_79b9));
                        let key = drawn % self.states.len() as u64;
                        let reads = (drawn >> 32) % 3 > 0;
                        let mode = if reads { LockMode::Read } else { LockMode::Write };
                        if !self.hold(key, mode) {
                            return;
                        }
                    }
                });
            }
        });
        !self.broken.load(Ordering::SeqCst)
    }
}

#[test]
fn threads_never_hold_a_lock_against_one_another() {
    for keys in [1, 4, 20] {
        let watched = Watched::new(Bits::Shared, keys);
        assert!(watched.run(4, 30_000), "{keys} keys");
        assert_eq!((watched.table.held(), watched.table.spilled()), (0, 0));
    }
}

/// Tests two bugs of the paper's text. In the first bug, a thread finds a free slot and claims it without a bit. In
/// the second bug, a reader loads the slot twice. An assertion of the table may detect the bug before the test's
/// counts do.
#[test]
fn both_wrong_grants_that_the_paper_allows_are_noticed() {
    for bits in [Bits::PlantedNoBit, Bits::PlantedTwoLoads] {
        let run = || Watched::new(bits, 4).run(4, 100_000);
        let noticed = (0..20).any(|_| !std::panic::catch_unwind(run).unwrap_or(false));
        assert!(noticed, "{bits:?} was not noticed");
    }
}
