//! Histories of real threads, judged by a checker that other authors wrote.
//!
//! Invariant: a history has the operations on one key, because linearizability of all keys together follows from that
//! of each (Herlihy, Wing, "Linearizability", TOPLAS 1990, section 3.3). Times are draws from one counter. The threads
//! give their processor away at random places, so that operations overlap on few processors too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

use crate::Table;
use crate::plant::Plant;

const THREADS: usize = 3;
const OPERATIONS: usize = 12;
const KEYS: u64 = 2;
/// Few values, so that an entry often returns with the same bits.
const VALUES: u64 = 3;

/// An operation on one key, with its result.
#[derive(Debug, Clone)]
enum Operation {
    Get(Option<u64>),
    Insert(u64, bool),
    Replace(u64, Option<u64>),
    Update(u64, Option<u64>),
    Remove(Option<u64>),
}

struct Cell;

impl Specification for Cell {
    type State = Option<u64>;
    type Operation = Operation;

    fn init() -> Self::State {
        None
    }

    fn apply(operation: &Operation, state: &Self::State) -> (bool, Self::State) {
        match operation {
            Operation::Get(seen) => (seen == state, *state),
            Operation::Insert(value, true) => (state.is_none(), Some(*value)),
            Operation::Insert(_, false) => (state.is_some(), *state),
            Operation::Replace(value, old) => (old == state, Some(*value)),
            Operation::Update(value, old) => (old == state, state.and(Some(*value))),
            Operation::Remove(old) => (old == state, None),
        }
    }
}

type Event = (u64, usize, Action<Operation>);

/// Runs threads on a small table, and returns the events of each key.
fn record(plant: Option<Plant>, grows: bool, seed: u64) -> Vec<Vec<Event>> {
    // A growth of many bins takes long, so that operations meet moved bins.
    let bins = if grows { 64 } else { 1 };
    let mut table: Table<u64, u64> = Table::with_bins(bins, false, Default::default()).unwrap();
    let draws = AtomicU64::new(seed);
    table.raw.plants.hook(move |_| {
        let draw = draws.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        if (draw ^ draw >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 62 == 0 {
            std::thread::yield_now();
        }
    });
    if let Some(plant) = plant {
        table.raw.plants.plant(plant);
    }
    let clock = AtomicU64::new(0);
    let events: Vec<Mutex<Vec<Event>>> = (0..KEYS).map(|_| Mutex::default()).collect();
    let start = std::sync::Barrier::new(THREADS + usize::from(grows));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, clock, events, start) = (&table, &clock, &events, &start);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed * 100 + thread as u64);
                start.wait();
                for _ in 0..OPERATIONS {
                    let key = random.random_range(0..KEYS);
                    let value = random.random_range(0..VALUES);
                    let begin = clock.fetch_add(1, Ordering::SeqCst);
                    let operation = match random.random_range(0..6) {
                        0 => Operation::Get(table.get(&key)),
                        1 | 2 => Operation::Insert(value, table.insert(key, value).is_ok()),
                        3 => {
                            Operation::Replace(value, table.insert_or_replace(key, value).unwrap())
                        }
                        4 => Operation::Update(value, table.update(&key, |_| value).unwrap()),
                        _ => Operation::Remove(table.remove(&key)),
                    };
                    let end = clock.fetch_add(1, Ordering::SeqCst);
                    let mut events = events[key as usize].lock().unwrap();
                    events.push((begin, thread, Action::Call(operation.clone())));
                    events.push((end, thread, Action::Response(operation)));
                }
            });
        }
        if grows {
            scope.spawn(|| grow(&table, &start));
        }
    });
    let sorted = |events: Mutex<Vec<Event>>| {
        let mut events = events.into_inner().unwrap();
        events.sort_by_key(|event| event.0);
        events
    };
    events.into_iter().map(sorted).collect()
}

/// Begins several growths, of which the later ones begin before the earlier ones end.
fn grow(table: &Table<u64, u64>, start: &std::sync::Barrier) {
    start.wait();
    for _ in 0..3 {
        let first = table.raw.current();
        let mut newest = first;
        while let Some(next) = newest.next() {
            newest = next;
        }
        table.raw.begin_growth(newest, 2).unwrap();
        std::thread::yield_now();
        table.raw.help(first.next().unwrap_or(first), table);
        std::thread::yield_now();
        table.raw.help(first, table);
    }
}

fn is_linearizable(events: Vec<Event>) -> bool {
    let actions: Vec<_> = events.into_iter().map(|(_, thread, action)| (thread, action)).collect();
    actions.is_empty() || WGLChecker::<Cell>::is_linearizable(History::from_actions(actions))
}

/// Returns the first of several seeds whose history is not linearizable.
fn first_violation(plant: Option<Plant>, grows: bool, seeds: u64) -> Option<u64> {
    (1..=seeds).find(|seed| !record(plant, grows, *seed).into_iter().all(is_linearizable))
}

#[test]
fn histories_are_linearizable() {
    let seeds = if cfg!(miri) { 3 } else { 1000 };
    assert_eq!(first_violation(None, false, seeds), None);
    // With growths a history takes ten times as long.
    assert_eq!(first_violation(None, true, seeds / 10), None);
}

/// The seeds after which a planted error must have been found.
const SEEDS_MAX: u64 = 20_000;

#[test]
#[cfg_attr(miri, ignore = "takes Miri hours")]
fn planted_errors_are_found_by_histories() {
    for (plant, grows) in [
        (Plant::PutInPlace, false),
        (Plant::PutInPlaceThenLook, false),
        (Plant::BlindConfirm, false),
        (Plant::NewestIndex, true),
    ] {
        let found = first_violation(Some(plant), grows, SEEDS_MAX);
        println!("{plant:?}: seed {found:?}");
        assert!(found.is_some(), "{plant:?} was not found");
    }
}
