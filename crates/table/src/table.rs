//! The table: keys and values of any type on top of the table of words.
//!
//! Invariant: a box is freed only after it has left the table, and after all operations that may have read its address
//! have ended. An operation on boxes therefore announces itself (`guard`) before it reads a word. Operations on pairs
//! that lie in their slots announce nothing.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use seize::{Collector, LocalGuard};

use crate::bin::Word;
use crate::error::{Reason, Refused};
use crate::look::{Found, Probe};
use crate::probe::{KeyProbe, WordProbe};
use crate::raw::{Decision, Edit, Obstacle, Raw, Rehash};
use crate::sync::wait_a_moment;
use crate::word::Form;

/// The hasher of a table that names none: `foldhash`, with the same seed in every table and run.
///
/// A table whose keys an attacker may choose needs a seed that the attacker does not know:
///
/// ```
/// use std::hash::RandomState;
/// use tarn_table::Table;
///
/// let table: Table<String, u32, RandomState> = Table::with_hasher(RandomState::default());
/// # let _ = table;
/// ```
pub type DefaultHash = foldhash::fast::FixedState;

/// Entries for which `with_capacity` makes one bin, times 2: 3 entries in 2 bins. With uniform hashes 94 % of the
/// entries then lie in their bin's own line.
const ENTRIES_IN_TWO_BINS: usize = 3;
/// The bins of a table that was made without a capacity.
const BINS_MIN: usize = 16;
/// The golden ratio as a fraction of 2^64 (Knuth, "The Art of Computer Programming", volume 3, section 6.4). It spreads
/// hashes that use only their low bits.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A concurrent hash table whose bins are cache lines.
///
/// All methods take `&self`, and any number of threads may call them at the same time. A read waits for no thread, and
/// writes nothing into the table. A read of boxed entries stores an announcement in a word of its own thread.
///
/// Numbers, `char`, `bool`, `()`, arrays of unsigned integers, pairs of `u8`, `u16`, `u32` or `i32`, and `NonZero` integers
/// (also as `Option`) lie in the table itself, up to 8 bytes. All other keys and values lie in a box. Methods that return
/// a value return a clone of it, because another thread may remove it at any time.
///
/// ```
/// use tarn_table::Table;
///
/// let table = Table::new();
/// table.insert(1, 10).unwrap();
/// assert_eq!(table.get(&1), Some(10));
/// assert_eq!(table.insert_or_replace(1, 11).unwrap(), Some(10));
/// assert_eq!(table.remove(&1), Some(11));
/// ```
///
/// A table of long-lived references is no table of short-lived ones, because any holder may insert:
///
/// ```compile_fail,E0505
/// use tarn_table::Table;
///
/// fn add<'a>(table: &Table<u64, &'a str>, text: &'a str) {
///     table.insert(1, text).unwrap();
/// }
/// let table: Table<u64, &'static str> = Table::new();
/// let text = String::from("short");
/// add(&table, &text);
/// drop(text);
/// table.get(&1);
/// ```
///
/// Paper: Katsarakis, Gavrielatos, Ntarmos, "DLHT: A Non-blocking Resizable Hashtable with Fast Deletes and
/// Memory-awareness", HPDC 2024. Our differences are in `docs/design/0022-hash-table.md`.
pub struct Table<K, V, S = DefaultHash> {
    pub(crate) raw: Raw,
    pub(crate) hasher: S,
    /// Frees boxes; none in a table without boxes.
    boxes: Option<Collector>,
    entries: PhantomData<Entries<K, V>>,
}

/// Keys and values that the table owns. The functions let no lifetime in their types shrink or grow: `insert` takes
/// `&self`, so that a table of shorter references could hand them out as longer ones.
type Entries<K, V> = (K, V, fn(K) -> K, fn(V) -> V);

// SAFETY: the table owns its keys and values. A box may be freed by another thread than the one that made it.
unsafe impl<K: Send, V: Send, S: Send> Send for Table<K, V, S> {}
// SAFETY: threads that share the table give it keys and values, and look at those of others.
unsafe impl<K: Send + Sync, V: Send + Sync, S: Sync> Sync for Table<K, V, S> {}

