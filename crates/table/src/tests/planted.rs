//! Planted errors, each with the schedule that shows it.
//!
//! Invariant: each schedule passes on the correct table, and fails on the table with the error. Random histories
//! (`history.rs`) and loom's models (`tests/loom.rs`) find the same errors without being given the schedule.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::Table;
use crate::plant::{Plant, Site};

type Pairs = Table<u64, u64>;

const KEY: u64 = 7;

/// Creates a table in which the first operation that comes to the place runs `f` there.
fn with_hook(
    plant: Option<Plant>,
    at: Site,
    f: impl Fn(&Pairs) + Send + Sync + 'static,
) -> Arc<Pairs> {
    let mut table = Table::new();
    let shared: Arc<OnceLock<Weak<Pairs>>> = Arc::default();
    let own = Arc::clone(&shared);
    let is_used = Mutex::new(false);
    table.raw.plants.hook(move |site| {
        let Some(table) = own.get().and_then(Weak::upgrade) else { return };
        if site == at && !std::mem::replace(&mut *is_used.lock().unwrap(), true) {
            f(&table);
        }
    });
    if let Some(plant) = plant {
        table.raw.plants.plant(plant);
    }
    table.insert(KEY, 1).unwrap();
    let table = Arc::new(table);
    shared.set(Arc::downgrade(&table)).unwrap();
    table
}

/// A bin was moved, and the next index has a successor already. Returns the value that a get then sees.
fn get_after_chained_growths(plant: Option<Plant>) -> Option<u64> {
    let mut table: Pairs = Table::new();
    if let Some(plant) = plant {
        table.raw.plants.plant(plant);
    }
    table.insert(KEY, 1).unwrap();
    let first = table.raw.current();
    table.raw.begin_growth(first, 2).unwrap();
    table.raw.make_room(first, table.hash_of(&KEY), &table).unwrap();
    let second = first.next().unwrap();
    table.raw.begin_growth(second, 2).unwrap();
    assert!(second.next().is_some());
    table.get(&KEY)
}

#[test]
fn newest_index_instead_of_the_successor() {
    assert_eq!(get_after_chained_growths(None), Some(1));
    assert_eq!(get_after_chained_growths(Some(Plant::NewestIndex)), None);
}

/// A removal takes effect between the search and the swap of a replacement. Returns both results.
fn replace_beside_remove(plant: Option<Plant>) -> (Option<u64>, Option<u64>) {
    let removed = Arc::new(Mutex::new(None));
    let result = Arc::clone(&removed);
    let table = with_hook(plant, Site::Validated, move |table| {
        *result.lock().unwrap() = table.remove(&KEY);
    });
    let replaced = table.insert_or_replace(KEY, 2).unwrap();
    let removed = *removed.lock().unwrap();
    (replaced, removed)
}

#[test]
fn swap_after_a_removal_has_taken_effect() {
    assert_eq!(replace_beside_remove(None), (None, Some(1)));
    // Both say that they took the value 1 out of the table.
    assert_eq!(replace_beside_remove(Some(Plant::PutInPlace)), (Some(1), Some(1)));
}

/// A slot is recycled by an insertion of the same entry between the search and the swap of an update, and the insertion
/// stops before the header shows it. Returns the update's result, and the value that a get sees in the end.
fn update_beside_recycling(plant: Option<Plant>) -> (Option<u64>, Option<u64>) {
    let (filled, is_filled): (Sender<()>, Receiver<()>) = channel();
    let (go_on, may_go_on): (Sender<()>, Receiver<()>) = channel();
    let (is_filled, may_go_on) = (Mutex::new(is_filled), Mutex::new(may_go_on));
    let mut table: Pairs = Table::new();
    let inserter: Arc<OnceLock<std::thread::ThreadId>> = Arc::default();
    let updater = std::thread::current().id();
    let shared: Arc<OnceLock<Weak<Pairs>>> = Arc::default();
    let (own, own_inserter) = (Arc::clone(&shared), Arc::clone(&inserter));
    let filled = Mutex::new(filled);
    let stage = Mutex::new(0);
    let join: Arc<Mutex<Option<std::thread::JoinHandle<()>>>> = Arc::default();
    let own_join = Arc::clone(&join);
    table.raw.plants.hook(move |site| {
        let (Some(table), me) = (own.get().and_then(Weak::upgrade), std::thread::current().id())
        else {
            return;
        };
        if me == updater
            && site == Site::Validated
            && std::mem::replace(&mut *stage.lock().unwrap(), 1) == 0
        {
            let other = Arc::clone(&table);
            let name = Arc::clone(&own_inserter);
            *own_join.lock().unwrap() = Some(std::thread::spawn(move || {
                assert_eq!(other.remove(&KEY), Some(1));
                name.set(std::thread::current().id()).unwrap();
                other.insert(KEY, 1).unwrap();
            }));
            is_filled.lock().unwrap().recv().unwrap();
        } else if site == Site::Filled && own_inserter.get() == Some(&me) {
            filled.lock().unwrap().send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
        }
    });
    if let Some(plant) = plant {
        table.raw.plants.plant(plant);
    }
    table.insert(KEY, 1).unwrap();
    let table = Arc::new(table);
    shared.set(Arc::downgrade(&table)).unwrap();
    let updated = table.update(&KEY, |_| 2).unwrap();
    go_on.send(()).unwrap();
    join.lock().unwrap().take().unwrap().join().unwrap();
    (updated, table.get(&KEY))
}

