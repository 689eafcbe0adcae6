//! Short names for the values of a search: equal values have one number.
//!
//! Invariant: two values of a table have the same number if and only if they are equal. Threads share the tables; each thread keeps a copy
//! of the list, so that it looks a number up without waiting.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// A hash of 64 bits, by multiplication and folding.
#[derive(Clone, Copy)]
pub(super) struct Mix(u64);

impl Default for Mix {
    fn default() -> Mix {
        Mix(0x243f_6a88_85a3_08d3)
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
        self.0 = (product as u64) ^ (product >> 64) as u64 ^ word.rotate_left(32);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        let mut last = *self;
        last.write_u64(0x1319_8a2e_0370_7344);
        last.0
    }
}

/// A map with this hash.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// The values of one kind.
pub(super) struct Table<T> {
    all: Mutex<Listed<T>>,
}

/// Values with their numbers, and in the order of their numbers.
type Listed<T> = (Map<Arc<T>, u32>, Vec<Arc<T>>);

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { all: Mutex::default() }
    }
}

/// A thread's copy of a table, with facts that it has worked out about each value.
pub(super) struct Names<'a, T, F> {
    table: &'a Table<T>,
    values: Vec<(Arc<T>, F)>,
    facts: Box<dyn Fn(&T) -> F + 'a>,
}

impl<'a, T: Eq + Hash, F> Names<'a, T, F> {
    pub(super) fn new(table: &'a Table<T>, facts: impl Fn(&T) -> F + 'a) -> Names<'a, T, F> {
        Names { table, values: Vec::new(), facts: Box::new(facts) }
    }

    /// The number of a value.
    pub(super) fn id(&mut self, value: T) -> u32 {
        let mut all = self.table.all.lock().unwrap_or_else(PoisonError::into_inner);
        let (ids, values) = &mut *all;
        let id = match ids.get(&value) {
            Some(id) => *id,
            None => {
                let id = u32::try_from(values.len()).expect("fewer than 2^32 values");
                let value = Arc::new(value);
                ids.insert(Arc::clone(&value), id);
                values.push(value);
                id
            }
        };
        let known = self.values.len();
        let facts = &self.facts;
        self.values.extend(values[known..].iter().map(|it| (Arc::clone(it), facts(it))));
        id
    }

    fn know(&mut self, id: u32) {
        if self.values.len() <= id as usize {
            let all = self.table.all.lock().unwrap_or_else(PoisonError::into_inner);
            let known = self.values.len();
            let facts = &self.facts;
            self.values.extend(all.1[known..].iter().map(|it| (Arc::clone(it), facts(it))));
        }
    }

    /// The value with this number.
    #[inline]
    pub(super) fn value(&mut self, id: u32) -> &Arc<T> {
        self.know(id);
        &self.values[id as usize].0
    }

    /// The facts about the value with this number.
    #[inline]
    pub(super) fn facts(&mut self, id: u32) -> &F {
        self.know(id);
        &self.values[id as usize].1
    }
}