impl<K: Hash + Eq, V> Table<K, V> {
    /// Creates an empty table.
    ///
    /// # Panics
    ///
    /// If the system has no memory.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates a table with room for a number of entries. The memory is touched only when entries arrive.
    ///
    /// # Panics
    ///
    /// If the system has no memory. `try_with_capacity_and_hasher` returns an error instead.
    pub fn with_capacity(entries: usize) -> Self {
        Self::with_capacity_and_hasher(entries, DefaultHash::default())
    }
}

impl<K, V, S> Table<K, V, S> {
    /// Creates an empty table with a hasher.
    ///
    /// # Panics
    ///
    /// If the system has no memory.
    pub fn with_hasher(hasher: S) -> Self {
        Self::with_capacity_and_hasher(0, hasher)
    }

    /// Creates a table with a hasher and with room for a number of entries.
    ///
    /// # Panics
    ///
    /// If the system has no memory.
    pub fn with_capacity_and_hasher(entries: usize, hasher: S) -> Self {
        Self::try_with_capacity_and_hasher(entries, hasher)
            .unwrap_or_else(|reason| panic!("a table for {entries} entries: {reason}"))
    }

    /// Creates a table with a hasher and with room for a number of entries.
    ///
    /// # Errors
    ///
    /// `Reason::OutOfMemory` if the system has no memory.
    pub fn try_with_capacity_and_hasher(entries: usize, hasher: S) -> Result<Self, Reason> {
        let bins = (entries / ENTRIES_IN_TWO_BINS).saturating_mul(2).max(BINS_MIN);
        Self::with_bins(bins, true, hasher).ok_or(Reason::OutOfMemory)
    }

    /// Creates a table with a number of bins.
    pub(crate) fn with_bins(bins: usize, huge_pages: bool, hasher: S) -> Option<Self> {
        let raw = Raw::new(bins, huge_pages)?;
        let boxes = Form::<K, V>::is_boxed().then(Collector::new);
        Some(Self { raw, hasher, boxes, entries: PhantomData })
    }

    /// Sets whether indexes that the table makes from now on use huge pages, where the system offers them. They do by
    /// default: without them most accesses to a large table need a second access, to find the page.
    pub fn set_huge_pages(&mut self, huge_pages: bool) {
        self.raw.huge_pages = huge_pages;
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        &self.hasher
    }

    /// Announces an operation that may read addresses of boxes.
    #[inline(always)]
    pub(crate) fn guard(&self) -> Option<LocalGuard<'_>> {
        if Form::<K, V>::is_boxed() { self.boxes.as_ref().map(Collector::enter) } else { None }
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Table<K, V, S> {
    /// Returns the hash of a key, as the table uses it.
    #[inline(always)]
    pub(crate) fn hash_of<Q: Hash + ?Sized>(&self, key: &Q) -> u64 {
        spread(self.hasher.hash_one(key))
    }

    /// Returns a clone of the value of a key.
    ///
    /// ```
    /// let table = tarn_table::Table::new();
    /// table.insert(String::from("a"), vec![1, 2]).unwrap();
    /// assert_eq!(table.get("a"), Some(vec![1, 2]));
    /// assert_eq!(table.get("b"), None);
    /// ```
    #[inline]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        self.get_with(key, V::clone)
    }

    /// Calls `f` with the value of a key, and returns the result. The function clones nothing.
    ///
    /// ```
    /// let table = tarn_table::Table::new();
    /// table.insert(1, String::from("one")).unwrap();
    /// assert_eq!(table.get_with(&1, |value| value.len()), Some(3));
    /// ```
    #[inline]
    pub fn get_with<Q, T>(&self, key: &Q, f: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let _guard = self.guard();
        self.get_hashed(self.hash_of(key), key, f)
    }

    /// Finds the value of a key whose hash is known. The caller holds a guard.
    #[inline(always)]
    pub(crate) fn get_hashed<Q, T>(&self, hash: u64, key: &Q, f: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let found = self.raw.find(hash, &self.probe(hash, key))?;
        // SAFETY: the entry was valid, and the caller's guard keeps its box.
        Some(unsafe { Form::<K, V>::with_value(found.value, f) })
    }