#[test]
fn swap_in_the_recycled_slot_of_an_unfinished_insertion() {
    assert_eq!(update_beside_recycling(None), (None, Some(1)));
    // The update says that it found no entry, and yet its value appears.
    assert_eq!(update_beside_recycling(Some(Plant::PutInPlaceThenLook)), (None, Some(2)));
}

/// Two insertions of one key overlap. Returns how many of them succeed, and the number of entries.
fn insertions_of_one_key(plant: Option<Plant>) -> (usize, usize) {
    let other = Arc::new(Mutex::new(false));
    let result = Arc::clone(&other);
    let table = with_hook(plant, Site::Filled, move |table| {
        *result.lock().unwrap() = table.insert(KEY + 1, 2).is_ok();
    });
    let own = table.insert(KEY + 1, 3).is_ok();
    let other = *other.lock().unwrap();
    (usize::from(own) + usize::from(other), table.get_all(&(KEY + 1)).len())
}

#[test]
fn insertion_that_does_not_search_again() {
    assert_eq!(insertions_of_one_key(None), (1, 1));
    assert_eq!(insertions_of_one_key(Some(Plant::BlindConfirm)), (2, 2));
}

#[test]
fn bins_and_lines_are_the_same_after_many_operations() {
    let table: Pairs = Table::with_capacity(1000);
    let rounds = if cfg!(miri) { 50 } else { 1_000_000_u64 };
    churn(&table, 0, 1000.min(rounds), rounds);
}

/// A thousand times the operations of the test above: `cargo test --release -p tarn-table -- --ignored a_billion`.
#[test]
#[ignore = "takes minutes"]
fn a_billion_removals_and_insertions() {
    const ENTRIES: u64 = 100_000;
    // At 1.5 entries in a bin, one insertion of 13 billion finds 15 others in its bin by chance, and the table grows
    // (Poisson). With these keys and room for `ENTRIES` it does so in round 573,410,682.
    let table: Pairs = Table::with_capacity(2 * ENTRIES as usize);
    // Every bin and every line of the pools has been touched after a first part.
    churn(&table, 0, ENTRIES, 100_000_000);
    let before = resident_pages();
    churn(&table, 100_000_000, ENTRIES, 900_000_000);
    let after = resident_pages();
    println!("resident pages: {before:?}, later {after:?}");
    assert!(after <= before.map(|it| it + 64), "{before:?} pages became {after:?}");
}

/// Returns the pages of memory that the process has now; nothing if the system does not say it.
fn resident_pages() -> Option<u64> {
    let line = std::fs::read_to_string("/proc/self/statm").ok()?;
    line.split(' ').nth(1)?.parse().ok()
}

/// Replaces the oldest entry by a new one, again and again: each round is a removal and an insertion. An empty table is
/// filled first.
fn churn(table: &Pairs, first: u64, entries: u64, rounds: u64) {
    if table.is_empty() {
        (first..first + entries).for_each(|key| table.insert(key, key).unwrap());
    }
    let lines = |table: &Pairs| {
        let index = table.raw.current();
        let linked = (0..index.bin_count())
            .map(|it| index.bin(it))
            .filter(|bin| crate::look::header_of(bin).taken() & crate::header::SINGLE_BITS != 0);
        (index.singles.used() as usize, linked.count())
    };
    let bins = table.bins();
    for round in first..first + rounds {
        assert_eq!(table.remove(&round), Some(round));
        table.insert(round + entries, round + entries).unwrap();
    }
    let (used, needed) = lines(table);
    assert_eq!(table.bins(), bins, "the table has grown");
    assert_eq!(used, needed, "a line is linked exactly if it has an entry");
    assert!(table.raw.current().next().is_none());
    assert_eq!(table.iter().count() as u64, entries);
}
