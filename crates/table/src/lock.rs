//! Locks of keys, for transactions: a key that one caller has locked keeps its value until that caller ends.
//!
//! A lock is a shadow: a second slot with the same key, which reads do not see. It exists for a present key and for an
//! absent one.
//!
//! Invariant: while a key is locked, its entry changes only through the lock. Reads continue, and see the value before
//! the lock. `commit` and `remove` change the entry and free the lock in one step.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use crate::bin::Word;
use crate::error::{Reason, Refused};
use crate::header::Header;
use crate::look::{Found, Look, Probe, look};
use crate::plant::Plant;
use crate::raw::{Obstacle, Placed, Raw, Rehash, Visit, exchange};
use crate::sync::wait_a_moment;
use crate::table::Table;
use crate::word::Form;

/// The way in which a lock ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Unlock,
    Remove,
    Write(Word, Word),
}

impl Raw {
    /// Inserts a shadow of a key, unless the key has one.
    fn lock<P: Probe, R: Rehash>(
        &self,
        hash: u64,
        probe: &P,
        rehash: &R,
        pair: (Word, Word),
    ) -> Result<(), Obstacle> {
        let mut visit = Visit::new(self, hash);
        loop {
            let header = visit.open_bin(rehash);
            match look(visit.index, visit.bin, header, header.shadows(), probe) {
                Look::Found(_) if self.plants.has(Plant::SharedLock) => {}
                Look::Found(_) => return Err(Obstacle::Locked),
                Look::Changed => continue,
                Look::Absent => {}
            }
            match self.place(visit.index, visit.bin, header, pair, Header::confirmed_as_shadow) {
                Placed::Done => return Ok(()),
                Placed::Changed => {}
                Placed::NoRoom => self.make_room(visit.index, hash, rehash)?,
            }
        }
    }

    /// Removes the shadow of a key, and changes its entry in the same step. Returns the shadow and the entry.
    fn end_lock<P: Probe, R: Rehash>(
        &self,
        hash: u64,
        probe: &P,
        rehash: &R,
        end: End,
    ) -> Result<(Found, Option<Found>), Obstacle> {
        let mut visit = Visit::new(self, hash);
        loop {
            let header = visit.open_bin(rehash);
            let (index, bin) = (visit.index, visit.bin);
            let shadow = match look(index, bin, header, header.shadows(), probe) {
                Look::Found(shadow) => shadow,
                Look::Changed => continue,
                Look::Absent => unreachable!("only its owner ends a lock"),
            };
            let entry = match look(index, bin, header, header.valid(), probe) {
                Look::Found(entry) => Some(entry),
                Look::Changed => continue,
                Look::Absent => None,
            };
            let entry_bit = entry.map_or(0, |it| 1 << it.slot);
            let ended = match end {
                End::Write(key, value) => {
                    let replaced = entry_bit | 1 << shadow.slot;
                    match self.write(index, bin, header, (key, value), replaced) {
                        Placed::Done => true,
                        Placed::Changed => false,
                        Placed::NoRoom => {
                            self.make_room(index, hash, rehash)?;
                            false
                        }
                    }
                }
                End::Unlock | End::Remove => {
                    let removed = if matches!(end, End::Remove) { entry_bit } else { 0 };
                    let slots = removed | 1 << shadow.slot;
                    let done = exchange(bin, header, header.without(slots)).is_ok();
                    if done {
                        self.unlink_after(index, bin, slots);
                    }
                    done
                }
            };
            if ended {
                return Ok((shadow, entry));
            }
        }
    }
}

/// A locked key. The lock ends when this value is dropped.
///
/// A lock that is never dropped (`std::mem::forget`) keeps its key locked for ever.
pub struct KeyLock<'a, K: Hash + Eq, V, S: BuildHasher> {
    table: &'a Table<K, V, S>,
    hash: u64,
    key: K,
    is_held: bool,
}

