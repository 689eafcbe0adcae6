//! The tables that are compared, behind one trait.
//!
//! Invariant: all tables have the same hasher and are made for the same number of entries. Each is called in the way
//! that its authors advise for many calls: papaya's guard, for example, is taken once for many operations.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::RwLock;

use tarn_table::{DefaultHash, Table};

/// The operations between two guards of a table that needs guards.
pub const GUARD_EVERY: usize = 64;

/// A concurrent map from 8 bytes to 8 bytes.
pub trait Rival: Sync + Sized {
    /// The name in the report.
    const NAME: &'static str;

    /// Creates a table for a number of entries.
    fn with_capacity(entries: usize) -> Self;

    /// Gets the values of all keys, and returns how many there are, with a sum of the values.
    fn get_all(&self, keys: impl Iterator<Item = u64>) -> (u64, u64);

    /// Calls each operation in order, and returns how many had an effect.
    fn run(&self, steps: impl Iterator<Item = Step>) -> u64;
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// Get a value.
    Get(u64),
    /// Insert an entry.
    Insert(u64, u64),
    /// Replace a value.
    Put(u64, u64),
    /// Remove an entry.
    Remove(u64),
}

impl Step {
    /// Calls the function for this kind of operation.
    #[inline(always)]
    fn apply(
        self,
        get: impl FnOnce(u64) -> bool,
        insert: impl FnOnce(u64, u64) -> bool,
        put: impl FnOnce(u64, u64) -> bool,
        remove: impl FnOnce(u64) -> bool,
    ) -> u64 {
        u64::from(match self {
            Self::Get(key) => get(key),
            Self::Insert(key, value) => insert(key, value),
            Self::Put(key, value) => put(key, value),
            Self::Remove(key) => remove(key),
        })
    }
}

#[inline(always)]
fn count(values: impl Iterator<Item = Option<u64>>) -> (u64, u64) {
    values.fold((0, 0), |(found, sum), value| {
        (found + u64::from(value.is_some()), sum.wrapping_add(value.unwrap_or(0)))
    })
}

impl Rival for Table<u64, u64> {
    const NAME: &'static str = "tarn-table";

    fn with_capacity(entries: usize) -> Self {
        Table::with_capacity(entries)
    }

    fn get_all(&self, keys: impl Iterator<Item = u64>) -> (u64, u64) {
        count(keys.map(|key| self.get(&key)))
    }

    fn run(&self, steps: impl Iterator<Item = Step>) -> u64 {
        let one = |step: Step| {
            step.apply(
                |key| self.get(&key).is_some(),
                |key, value| self.insert(key, value).is_ok(),
                |key, value| self.insert_or_replace(key, value).is_ok(),
                |key| self.remove(&key).is_some(),
            )
        };
        steps.map(one).sum()
    }
}

/// papaya's map.
pub type Papaya = papaya::HashMap<u64, u64, DefaultHash>;

impl Rival for Papaya {
    const NAME: &'static str = "papaya";

    fn with_capacity(entries: usize) -> Self {
        papaya::HashMap::with_capacity_and_hasher(entries, DefaultHash::default())
    }

    fn get_all(&self, keys: impl Iterator<Item = u64>) -> (u64, u64) {
        let pinned = self.pin();
        count(keys.map(|key| pinned.get(&key).copied()))
    }

    fn run(&self, mut steps: impl Iterator<Item = Step>) -> u64 {
        let mut done = 0;
        loop {
            let pinned = self.pin();
            let mut taken = 0;
            for step in steps.by_ref().take(GUARD_EVERY) {
                taken += 1;
                done += step.apply(
                    |key| pinned.get(&key).is_some(),
                    |key, value| pinned.insert(key, value).is_none(),
                    |key, value| pinned.insert(key, value).is_some(),
                    |key| pinned.remove(&key).is_some(),
                );
            }
            if taken < GUARD_EVERY {
                return done;
            }
        }
    }
}

/// dashmap's map.
pub type Dash = dashmap::DashMap<u64, u64, DefaultHash>;

impl Rival for Dash {
    const NAME: &'static str = "dashmap";

    fn with_capacity(entries: usize) -> Self {
        dashmap::DashMap::with_capacity_and_hasher(entries, DefaultHash::default())
    }

    fn get_all(&self, keys: impl Iterator<Item = u64>) -> (u64, u64) {
        count(keys.map(|key| self.get(&key).map(|value| *value)))
    }

    fn run(&self, steps: impl Iterator<Item = Step>) -> u64 {
        let one = |step: Step| {
            step.apply(
                |key| self.get(&key).is_some(),
                |key, value| self.insert(key, value).is_none(),
                |key, value| self.insert(key, value).is_some(),
                |key| self.remove(&key).is_some(),
            )
        };
        steps.map(one).sum()
    }
}

/// scc's map.
pub type Scc = scc::HashMap<u64, u64, DefaultHash>;

impl Rival for Scc {
    const NAME: &'static str = "scc";

    fn with_capacity(entries: usize) -> Self {
        scc::HashMap::with_capacity_and_hasher(entries, DefaultHash::default())
    }

    fn get_all(&self, keys: impl Iterator<Item = u64>) -> (u64, u64) {
        count(keys.map(|key| self.read_sync(&key, |_, value| *value)))
    }

    fn run(&self, steps: impl Iterator<Item = Step>) -> u64 {
        let one = |step: Step| {
            step.apply(
                |key| self.read_sync(&key, |_, value| *value).is_some(),
                |key, value| self.insert_sync(key, value).is_ok(),
                |key, value| self.upsert_sync(key, value).is_some(),
                |key| self.remove_sync(&key).is_some(),
            )
        };
        steps.map(one).sum()
    }
}

/// The standard library's map, in shards with a lock each.
pub struct Shards {
    shards: Vec<RwLock<HashMap<u64, u64, DefaultHash>>>,
    hasher: DefaultHash,
}

/// The number of shards, as many as dashmap would have on 64 processors.
const SHARDS: usize = 256;

impl Shards {
    fn shard(&self, key: u64) -> &RwLock<HashMap<u64, u64, DefaultHash>> {
        // The map uses the high bits and the low bits of the hash, so the shard is chosen by bits between them.
        &self.shards[(self.hasher.hash_one(key) >> 40) as usize % SHARDS]
    }
}

impl Rival for Shards {
    const NAME: &'static str = "std, 256 locks";

    fn with_capacity(entries: usize) -> Self {
        let shard = || {
            let room = entries / SHARDS + entries / SHARDS / 16;
            RwLock::new(HashMap::with_capacity_and_hasher(room, DefaultHash::default()))
        };
        Self { shards: (0..SHARDS).map(|_| shard()).collect(), hasher: DefaultHash::default() }
    }

    fn get_all(&self, keys: impl Iterator<Item = u64>) -> (u64, u64) {
        let get = |key| self.shard(key).read().expect("no panic").get(&key).copied();
        count(keys.map(get))
    }

    fn run(&self, steps: impl Iterator<Item = Step>) -> u64 {
        let one = |step: Step| {
            step.apply(
                |key| self.shard(key).read().expect("no panic").contains_key(&key),
                |key, value| {
                    self.shard(key).write().expect("no panic").insert(key, value).is_none()
                },
                |key, value| {
                    self.shard(key).write().expect("no panic").insert(key, value).is_some()
                },
                |key| self.shard(key).write().expect("no panic").remove(&key).is_some(),
            )
        };
        steps.map(one).sum()
    }
}
