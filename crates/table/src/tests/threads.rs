//! Threads that share a table, with growths beside them.
//!
//! Invariant: no entry is lost or seen under two values.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::Table;

#[test]
fn threads_insert_and_remove_their_own_keys() {
    let table = Table::with_capacity(10);
    let count = if cfg!(miri) { 20 } else { 50_000_u64 };
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..3 {
                    for key in (0..count).map(|it| it * 4 + thread) {
                        table.insert(key, key + round).unwrap();
                        assert_eq!(table.get(&key), Some(key + round));
                    }
                    for key in (0..count).map(|it| it * 4 + thread) {
                        assert_eq!(
                            table.insert_or_replace(key, key + 9).unwrap(),
                            Some(key + round)
                        );
                    }
                    for key in (0..count).map(|it| it * 4 + thread) {
                        assert_eq!(table.remove(&key), Some(key + 9), "round {round}");
                    }
                }
            });
        }
    });
}

#[test]
fn threads_fight_for_boxed_entries() {
    let table = Table::with_capacity(10);
    let rounds = if cfg!(miri) { 30 } else { 30_000_u64 };
    // The entries of all keys, by the answers of the operations.
    let entries = AtomicI64::new(0);
    let is_known = |key: &str, value: &str| {
        let rest = value.strip_prefix(key).and_then(|it| it.strip_prefix(" of "));
        matches!(rest, Some("0" | "1" | "2" | "3"))
    };
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (table, entries) = (&table, &entries);
            scope.spawn(move || {
                for round in 0..rounds {
                    let key = format!("{}", round * 31 % 97);
                    let value = format!("{key} of {thread}");
                    let (change, seen) = match (round + thread) % 4 {
                        0 => (i64::from(table.insert(key.clone(), value).is_ok()), None),
                        1 => {
                            let old = table.insert_or_replace(key.clone(), value).unwrap();
                            (i64::from(old.is_none()), old)
                        }
                        2 => {
                            let old = table.remove(&key);
                            (-i64::from(old.is_some()), old)
                        }
                        _ => (0, table.get(&key)),
                    };
                    entries.fetch_add(change, Ordering::Relaxed);
                    assert!(seen.is_none_or(|value| is_known(&key, &value)), "key {key}");
                }
            });
        }
    });
    assert_eq!(table.iter().count() as i64, entries.into_inner());
    assert!(table.iter().all(|(key, value)| is_known(&key, &value)));
}

#[test]
fn no_increment_is_lost() {
    let table: Table<u64, u64> = Table::new();
    (0..3).for_each(|key| table.insert(key, 0).unwrap());
    let rounds = if cfg!(miri) { 10 } else { 5_000 };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    table.update(&0, |count| count + 1).unwrap();
                    table.update_or_insert(3, 1, |count| count + 1).unwrap();
                    let lock = table.lock(1).unwrap();
                    let next = lock.value().unwrap() + 1;
                    lock.commit(next).unwrap();
                    let mut current = table.get(&2).unwrap();
                    while let Err(refused) = table.compare_exchange(2, &current, current + 1) {
                        assert_eq!(refused.reason, crate::Reason::Different);
                        current = table.get(&2).unwrap();
                    }
                }
            });
        }
        // Growths beside the increments carry locks and entries along.
        (10..2000).for_each(|key| table.insert(key, key).unwrap());
    });
    (0..4).for_each(|key| assert_eq!(table.get(&key), Some(4 * rounds), "key {key}"));
}