impl<K: Hash + Eq + Clone, V, S: BuildHasher> Table<K, V, S> {
    /// Locks a key, present or absent. The function waits while another caller has the lock. Until the lock ends, other
    /// callers' updates of the key wait, and gets see the present value.
    ///
    /// A caller that locks several keys must lock them in one order, or two callers may wait for each other.
    ///
    /// ```
    /// let table = tarn_table::Table::new();
    /// table.insert("a", 1).unwrap();
    /// let lock = table.lock("a").unwrap();
    /// let value = lock.value().unwrap();
    /// assert_eq!(table.try_lock("a").unwrap_err(), tarn_table::Reason::Locked);
    /// lock.commit(value + 1).unwrap();
    /// assert_eq!(table.get("a"), Some(2));
    /// ```
    ///
    /// # Errors
    ///
    /// `OutOfMemory` or `Collision`: a lock needs a free slot.
    pub fn lock(&self, key: K) -> Result<KeyLock<'_, K, V, S>, Reason> {
        let mut rounds = 0;
        loop {
            match self.try_lock(key.clone()) {
                Err(Reason::Locked) => wait_a_moment(&mut rounds),
                outcome => return outcome,
            }
        }
    }

    /// Locks a key, unless another caller has locked it.
    ///
    /// # Errors
    ///
    /// `Locked`, `OutOfMemory` or `Collision`.
    pub fn try_lock(&self, key: K) -> Result<KeyLock<'_, K, V, S>, Reason> {
        let _guard = self.guard();
        let hash = self.hash_of(&key);
        let (key_word, value_word) = Form::<K, V>::encode_lock(hash, key.clone());
        let probe = self.probe::<K>(hash, &key);
        match self.raw.lock(hash, &probe, self, (key_word, value_word)) {
            Ok(()) => Ok(KeyLock { table: self, hash, key, is_held: true }),
            Err(obstacle) => {
                // SAFETY: the table has not kept the words.
                unsafe { Form::<K, V>::free(value_word) };
                Err(obstacle.into())
            }
        }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> KeyLock<'_, K, V, S> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Returns a clone of the key's value.
    pub fn value(&self) -> Option<V>
    where
        V: Clone,
    {
        self.table.get(&self.key)
    }

    /// Gives the key a value, and unlocks it, in one step. Returns a clone of the replaced value.
    ///
    /// # Errors
    ///
    /// The value, with `OutOfMemory` or `Collision`. The key is then unlocked and unchanged.
    pub fn commit(mut self, value: V) -> Result<Option<V>, Refused<V>>
    where
        K: Clone,
        V: Clone,
    {
        let (key, word) = Form::<K, V>::encode(self.hash, self.key.clone(), value);
        self.end(End::Write(key, word)).map_err(|reason| {
            // SAFETY: the table has not kept the words.
            let value = unsafe { Form::<K, V>::take_value(word) };
            Refused { value, reason }
        })
    }

    /// Removes the key's entry, and unlocks the key, in one step. Returns a clone of the removed value.
    pub fn remove(mut self) -> Option<V>
    where
        V: Clone,
    {
        self.end(End::Remove).expect("a removal needs no room")
    }

    fn end(&mut self, end: End) -> Result<Option<V>, Reason>
    where
        V: Clone,
    {
        let guard = self.table.guard();
        let probe = self.table.probe::<K>(self.hash, &self.key);
        let (shadow, entry) = self.table.raw.end_lock(self.hash, &probe, self.table, end)?;
        self.is_held = false;
        // SAFETY: the step took both out of the table, and the guard keeps the box until the clone is made.
        unsafe {
            Form::<K, V>::retire(guard.as_ref(), shadow.value);
            let value = entry.map(|it| Form::<K, V>::with_value(it.value, V::clone));
            if let Some(entry) = entry {
                Form::<K, V>::retire(guard.as_ref(), entry.value);
            }
            Ok(value)
        }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Drop for KeyLock<'_, K, V, S> {
    fn drop(&mut self) {
        if !self.is_held {
            return;
        }
        let guard = self.table.guard();
        let probe = self.table.probe::<K>(self.hash, &self.key);
        let ended = self.table.raw.end_lock(self.hash, &probe, self.table, End::Unlock);
        let (shadow, _) = ended.expect("a removal needs no room");
        // SAFETY: the step took the shadow out of the table.
        unsafe { Form::<K, V>::retire(guard.as_ref(), shadow.value) };
    }
}

impl<K: Hash + Eq + fmt::Debug, V, S: BuildHasher> fmt::Debug for KeyLock<'_, K, V, S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("KeyLock").field("key", &self.key).finish_non_exhaustive()
    }
}
