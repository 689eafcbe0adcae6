//! Every public operation on every form of keys and values.
//!
//! Invariant: the forms (inline, boxed value, boxed key) differ in no answer.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Reason, Request, Table};

/// Runs a check on each form of pairs. Keys and values are made from numbers.
macro_rules! for_each_form {
    ($check:ident) => {
        $check(|key| key, |value| value);
        $check(|key| key, |value: u64| value.to_string());
        $check(|key: u64| format!("key {key}"), |value| value);
        $check(|key: u64| (key, u128::from(key)), |value: u64| vec![value]);
    };
}

#[test]
fn entry_operations() {
    fn check<K, V>(key: fn(u64) -> K, value: fn(u64) -> V)
    where
        K: std::hash::Hash + Eq + Clone + std::fmt::Debug,
        V: Clone + PartialEq + std::fmt::Debug,
    {
        let table = Table::new();
        for at in [0, 1, u64::MAX, 1 << 63] {
            let k = || key(at);
            assert_eq!(table.get_or_insert(k(), value(1)), Ok(value(1)));
            assert_eq!(table.get_or_insert(k(), value(2)), Ok(value(1)));
            assert_eq!(table.compare_exchange(k(), &value(1), value(3)), Ok(value(1)));
            let refused = table.compare_exchange(k(), &value(1), value(4)).unwrap_err();
            assert_eq!((refused.value, refused.reason), (value(4), Reason::Different));
            assert_eq!(
                table.update(&k(), |old| {
                    assert_eq!(*old, value(3));
                    value(5)
                }),
                Ok(Some(value(3)))
            );
            assert_eq!(table.remove_if(&k(), |old| *old != value(5)), None);
            assert!(table.contains_key(&k()));
            assert_eq!(table.get_with(&k(), V::clone), Some(value(5)));
            assert_eq!(table.remove_with(&k(), |_| None::<()>), None);
            assert_eq!(table.remove_with(&k(), |old| Some(old.clone())), Some(value(5)));
            table.insert(k(), value(5)).unwrap();
            assert_eq!(table.remove_if(&k(), |old| *old == value(5)), Some(value(5)));
            assert_eq!(table.update(&k(), V::clone), Ok(None));
            assert_eq!(table.update_or_insert(k(), value(6), |_| unreachable!()), Ok(None));
            let next = table.update_or_insert(k(), value(0), |old| {
                assert_eq!(*old, value(6));
                value(7)
            });
            assert_eq!((next, table.remove(&k())), (Ok(Some(value(6))), Some(value(7))));
            assert_eq!(table.get(&k()), None);
        }
        assert!(table.is_empty());
    }
    for_each_form!(check);
}

#[test]
fn locks_of_keys() {
    fn check<K, V>(key: fn(u64) -> K, value: fn(u64) -> V)
    where
        K: std::hash::Hash + Eq + Clone + std::fmt::Debug,
        V: Clone + PartialEq + std::fmt::Debug,
    {
        let table = Table::new();
        table.insert(key(1), value(1)).unwrap();
        for (at, before) in [(1, Some(value(1))), (2, None)] {
            let lock = table.lock(key(at)).unwrap();
            assert_eq!((table.get(&key(at)), lock.value()), (before.clone(), before.clone()));
            assert_eq!(table.try_lock(key(at)).unwrap_err(), Reason::Locked);
            drop(lock);
            assert_eq!(table.get(&key(at)), before);
            let lock = table.lock(key(at)).unwrap();
            // Growths carry the lock along.
            (100..if cfg!(miri) { 110 } else { 400 })
                .for_each(|it| table.insert(key(it), value(it)).unwrap());
            assert_eq!(table.try_lock(key(at)).unwrap_err(), Reason::Locked);
            assert_eq!(lock.commit(value(7)).unwrap(), before);
            assert_eq!(table.get(&key(at)), Some(value(7)));
            assert_eq!(table.lock(key(at)).unwrap().remove(), Some(value(7)));
            assert_eq!(table.get(&key(at)), None);
            (100..if cfg!(miri) { 110 } else { 400 })
                .for_each(|it| assert_eq!(table.remove(&key(it)), Some(value(it))));
        }
        // A lock that is never dropped leaks its key, and Miri reports leaks.
        let kept = table.lock(key(9)).unwrap();
        if cfg!(miri) { drop(kept) } else { std::mem::forget(kept) }
    }
    for_each_form!(check);
}

