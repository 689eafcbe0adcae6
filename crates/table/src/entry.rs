//! Operations that look at an entry before they change it, and keys with several entries.
//!
//! Invariant: each operation takes effect in one step. Its decision is about the entry that this step replaces. If the
//! entry has changed in the meantime, the operation decides again.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::bin::Word;
use crate::error::{Reason, Refused};
use crate::header::{Header, Phase};
use crate::look::{Probe, Snapshot};
use crate::raw::{Decision, Edit};
use crate::table::Table;
use crate::word::Form;

impl<K: Hash + Eq, V: Clone, S: BuildHasher> Table<K, V, S> {
    /// Replaces the value of a key by `f` of it, and returns a clone of the old value. `f` may be called several times.
    ///
    /// ```
    /// let table = tarn_table::Table::new();
    /// table.insert("hits", 1).unwrap();
    /// assert_eq!(table.update("hits", |count| count + 1).unwrap(), Some(1));
    /// assert_eq!(table.get("hits"), Some(2));
    /// assert_eq!(table.update("misses", |count| count + 1).unwrap(), None);
    /// ```
    ///
    /// # Errors
    ///
    /// `OutOfMemory` or `Collision`: a replacement needs a free slot.
    pub fn update<Q>(&self, key: &Q, mut f: impl FnMut(&V) -> V) -> Result<Option<V>, Reason>
    where
        K: Borrow<Q> + Clone,
        Q: Hash + Eq + ?Sized,
    {
        let guard = self.guard();
        let hash = self.hash_of(key);
        let mut draft = Draft::<K, V>(None, std::marker::PhantomData);
        let edit = self.edit(hash, &self.probe(hash, key), |found| {
            draft.discard();
            let Some(found) = found else { return Decision::Keep };
            // SAFETY: the entry was valid, and the guard keeps its box.
            let (key, value) = unsafe {
                let key = Form::<K, V>::with_key(found.key, found.value, K::clone);
                (key, Form::<K, V>::with_value(found.value, &mut f))
            };
            let (key, value) = Form::<K, V>::encode(hash, key, value);
            draft.0 = Some(value);
            Decision::Write { key, value }
        })?;
        if matches!(edit, Edit::Written(_)) {
            draft.0 = None;
        }
        Ok(self.taken(guard.as_ref(), edit))
    }

    /// Replaces the value of a key by `f` of it, or inserts `first` if the key has none. Returns a clone of the old value.
    /// `f` may be called several times.
    ///
    /// ```
    /// let table = tarn_table::Table::new();
    /// for word in "the one and the other".split(' ') {
    ///     table.update_or_insert(word, 1, |count| count + 1).unwrap();
    /// }
    /// assert_eq!((table.get("the"), table.get("one")), (Some(2), Some(1)));
    /// ```
    ///
    /// # Errors
    ///
    /// `OutOfMemory` or `Collision`: a new value needs a free slot.
    pub fn update_or_insert(
        &self,
        key: K,
        first: V,
        mut f: impl FnMut(&V) -> V,
    ) -> Result<Option<V>, Reason>
    where
        K: Clone,
    {
        let guard = self.guard();
        let hash = self.hash_of(&key);
        let mut draft = Draft::<K, V>(None, std::marker::PhantomData);
        let edit = self.edit(hash, &self.probe::<K>(hash, &key), |found| {
            draft.discard();
            let value = match found {
                None => first.clone(),
                // SAFETY: the entry was valid, and the guard keeps its box.
                Some(found) => unsafe { Form::<K, V>::with_value(found.value, &mut f) },
            };
            let (key, value) = Form::<K, V>::encode(hash, key.clone(), value);
            draft.0 = Some(value);
            Decision::Write { key, value }
        })?;
        draft.0 = None;
        Ok(self.taken(guard.as_ref(), edit))
    }