    /// Returns whether the key has an entry.
    #[inline]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let _guard = self.guard();
        let hash = self.hash_of(key);
        self.raw.find(hash, &self.probe(hash, key)).is_some()
    }

    /// Inserts an entry, unless the key has one.
    ///
    /// # Errors
    ///
    /// The value, with `Occupied`, `OutOfMemory` or `Collision`.
    #[inline]
    pub fn insert(&self, key: K, value: V) -> Result<(), Refused<V>> {
        let guard = self.guard();
        let outcome = self.insert_hashed(self.hash_of(&key), key, value);
        drop(guard);
        outcome
    }

    /// Inserts an entry. The caller holds a guard, as for all functions with a known hash.
    #[inline(always)]
    pub(crate) fn insert_hashed(&self, hash: u64, key: K, value: V) -> Result<(), Refused<V>> {
        let pair = Form::<K, V>::encode(hash, key, value);
        if self.raw.insert_into_simple_bin(hash, pair) {
            return Ok(());
        }
        let outcome = self.write_words(hash, pair, Reason::Occupied, |found| found.is_none());
        outcome.map(|_| ())
    }

    /// Inserts an entry, or replaces the value of the key. Returns a clone of the replaced value.
    ///
    /// # Errors
    ///
    /// The value, with `OutOfMemory` or `Collision`.
    #[inline]
    pub fn insert_or_replace(&self, key: K, value: V) -> Result<Option<V>, Refused<V>>
    where
        V: Clone,
    {
        let guard = self.guard();
        self.replace_hashed(guard.as_ref(), self.hash_of(&key), key, value)
    }

    #[inline(always)]
    pub(crate) fn replace_hashed(
        &self,
        guard: Option<&LocalGuard<'_>>,
        hash: u64,
        key: K,
        value: V,
    ) -> Result<Option<V>, Refused<V>>
    where
        V: Clone,
    {
        let edit = self.write(hash, key, value, Reason::Different, |_| true)?;
        Ok(self.taken(guard, edit))
    }

    /// Removes the entry of a key, and returns a clone of its value.
    ///
    /// ```
    /// let table = tarn_table::Table::new();
    /// table.insert(0, 5).unwrap();
    /// assert_eq!((table.remove(&0), table.remove(&0)), (Some(5), None));
    /// ```
    ///
    /// A boxed value is dropped later, together with other removed values, and at the latest with the table.
    #[inline]
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        let guard = self.guard();
        self.remove_hashed(guard.as_ref(), self.hash_of(key), key, |_| true)
    }

    /// Removes the entry of a key if `f` agrees to its value. Returns a clone of the removed value, because other threads
    /// may still read the value itself; `remove_with` clones nothing. `f` may be called several times.
    #[inline]
    pub fn remove_if<Q>(&self, key: &Q, f: impl FnMut(&V) -> bool) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        let guard = self.guard();
        self.remove_hashed(guard.as_ref(), self.hash_of(key), key, f)
    }

    /// Removes the entry of a key if `f` returns a result for its value, and returns this result. The function clones
    /// nothing. `f` may be called several times; its last result counts.
    ///
    /// ```
    /// struct Opaque(u32);
    ///
    /// let table = tarn_table::Table::new();
    /// table.insert("a", Opaque(7)).unwrap();
    /// assert_eq!(table.remove_with("a", |it| (it.0 > 7).then_some(it.0)), None);
    /// assert_eq!(table.remove_with("a", |it| Some(it.0)), Some(7));
    /// assert!(!table.contains_key("a"));
    /// ```
    #[inline]
    pub fn remove_with<Q, T>(&self, key: &Q, mut f: impl FnMut(&V) -> Option<T>) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let guard = self.guard();
        let hash = self.hash_of(key);
        let mut result = None;
        let edit = self.edit(hash, &self.probe(hash, key), |found| {
            // SAFETY: the entry was valid, and the guard keeps its box.
            result = found.and_then(|it| unsafe { Form::<K, V>::with_value(it.value, &mut f) });
            if result.is_some() { Decision::Remove } else { Decision::Keep }
        });
        let Edit::Removed(Some(found)) = edit.expect("a removal needs no room") else {
            return None;
        };
        // SAFETY: this thread has taken the entry out of the table.
        unsafe { Form::<K, V>::retire(guard.as_ref(), found.value) };
        result
    }

    #[inline(always)]
    pub(crate) fn remove_hashed<Q>(
        &self,
        guard: Option<&LocalGuard<'_>>,
        hash: u64,
        key: &Q,
        mut f: impl FnMut(&V) -> bool,
    ) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        let edit = self.edit(hash, &self.probe(hash, key), |found| match found {
            // SAFETY: the entry was valid, and the guard keeps its box.
            Some(it) if unsafe { Form::<K, V>::with_value(it.value, &mut f) } => Decision::Remove,
            _ => Decision::Keep,
        });
        let edit = edit.expect("a removal needs no room");
        self.taken(guard, edit)
    }

    /// Returns a clone of the value that an update has taken out of the table, and retires its box.
    #[inline(always)]
    pub(crate) fn taken(&self, guard: Option<&LocalGuard<'_>>, edit: Edit) -> Option<V>
    where
        V: Clone,
    {
        let (Edit::Removed(found) | Edit::Written(found)) = edit else {
            return None;
        };
        let word = found?.value;
        // SAFETY: this thread has taken the entry out, and the guard keeps its box until the clone is made.
        unsafe {
            let value = Form::<K, V>::with_value(word, V::clone);
            Form::<K, V>::retire(guard, word);
            Some(value)
        }
    }

    /// Writes an entry if `agrees` allows it. Otherwise the value comes back with the reason `otherwise`.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        hash: u64,
        key: K,
        value: V,
        otherwise: Reason,
        agrees: impl FnMut(Option<&Found>) -> bool,
    ) -> Result<Edit, Refused<V>> {
        self.write_words(hash, Form::<K, V>::encode(hash, key, value), otherwise, agrees)
    }

    #[inline(always)]
    fn write_words(
        &self,
        hash: u64,
        (key, value): (Word, Word),
        otherwise: Reason,
        mut agrees: impl FnMut(Option<&Found>) -> bool,
    ) -> Result<Edit, Refused<V>> {
        let probe = WordProbe::<K, V>::new(key, value);
        let edit = self.edit(hash, &probe, |found| {
            if agrees(found) { Decision::Write { key, value } } else { Decision::Keep }
        });
        let reason = match edit {
            Ok(Edit::Kept) => otherwise,
            Ok(edit) => return Ok(edit),
            Err(obstacle) => obstacle.into(),
        };
        // SAFETY: the table has not kept the words.
        Err(Refused { value: unsafe { Form::<K, V>::take_value(value) }, reason })
    }

    /// Updates a key's entry. The function waits while another caller has locked the key.
    #[inline(always)]
    pub(crate) fn edit<P: Probe>(
        &self,
        hash: u64,
        probe: &P,
        mut decide: impl FnMut(Option<&Found>) -> Decision,
    ) -> Result<Edit, Obstacle> {
        let mut rounds = 0;
        loop {
            match self.raw.edit(hash, probe, self, &mut decide) {
                Err(Obstacle::Locked) => wait_a_moment(&mut rounds),
                outcome => return outcome,
            }
        }
    }

    #[inline(always)]
    pub(crate) fn probe<'a, Q: ?Sized>(&self, hash: u64, key: &'a Q) -> KeyProbe<'a, K, V, Q> {
        KeyProbe::new(hash, key)
    }
}

/// Mixes a hash, so that its high bits depend on all of its bits.
#[inline(always)]
fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(GOLDEN)
}

impl<K: Hash + Eq, V, S: BuildHasher> Rehash for Table<K, V, S> {
    #[inline]
    unsafe fn hash(&self, key: Word, value: Word) -> u64 {
        if Form::<K, V>::key_fits() {
            // SAFETY: the word was made from a key, by the caller's promise.
            unsafe { Form::<K, V>::with_key(key, value, |key| self.hash_of(key)) }
        } else {
            key.addr() as u64
        }
    }
}

impl<K, V, S> Drop for Table<K, V, S> {
    fn drop(&mut self) {
        if Form::<K, V>::is_boxed() {
            // SAFETY: no thread uses the table any more, and each entry is freed once.
            self.raw.for_each_owned(|found, _| unsafe { Form::<K, V>::free(found.value) });
        }
    }
}