#[test]
fn duplicates_fill_one_bin_and_no_more() {
    fn check<K, V>(key: fn(u64) -> K, value: fn(u64) -> V)
    where
        K: std::hash::Hash + Eq + Clone + std::fmt::Debug,
        V: Clone + PartialEq + std::fmt::Debug,
    {
        let table = Table::new();
        for at in 0..15 {
            table.insert_duplicate(key(1), value(at)).unwrap();
        }
        let all = table.get_all(&key(1));
        assert!(all.len() == 15 && (0..15).all(|at| all.contains(&value(at))), "{all:?}");
        let refused = table.insert_duplicate(key(1), value(15)).unwrap_err();
        assert_eq!((refused.value, refused.reason), (value(15), Reason::Collision));
        assert!((0..15).all(|_| table.remove(&key(1)).is_some()));
        assert_eq!((table.get_all(&key(1)), table.len()), (Vec::new(), 0));
    }
    for_each_form!(check);
}

#[test]
fn batches_of_all_sizes() {
    fn check<K, V>(key: fn(u64) -> K, value: fn(u64) -> V)
    where
        K: std::hash::Hash + Eq + Clone + std::fmt::Debug,
        V: Clone + PartialEq + std::fmt::Debug,
    {
        for size in if cfg!(miri) { vec![3, 35] } else { vec![0, 1, 7, 31, 32, 33, 100] } {
            let table = Table::new();
            let mut batch: Vec<_> =
                (0..size).map(|at| Request::Insert(key(at), value(at))).collect();
            table.execute(&mut batch);
            assert!(batch.iter().all(|it| *it == Request::Stored(Ok(None))));
            let keys: Vec<_> = (0..size + 3).map(key).collect();
            let expected: Vec<_> = (0..size + 3).map(|at| (at < size).then(|| value(at))).collect();
            let mut answers = vec![None; keys.len()];
            table.get_many(&keys, &mut answers);
            assert_eq!(answers, expected);
            let stream: Vec<_> = table.get_stream(keys.clone()).collect();
            assert_eq!(stream, keys.into_iter().zip(expected).collect::<Vec<_>>());
            let answers = (0..size).fold(table.batch(), |it, at| {
                it.insert_or_replace(key(at), value(at + 1))
                    .get(key(at))
                    .remove(key(at))
                    .insert(key(at), value(0))
                    .get(key(at))
            });
            for (at, answers) in (0..).zip(answers.run().chunks(5)) {
                let found: Vec<_> = answers.iter().map(|it| it.found().cloned()).collect();
                let expected = [
                    Some(value(at)),
                    Some(value(at + 1)),
                    Some(value(at + 1)),
                    None,
                    Some(value(0)),
                ];
                assert_eq!(found, expected);
            }
        }
    }
    for_each_form!(check);
}

#[test]
fn walks_and_counts() {
    let count = if cfg!(miri) { 100 } else { 10_000 };
    let mut table: Table<u64, String> = (0..count).map(|key| (key, key.to_string())).collect();
    assert_eq!(table.len() as u64, count);
    let mut all: Vec<_> = (&table).into_iter().collect();
    all.sort();
    assert!(
        all.iter()
            .enumerate()
            .all(|(at, (key, value))| *key == at as u64 && *value == key.to_string())
    );
    assert_eq!(all.len() as u64, count);
    let mut seen = 0;
    table.for_each(|_, _| seen += 1);
    assert_eq!(seen, count);
    table.clear();
    assert!(table.is_empty());
    assert_eq!(table.iter().count(), 0);
}

#[test]
fn a_large_table_is_counted_by_samples() {
    let count = if cfg!(miri) { return } else { 300_000_u64 };
    let table: Table<u64, u64> = (0..count).map(|key| (key, key)).collect();
    let error = (table.len() as f64 / count as f64 - 1.0).abs();
    assert!(error < 0.02, "{error}");
}