    /// Replaces the value of a key if it equals `current`. Returns a clone of the replaced value.
    ///
    /// ```
    /// use tarn_table::{Reason, Table};
    ///
    /// let table = Table::new();
    /// table.insert(1, 10).unwrap();
    /// assert_eq!(table.compare_exchange(1, &10, 11), Ok(10));
    /// assert_eq!(table.compare_exchange(1, &10, 12).unwrap_err().reason, Reason::Different);
    /// ```
    ///
    /// # Errors
    ///
    /// The new value, with `Different`, `OutOfMemory` or `Collision`.
    pub fn compare_exchange(&self, key: K, current: &V, new: V) -> Result<V, Refused<V>>
    where
        V: PartialEq,
    {
        let guard = self.guard();
        let hash = self.hash_of(&key);
        let edit = self.write(hash, key, new, Reason::Different, |found| {
            // SAFETY: the entry was valid, and the guard keeps its box.
            found.is_some_and(|it| unsafe {
                Form::<K, V>::with_value(it.value, |old| old == current)
            })
        })?;
        Ok(self.taken(guard.as_ref(), edit).expect("only a present entry is replaced"))
    }

    /// Returns the value of a key, and inserts `value` if the key has none.
    ///
    /// ```
    /// let table = tarn_table::Table::new();
    /// assert_eq!(table.get_or_insert('a', 1), Ok(1));
    /// assert_eq!(table.get_or_insert('a', 2), Ok(1));
    /// ```
    ///
    /// # Errors
    ///
    /// The value, with `OutOfMemory` or `Collision`.
    pub fn get_or_insert(&self, key: K, value: V) -> Result<V, Refused<V>>
    where
        K: Clone,
    {
        let mut value = value;
        loop {
            if let Some(present) = self.get(&key) {
                return Ok(present);
            }
            match self.insert(key.clone(), value.clone()) {
                Ok(()) => return Ok(value),
                Err(Refused { value: back, reason: Reason::Occupied }) => value = back,
                Err(refused) => return Err(refused),
            }
        }
    }

    /// Inserts an entry, even if the key has some already. A key can have at most 15 entries, in a bin of its own.
    ///
    /// ```
    /// let table = tarn_table::Table::new();
    /// table.insert_duplicate(1, 'a').unwrap();
    /// table.insert_duplicate(1, 'b').unwrap();
    /// let mut all = table.get_all(&1);
    /// all.sort();
    /// assert_eq!(all, ['a', 'b']);
    /// ```
    ///
    /// # Errors
    ///
    /// The value, with `OutOfMemory` or `Collision`.
    pub fn insert_duplicate(&self, key: K, value: V) -> Result<(), Refused<V>> {
        let _guard = self.guard();
        let hash = self.hash_of(&key);
        let (key, value) = Form::<K, V>::encode(hash, key, value);
        let probe = crate::probe::WordProbe::<K, V>::new(key, value);
        match self.edit(hash, &probe, |_| Decision::Append { key, value }) {
            Ok(_) => Ok(()),
            Err(obstacle) => {
                // SAFETY: the table has not kept the words.
                let value = unsafe { Form::<K, V>::take_value(value) };
                Err(Refused { value, reason: obstacle.into() })
            }
        }
    }

    /// Returns clones of all values of a key, as they were at one moment, in any order.
    pub fn get_all<Q>(&self, key: &Q) -> Vec<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let _guard = self.guard();
        let hash = self.hash_of(key);
        let probe = self.probe(hash, key);
        let mut index = self.raw.current();
        loop {
            let Some(copy) = Snapshot::of(index, index.bin_of(hash), Header::valid) else {
                continue;
            };
            let matching = copy.entries().iter().filter(|it| {
                // SAFETY: the words are from one snapshot, and the guard keeps their boxes.
                unsafe { probe.may_be(it.key) && probe.is(it.value) }
            });
            // SAFETY: as above.
            let value = |word: Word| unsafe { Form::<K, V>::with_value(word, V::clone) };
            let values: Vec<V> = matching.map(|it| value(it.value)).collect();
            if !values.is_empty() || copy.header.phase() == Phase::Open {
                return values;
            }
            index = self.raw.successor(index);
        }
    }
}

/// A new value that is not in the table yet. It is freed if the caller's function panics.
struct Draft<K, V>(Option<Word>, std::marker::PhantomData<(K, V)>);

impl<K, V> Draft<K, V> {
    fn discard(&mut self) {
        if let Some(word) = self.0.take() {
            // SAFETY: no slot has shown the word.
            unsafe { Form::<K, V>::free(word) };
        }
    }
}

impl<K, V> Drop for Draft<K, V> {
    fn drop(&mut self) {
        self.discard();
    }
}
