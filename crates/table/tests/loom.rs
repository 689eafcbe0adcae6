//! Models of the header and the link: loom runs each with every interleaving of at most three preemptions, and with
//! every value that a machine with a weaker memory order may return.
//!
//! Run the models with `cargo xtask loom`. In an ordinary build, this file is empty. The models run the table's own
//! code on loom's atomics (`crates/table/src/sync.rs`).
//!
//! Invariant checked: each model passes, and the planted errors that are named beside a model make it fail. The models
//! are bounded: two or three threads, a few operations, and at most three preemptions.

#![cfg(loom)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::Arc;
use loom::thread;
use tarn_table::Table;
use tarn_table::modelled::{Plant, begin_growth, help, move_bin_of, plant, table};

type Pairs = Table<u64, u64>;

const KEY: u64 = 7;
const PREEMPTIONS: usize = 3;

/// Runs a model, and prints the number of its interleavings.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let count = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&count);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 20_000;
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let count = count.load(Ordering::Relaxed);
    println!("{count} interleavings");
    assert!(count > 1, "loom has tried no switch");
}

/// Checks that a model fails with a message that contains a text.
fn finds(text: &str, model: impl Fn() + Send + Sync + 'static) {
    let outcome = catch_unwind(AssertUnwindSafe(|| check(model)));
    let panic = outcome.expect_err("the planted error was not found");
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message.or(panic.downcast_ref::<&str>().copied()).expect("a panic with a text");
    assert!(message.contains(text), "another error was found: {message}");
}

/// A table of one bin with one entry.
fn small(error: Option<Plant>) -> Arc<Pairs> {
    let mut table = table(1);
    if let Some(error) = error {
        plant(&mut table, error);
    }
    table.insert(KEY, 1).unwrap();
    Arc::new(table)
}

