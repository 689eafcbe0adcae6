//! A fuzzer: random operations on a table and on a model, with growths, walks, batches, locks and duplicates.
//!
//! Invariant: the table gives the model's answer to every operation. The model is a map from keys to lists of values. A
//! failure prints the seed, which repeats it: `TARN_TABLE_SEED=N cargo test -p tarn-table --test fuzz ten_minutes --
//! --ignored`.

#![allow(clippy::disallowed_methods, reason = "runs for a given real time")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use tarn_table::{Reason, Request, Table};

/// Entries of a key, at most. Other keys need slots of the same bin, and a replacement needs a free one of the 15.
const DUPLICATES_MAX: usize = 4;
const OPERATIONS: usize = 2000;

/// A key or a value that is made from a number.
trait Made: Clone + Ord + Hash + Debug {
    fn made(number: u64) -> Self;
}

impl Made for u64 {
    fn made(number: u64) -> Self {
        // Zero and all ones are among the values.
        number.wrapping_sub(1)
    }
}

impl Made for u8 {
    fn made(number: u64) -> Self {
        number as u8
    }
}

impl Made for String {
    fn made(number: u64) -> Self {
        number.to_string()
    }
}

type Model<K, V> = BTreeMap<K, Vec<V>>;

struct Case<K, V> {
    table: Table<K, V>,
    model: Model<K, V>,
    random: Xoshiro256PlusPlus,
    keys: u64,
}

impl<K: Made, V: Made> Case<K, V> {
    fn run(seed: u64) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let keys = [3, 50, 5000][random.random_range(0..3)];
        let table = Table::with_capacity(random.random_range(0..200));
        let mut case = Self { table, model: Model::new(), random, keys };
        for _ in 0..OPERATIONS {
            case.step();
        }
        case.compare();
    }

    fn key(&mut self) -> K {
        K::made(self.random.random_range(0..self.keys))
    }

    fn value(&mut self) -> V {
        V::made(self.random.random_range(0..4))
    }

    fn step(&mut self) {
        let (key, value) = (self.key(), self.value());
        let mut values = self.model.remove(&key).unwrap_or_default();
        match self.random.random_range(0..100) {
            0..30 => {
                let stored = self.table.insert(key.clone(), value.clone());
                assert_eq!(stored.is_ok(), values.is_empty());
                if stored.is_ok() {
                    values.push(value);
                }
            }
            30..45 => {
                let old = self.table.insert_or_replace(key.clone(), value.clone()).unwrap();
                assert_eq!(old.is_some(), !values.is_empty());
                take(&mut values, old);
                values.push(value);
            }
            45..65 => {
                let old = self.table.remove(&key);
                assert_eq!(old.is_some(), !values.is_empty());
                take(&mut values, old);
            }
            65..75 => {
                let mut seen = self.table.get_all(&key);
                seen.sort();
                values.sort();
                assert_eq!(seen, values);
            }
            75..80 => self.update(&key, value, &mut values),
            80..85 => {
                let old = if self.random.random() {
                    self.table.remove_if(&key, |it| *it == value)
                } else {
                    self.table.remove_with(&key, |it| (*it == value).then(|| it.clone()))
                };
                // With several entries, the table may look at another one than the model.
                assert!(old.is_none() || values.contains(&value));
                assert!(old.is_some() || values.len() != 1 || values[0] != value);
                take(&mut values, old);
            }
            85..90 => self.lock(&key, value, &mut values),
            90..95 if values.len() < DUPLICATES_MAX => {
                self.table.insert_duplicate(key.clone(), value.clone()).unwrap();
                values.push(value);
            }
            _ => {
                let seen = self.table.batch().get(key.clone()).run();
                let Request::Found(found) = &seen[0] else { panic!("{seen:?}") };
                assert!(found.as_ref().map_or(values.is_empty(), |it| values.contains(it)));
            }
        }
        if !values.is_empty() {
            self.model.insert(key, values);
        }
        if self.random.random_range(0..500) == 0 {
            self.compare();
        }
    }

    fn update(&mut self, key: &K, value: V, values: &mut Vec<V>) {
        let kind = self.random.random_range(0..3);
        if kind == 0 {
            let old = self.table.update_or_insert(key.clone(), value.clone(), |_| value.clone());
            let old = old.unwrap();
            assert_eq!(old.is_some(), !values.is_empty());
            take(values, old);
            values.push(value);
            return;
        }
        let old = if kind == 1 {
            self.table.update(key, |_| value.clone()).unwrap()
        } else {
            let current = self.value();
            match self.table.compare_exchange(key.clone(), &current, value.clone()) {
                Ok(old) => Some(old),
                Err(refused) => {
                    assert_eq!((refused.value, refused.reason), (value, Reason::Different));
                    assert!(values.len() != 1 || values[0] != current);
                    return;
                }
            }
        };
        assert_eq!(old.is_some(), !values.is_empty());
        if old.is_some() {
            take(values, old);
            values.push(value);
        }
    }

    fn lock(&mut self, key: &K, value: V, values: &mut Vec<V>) {
        let lock = self.table.lock(key.clone()).unwrap();
        assert_eq!(self.table.try_lock(key.clone()).unwrap_err(), Reason::Locked);
        assert_eq!(lock.value().is_some(), !values.is_empty());
        match self.random.random_range(0..3) {
            0 => drop(lock),
            1 => take(values, lock.remove()),
            _ => {
                take(values, lock.commit(value.clone()).unwrap());
                values.push(value);
            }
        }
    }

    fn compare(&self) {
        let mut seen: Vec<(K, V)> = self.table.iter().collect();
        let mut expected: Vec<(K, V)> = Vec::new();
        for (key, values) in &self.model {
            expected.extend(values.iter().map(|value| (key.clone(), value.clone())));
        }
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
        assert_eq!(self.table.len(), expected.len());
        let keys: Vec<K> = self.model.keys().cloned().collect();
        assert!(self.table.get_stream(keys).all(|(_, value)| value.is_some()));
    }
}

/// Takes a value out of the model's list.
fn take<V: Made>(values: &mut Vec<V>, old: Option<V>) {
    if let Some(old) = old {
        let at = values.iter().position(|it| *it == old).expect("the value was in the table");
        values.swap_remove(at);
    }
}

fn fuzz(time: Duration, first_seed: u64) -> u64 {
    let begin = Instant::now();
    let mut seed = first_seed;
    while begin.elapsed() < time {
        println!("seed {seed}");
        Case::<u64, u64>::run(seed);
        Case::<u64, String>::run(seed);
        Case::<String, u8>::run(seed);
        Case::<String, String>::run(seed);
        seed += 1;
    }
    seed - first_seed
}

#[test]
fn two_seconds() {
    let seeds = fuzz(Duration::from_secs(2), 1);
    assert!(cfg!(miri) || seeds > 10, "{seeds} seeds");
}

#[test]
#[ignore = "takes ten minutes"]
fn ten_minutes() {
    let seed = std::env::var("TARN_TABLE_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    let seeds = fuzz(Duration::from_secs(600), seed);
    println!("{seeds} seeds");
}