#[test]
fn every_box_is_freed_once() {
    struct Counted(Arc<AtomicUsize>);
    impl Clone for Counted {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, Ordering::Relaxed);
            Self(Arc::clone(&self.0))
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let live = Arc::new(AtomicUsize::new(0));
    let make = || Counted(Arc::clone(&live)).clone();
    // The first value of `make` is dropped without having been counted.
    live.fetch_add(0, Ordering::Relaxed);
    let table = Table::new();
    let mut made = 0;
    for key in 0..if cfg!(miri) { 20 } else { 300_u64 } {
        assert!(table.insert(key, make()).is_ok());
        assert!(table.insert(key, make()).is_err());
        assert!(table.insert_or_replace(key, make()).is_ok());
        table.update(&key, |_| make()).unwrap();
        table.update_or_insert(key, make(), |_| make()).unwrap();
        made += 6;
    }
    (0..10).for_each(|key| drop(table.remove(&key)));
    (10..15).for_each(|key| assert!(table.remove_with(&key, |_| Some(())).is_some()));
    drop(table);
    // Each `make` drops a value that was not counted.
    assert_eq!(live.load(Ordering::Relaxed) as isize, -made as isize);
}

#[test]
fn a_table_may_hold_values_of_one_thread() {
    let table = Table::new();
    let shared = Rc::new(Cell::new(1));
    table.insert(1, Rc::clone(&shared)).unwrap();
    table.get_with(&1, |value| value.set(2));
    assert_eq!(shared.get(), 2);
    let word = 7_u64;
    let references: Table<&u64, &u64> = Table::new();
    references.insert(&word, &word).unwrap();
    assert_eq!(references.get(&7), Some(&word));
}

#[test]
fn weak_hashes_are_an_error_and_not_a_loop() {
    #[derive(Clone, Default)]
    struct Constant;
    impl std::hash::BuildHasher for Constant {
        type Hasher = Constant;
        fn build_hasher(&self) -> Self {
            Constant
        }
    }
    impl std::hash::Hasher for Constant {
        fn finish(&self) -> u64 {
            3
        }
        fn write(&mut self, _bytes: &[u8]) {}
    }
    let table = Table::with_hasher(Constant);
    (0..15).for_each(|key| table.insert(key, key).unwrap());
    let refused = table.insert(15, 15).unwrap_err();
    assert_eq!(refused.reason, Reason::Collision);
    assert!((0..15).all(|key| table.get(&key) == Some(key)));
    // A full bin has no room for a replacement either, and says so.
    assert_eq!(table.insert_or_replace(3, 9).unwrap_err().reason, Reason::Collision);
    assert_eq!(table.update_or_insert(16, 0, |_| 0), Err(Reason::Collision));
    assert_eq!(table.remove(&3), Some(3));
    table.insert(15, 15).unwrap();
}

#[test]
fn send_and_sync_follow_the_types() {
    fn is_send<T: Send>() {}
    fn is_sync<T: Sync>() {}
    is_send::<Table<u64, Cell<u64>>>();
    is_sync::<Table<u64, String>>();
    is_send::<crate::Iter<'_, u64, String, crate::DefaultHash>>();
}

#[cfg(feature = "serde")]
#[test]
fn a_table_survives_json() {
    let table: Table<String, u64> = (0..50).map(|key| (key.to_string(), key)).collect();
    let text = serde_json::to_string(&table).unwrap();
    let back: Table<String, u64> = serde_json::from_str(&text).unwrap();
    assert_eq!(back.len(), 50);
    assert!(table.iter().all(|(key, value)| back.get(&key) == Some(value)));
}

#[cfg(feature = "rayon")]
#[test]
fn threads_walk_a_table_together() {
    use rayon::iter::{IntoParallelIterator, ParallelIterator};
    let table: Table<u64, u64> = (0..20_000_u64).into_par_iter().map(|key| (key, key)).collect();
    assert_eq!(table.par_iter().map(|(key, _)| key).sum::<u64>(), 20_000 * 19_999 / 2);
}