/// A replacement beside a removal: exactly one of them gets the old value.
fn replace_beside_remove(error: Option<Plant>) {
    let table = small(error);
    let other = Arc::clone(&table);
    let remover = thread::spawn(move || other.remove(&KEY));
    let replaced = table.insert_or_replace(KEY, 2).unwrap();
    let removed = remover.join().unwrap();
    match (replaced, removed) {
        (Some(1), Some(2)) => assert_eq!(table.get(&KEY), None),
        (None, Some(1)) => assert_eq!(table.get(&KEY), Some(2)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_of_replacement_and_removal_gets_the_old_value() {
    check(|| replace_beside_remove(None));
    finds("(Some(1), Some(1))", || replace_beside_remove(Some(Plant::PutInPlace)));
}

/// An update beside a removal and an insertion of the same entry.
fn update_beside_recycling(error: Option<Plant>) {
    let table = small(error);
    let other = Arc::clone(&table);
    let recycler = thread::spawn(move || {
        assert!(other.remove(&KEY).is_some());
        other.insert(KEY, 1).unwrap();
    });
    let updated = table.update(&KEY, |_| 2).unwrap();
    recycler.join().unwrap();
    match (updated, table.get(&KEY)) {
        // The update came before the removal, or found no entry.
        (Some(1) | None, Some(1)) => {}
        (Some(1), Some(2)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_update_changes_no_recycled_slot() {
    check(|| update_beside_recycling(None));
    // The update swaps, looks, starts again, and takes its own value for the old one.
    finds("(Some(2), Some(2))", || update_beside_recycling(Some(Plant::PutInPlaceThenLook)));
}

/// Two insertions of one key.
fn insert_beside_insert(error: Option<Plant>) {
    let table = small(error);
    let other = Arc::clone(&table);
    let second = thread::spawn(move || other.insert(9, 1).is_ok());
    let first = table.insert(9, 2).is_ok();
    let second = second.join().unwrap();
    assert!(first != second, "exactly one insertion succeeds");
    assert_eq!(table.get(&9), Some(if first { 2 } else { 1 }));
    assert_eq!(table.get_all(&9).len(), 1);
}

#[test]
fn one_of_two_insertions_succeeds() {
    check(|| insert_beside_insert(None));
    finds("exactly one insertion succeeds", || insert_beside_insert(Some(Plant::BlindConfirm)));
}

/// Gets beside the recycling of a slot for another key: each sees its entry, or none. Loom tries no switch in a thread
/// that only loads, if this thread is the model's first one. So the gets have a thread of their own.
fn get_beside_recycling() {
    let table = small(None);
    let other = Arc::clone(&table);
    let reader = thread::spawn(move || (other.get(&KEY), other.get(&8)));
    assert_eq!(table.remove(&KEY), Some(1));
    table.insert(8, 5).unwrap();
    let (old, new) = reader.join().unwrap();
    assert!(matches!(old, Some(1) | None), "{old:?}");
    assert!(matches!(new, Some(5) | None), "{new:?}");
}

#[test]
fn a_get_sees_no_recycled_slot() {
    check(get_beside_recycling);
}

/// A line that a removal empties and gives back, beside an insertion that needs it.
fn unlink_beside_insert() {
    let table = small(None);
    (1..4).for_each(|key| table.insert(key, key).unwrap());
    let other = Arc::clone(&table);
    let remover = thread::spawn(move || assert!(other.remove(&3).is_some()));
    table.insert(20, 20).unwrap();
    remover.join().unwrap();
    for (key, value) in [(KEY, 1), (1, 1), (2, 2), (20, 20)] {
        assert_eq!(table.get(&key), Some(value));
    }
    assert_eq!(table.get(&3), None);
}

#[test]
fn a_line_is_given_back_or_used() {
    check(unlink_beside_insert);
}

/// A growth beside an update and a get.
fn growth_beside_update() {
    let table = small(None);
    begin_growth(&table);
    let other = Arc::clone(&table);
    let mover = thread::spawn(move || while help(&other) {});
    assert_eq!(table.get(&KEY), Some(1));
    assert_eq!(table.insert_or_replace(KEY, 2), Ok(Some(1)));
    assert_eq!(table.get(&KEY), Some(2));
    mover.join().unwrap();
    assert_eq!(table.get(&KEY), Some(2));
}

#[test]
fn a_growth_loses_nothing() {
    check(growth_beside_update);
}

/// An insertion beside a growth that begins.
fn growth_beside_insertion() {
    let table = small(None);
    let other = Arc::clone(&table);
    let mover = thread::spawn(move || {
        begin_growth(&other);
        while help(&other) {}
    });
    table.insert(8, 5).unwrap();
    assert_eq!(table.get(&8), Some(5));
    mover.join().unwrap();
    assert_eq!((table.get(&KEY), table.get(&8)), (Some(1), Some(5)));
}

#[test]
fn an_insertion_beside_a_growth_stays() {
    check(growth_beside_insertion);
}

/// A get while the key's bin moves, and the next index has a successor already.
fn get_beside_chained_growths(error: Option<Plant>) {
    let table = small(error);
    begin_growth(&table);
    begin_growth(&table);
    let other = Arc::clone(&table);
    let reader = thread::spawn(move || other.get(&KEY));
    move_bin_of(&table, KEY);
    assert_eq!(reader.join().unwrap(), Some(1));
    assert_eq!(table.get(&KEY), Some(1));
}

#[test]
fn a_moved_bin_leads_to_the_next_index() {
    check(|| get_beside_chained_growths(None));
    finds("left: None", || get_beside_chained_growths(Some(Plant::NewestIndex)));
}

/// A later growth freezes a bin before an earlier growth has filled it.
fn later_growth_is_first() {
    let table = small(None);
    begin_growth(&table);
    begin_growth(&table);
    let other = Arc::clone(&table);
    let later = thread::spawn(move || while tarn_table::modelled::help_next(&other) {});
    move_bin_of(&table, KEY);
    assert_eq!(table.get(&KEY), Some(1));
    later.join().unwrap();
    assert_eq!(table.remove(&KEY), Some(1));
    assert_eq!(table.get(&KEY), None);
}

#[test]
fn a_later_growth_may_be_first() {
    check(later_growth_is_first);
}

/// Two callers lock one key, and each counts up.
fn lock_beside_lock(error: Option<Plant>) {
    let table = small(error);
    let other = Arc::clone(&table);
    let count_up = |table: &Pairs| {
        let lock = table.lock(KEY).unwrap();
        let next = lock.value().unwrap() + 1;
        lock.commit(next).unwrap();
    };
    let second = thread::spawn(move || count_up(&other));
    count_up(&table);
    second.join().unwrap();
    assert_eq!(table.get(&KEY), Some(3), "both counts stay");
}

#[test]
fn one_caller_at_a_time_has_a_lock() {
    check(|| lock_beside_lock(None));
    finds("both counts stay", || lock_beside_lock(Some(Plant::SharedLock)));
}

/// A replacement beside a lock of its key: it comes before the lock, or waits for the lock's end.
fn replace_beside_lock(error: Option<Plant>) {
    let table = small(error);
    let other = Arc::clone(&table);
    let replacer = thread::spawn(move || other.insert_or_replace(KEY, 5).unwrap());
    let lock = table.lock(KEY).unwrap();
    let value = lock.value();
    assert_eq!(lock.commit(9).unwrap(), value, "a locked key keeps its value");
    match (value, replacer.join().unwrap()) {
        (Some(5), Some(1)) => assert_eq!(table.get(&KEY), Some(9)),
        (Some(1), Some(9)) => assert_eq!(table.get(&KEY), Some(5)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_locked_key_keeps_its_value() {
    check(|| replace_beside_lock(None));
    finds("a locked key keeps its value", || replace_beside_lock(Some(Plant::OverlooksLock)));
}

/// An insertion beside a lock of an absent key. The lock ends without a change.
fn insert_beside_lock_of_absent_key(error: Option<Plant>) {
    let table = small(error);
    let other = Arc::clone(&table);
    let inserter = thread::spawn(move || other.insert(9, 1).is_ok());
    let lock = table.lock(9).unwrap();
    let (value, later) = (lock.value(), lock.value());
    drop(lock);
    assert_eq!(value, later, "a locked key stays absent");
    assert!(inserter.join().unwrap(), "the insertion found an entry");
    assert_eq!(table.get(&9), Some(1));
}

#[test]
fn a_locked_key_stays_absent() {
    check(|| insert_beside_lock_of_absent_key(None));
    finds("a locked key stays absent", || {
        insert_beside_lock_of_absent_key(Some(Plant::OverlooksLock));
    });
}

/// A removal by a lock beside gets of the key: it takes effect at one moment.
fn get_beside_removal_by_lock() {
    let table = small(None);
    let other = Arc::clone(&table);
    let reader = thread::spawn(move || (other.get(&KEY), other.get(&KEY)));
    let lock = table.lock(KEY).unwrap();
    assert_eq!(lock.remove(), Some(1));
    let seen = reader.join().unwrap();
    assert!(matches!(seen, (Some(1), Some(1) | None) | (None, None)), "{seen:?}");
    assert_eq!(table.get(&KEY), None);
    drop(table.try_lock(KEY).unwrap());
}

#[test]
fn a_removal_by_a_lock_is_one_step() {
    check(get_beside_removal_by_lock);
}

/// A growth beside the holder of a lock.
fn growth_beside_lock(error: Option<Plant>) {
    let table = small(error);
    let lock = table.lock(KEY).unwrap();
    begin_growth(&table);
    let other = Arc::clone(&table);
    let mover = thread::spawn(move || while help(&other) {});
    assert_eq!(lock.value(), Some(1));
    let is_locked = table.try_lock(KEY).is_err();
    if error.is_some() {
        // The end of a lost lock would be another panic.
        std::mem::forget(lock);
        mover.join().unwrap();
        assert!(is_locked, "a growth carries the lock along");
        return;
    }
    assert!(is_locked);
    assert_eq!(lock.commit(2), Ok(Some(1)));
    mover.join().unwrap();
    assert_eq!(table.get(&KEY), Some(2));
    drop(table.try_lock(KEY).unwrap());
}

#[test]
fn a_growth_carries_a_lock_along() {
    check(|| growth_beside_lock(None));
    finds("a growth carries the lock along", || growth_beside_lock(Some(Plant::LeavesLock)));
}
