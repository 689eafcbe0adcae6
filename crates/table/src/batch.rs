//! Batches: the bins of all keys are loaded at the same time, and then the operations run in order.
//!
//! Invariant: the operations of a batch take effect one after another in the order of the batch. A batch is not atomic:
//! operations of other threads may come between them. A prefetch changes no result.
//!
//! Paper: Katsarakis et al., HPDC 2024, and Section 6 of Gavrielatos et al., "Dandelion" (Figure 7: more than three
//! times the throughput with 24 requests).

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::mem;

use crate::error::Refused;
use crate::table::Table;
use crate::word::Form;

/// The operations whose bins are loaded at the same time. The paper's throughput hardly grows beyond 24 (Figure 7 of
/// "Dandelion"). 32 bins take 2 KB of the processor's first cache.
pub const BATCH_AHEAD: usize = 32;
/// The distance at which the bin has probably arrived, and its linked line is loaded.
const LINES_AHEAD: usize = 8;

/// One operation of a batch, and later its answer.
///
/// ```
/// use tarn_table::{Request, Table};
///
/// let table = Table::new();
/// let mut batch = [Request::Insert(1, 10), Request::Get(1), Request::Remove(1), Request::Get(1)];
/// table.execute(&mut batch);
/// assert_eq!(batch[1].found(), Some(&10));
/// assert_eq!(batch[2].found(), Some(&10));
/// assert_eq!(batch[3].found(), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<K, V> {
    /// Get the value of a key. The answer is `Found`.
    Get(K),
    /// Insert an entry, unless the key has one. The answer is `Stored`.
    Insert(K, V),
    /// Insert an entry or replace a value. The answer is `Stored`.
    InsertOrReplace(K, V),
    /// Remove an entry. The answer is `Found`, with the removed value.
    Remove(K),
    /// The answer to `Get` and `Remove`.
    Found(Option<V>),
    /// The answer to `Insert` and `InsertOrReplace`: the replaced value, if any.
    Stored(Result<Option<V>, Refused<V>>),
}

impl<K, V> Request<K, V> {
    /// Returns the key of an operation; nothing for an answer.
    pub fn key(&self) -> Option<&K> {
        match self {
            Self::Get(key) | Self::Remove(key) => Some(key),
            Self::Insert(key, _) | Self::InsertOrReplace(key, _) => Some(key),
            Self::Found(_) | Self::Stored(_) => None,
        }
    }

    /// Returns the value that an answer has found, removed or replaced.
    pub fn found(&self) -> Option<&V> {
        match self {
            Self::Found(Some(value)) | Self::Stored(Ok(Some(value))) => Some(value),
            _ => None,
        }
    }
}

/// Collects operations, and runs them as one batch.
#[derive(Debug)]
pub struct Batch<'a, K, V, S> {
    table: &'a Table<K, V, S>,
    requests: Vec<Request<K, V>>,
}

impl<K: Hash + Eq, V: Clone, S: BuildHasher> Batch<'_, K, V, S> {
    /// Adds an operation that gets a value.
    pub fn get(self, key: K) -> Self {
        self.with(Request::Get(key))
    }

    /// Adds an insertion.
    pub fn insert(self, key: K, value: V) -> Self {
        self.with(Request::Insert(key, value))
    }

    /// Adds an insertion or replacement.
    pub fn insert_or_replace(self, key: K, value: V) -> Self {
        self.with(Request::InsertOrReplace(key, value))
    }

    /// Adds a removal.
    pub fn remove(self, key: K) -> Self {
        self.with(Request::Remove(key))
    }

    /// Adds any operation.
    pub fn with(mut self, request: Request<K, V>) -> Self {
        self.requests.push(request);
        self
    }

    /// Runs the operations in order, and returns their answers.
    pub fn run(mut self) -> Vec<Request<K, V>> {
        self.table.execute(&mut self.requests);
        self.requests
    }
}

impl<K: Hash + Eq, V, S: BuildHasher> Table<K, V, S> {
    /// Begins a batch.
    ///
    /// ```
    /// let table = tarn_table::Table::new();
    /// let answers = table.batch().insert('a', 1).insert_or_replace('a', 2).get('a').run();
    /// assert_eq!(answers[1].found(), Some(&1));
    /// assert_eq!(answers[2].found(), Some(&2));
    /// ```
    pub fn batch(&self) -> Batch<'_, K, V, S> {
        Batch { table: self, requests: Vec::new() }
    }

    /// Runs the operations of a slice in order, and replaces each by its answer. The function allocates nothing for
    /// pairs that lie in the table itself.
    pub fn execute(&self, batch: &mut [Request<K, V>])
    where
        V: Clone,
    {
        let guard = self.guard();
        let mut hashes = Hashes::new();
        let ahead = batch.len().min(BATCH_AHEAD);
        for (at, request) in batch[..ahead].iter().enumerate() {
            hashes.load_request(self, at, request);
        }
        for at in 0..batch.len() {
            if batch.get(at + LINES_AHEAD).is_some_and(|it| it.key().is_some()) {
                hashes.load_lines(self, at + LINES_AHEAD);
            }
            let hash = hashes.at(at);
            if let Some(request) = batch.get(at + BATCH_AHEAD) {
                hashes.load_request(self, at + BATCH_AHEAD, request);
            }
            let request = mem::replace(&mut batch[at], Request::Found(None));
            batch[at] = match request {
                Request::Get(key) => Request::Found(self.get_hashed(hash, &key, V::clone)),
                Request::Insert(key, value) => {
                    Request::Stored(self.insert_hashed(hash, key, value).map(|()| None))
                }
                Request::InsertOrReplace(key, value) => {
                    Request::Stored(self.replace_hashed(guard.as_ref(), hash, key, value))
                }
                Request::Remove(key) => {
                    Request::Found(self.remove_hashed(guard.as_ref(), hash, &key, |_| true))
                }
                answer => answer,
            };
        }
    }

    /// Gets the values of many keys. `answers[i]` becomes the value of `keys[i]`.
    ///
    /// ```
    /// let table: tarn_table::Table<u64, u64> = (0..10).map(|key| (key, key * key)).collect();
    /// let mut answers = [None; 3];
    /// table.get_many(&[9, 10, 0], &mut answers);
    /// assert_eq!(answers, [Some(81), None, Some(0)]);
    /// ```
    ///
    /// # Panics
    ///
    /// If the slices have different lengths.
    #[inline]
    pub fn get_many<Q>(&self, keys: &[Q], answers: &mut [Option<V>])
    where
        K: Borrow<Q>,
        Q: Hash + Eq,
        V: Clone,
    {
        assert_eq!(keys.len(), answers.len(), "one answer for each key");
        let _guard = self.guard();
        if Form::<K, V>::key_fits() && keys.len() <= BATCH_AHEAD {
            return self.get_few(keys, answers);
        }
        let mut hashes = Hashes::new();
        for (at, key) in keys.iter().take(BATCH_AHEAD).enumerate() {
            hashes.load(self, at, key);
        }
        for at in 0..keys.len() {
            if at + LINES_AHEAD < keys.len() {
                hashes.load_lines(self, at + LINES_AHEAD);
            }
            let hash = hashes.at(at);
            if let Some(key) = keys.get(at + BATCH_AHEAD) {
                hashes.load(self, at + BATCH_AHEAD, key);
            }
            answers[at] = self.get_hashed(hash, &keys[at], V::clone);
        }
    }

    /// Gets the values of a few short keys. To compute their hashes twice takes less time than to keep them.
    #[inline(always)]
    fn get_few<Q>(&self, keys: &[Q], answers: &mut [Option<V>])
    where
        K: Borrow<Q>,
        Q: Hash + Eq,
        V: Clone,
    {
        let index = self.raw.current();
        for key in keys {
            crate::prefetch::read(index.bin_of(self.hash_of(key)));
        }
        if keys.len() > LINES_AHEAD {
            for key in keys {
                index.prefetch_lines(self.hash_of(key));
            }
        }
        for (key, answer) in keys.iter().zip(answers) {
            *answer = self.get_hashed(self.hash_of(key), key, V::clone);
        }
    }

    /// Gets the values of all keys of an iterator, in order. While the oldest key is answered, the bins of the next
    /// `BATCH_AHEAD` keys are on their way. So the stream takes `BATCH_AHEAD` keys at once, and is no choice for an
    /// iterator that must give a key only after the answer to the one before.
    ///
    /// ```
    /// let table: tarn_table::Table<u32, u32> = (0..100).map(|key| (key, key + 1)).collect();
    /// let sum: u32 = table.get_stream(0..200).filter_map(|(_, value)| value).sum();
    /// assert_eq!(sum, (1..=100).sum());
    /// ```
    pub fn get_stream<I>(&self, keys: I) -> GetStream<'_, K, V, S, I::IntoIter>
    where
        I: IntoIterator<Item = K>,
    {
        let mut stream = GetStream {
            table: self,
            keys: keys.into_iter().fuse(),
            waiting: [const { None }; BATCH_AHEAD],
            hashes: Hashes::new(),
            at: 0,
        };
        for at in 0..BATCH_AHEAD {
            stream.load(at);
        }
        stream
    }
}

/// The hashes of the next operations.
#[derive(Debug)]
struct Hashes([u64; BATCH_AHEAD]);

impl Hashes {
    #[inline(always)]
    fn new() -> Self {
        Self([0; BATCH_AHEAD])
    }

    #[inline(always)]
    fn at(&self, at: usize) -> u64 {
        self.0[at % BATCH_AHEAD]
    }

    /// Computes a key's hash, and asks for its bin.
    #[inline(always)]
    fn load<K, V, S, Q>(&mut self, table: &Table<K, V, S>, at: usize, key: &Q)
    where
        K: Hash + Eq,
        S: BuildHasher,
        Q: Hash + ?Sized,
    {
        let hash = table.hash_of(key);
        self.0[at % BATCH_AHEAD] = hash;
        crate::prefetch::read(table.raw.current().bin_of(hash));
    }

    #[inline(always)]
    fn load_request<K, V, S>(&mut self, table: &Table<K, V, S>, at: usize, request: &Request<K, V>)
    where
        K: Hash + Eq,
        S: BuildHasher,
    {
        if let Some(key) = request.key() {
            let hash = table.hash_of(key);
            self.0[at % BATCH_AHEAD] = hash;
            let bin = table.raw.current().bin_of(hash);
            match request {
                Request::Get(_) => crate::prefetch::read(bin),
                _ => crate::prefetch::write(bin),
            }
        }
    }

    /// Asks for the linked line of a bin that has arrived.
    #[inline(always)]
    fn load_lines<K, V, S>(&self, table: &Table<K, V, S>, at: usize) {
        table.raw.current().prefetch_lines(self.at(at));
    }
}

/// The values of the keys of an iterator (`Table::get_stream`).
#[derive(Debug)]
pub struct GetStream<'a, K, V, S, I> {
    table: &'a Table<K, V, S>,
    keys: std::iter::Fuse<I>,
    waiting: [Option<K>; BATCH_AHEAD],
    hashes: Hashes,
    at: usize,
}

impl<K, V, S, I> GetStream<'_, K, V, S, I>
where
    K: Hash + Eq,
    S: BuildHasher,
    I: Iterator<Item = K>,
{
    /// Takes the next key, and asks for its bin.
    #[inline(always)]
    fn load(&mut self, at: usize) {
        let key = self.keys.next();
        if let Some(key) = &key {
            self.hashes.load(self.table, at, key);
        }
        self.waiting[at % BATCH_AHEAD] = key;
    }
}

impl<K, V, S, I> Iterator for GetStream<'_, K, V, S, I>
where
    K: Hash + Eq,
    V: Clone,
    S: BuildHasher,
    I: Iterator<Item = K>,
{
    type Item = (K, Option<V>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        self.at += 1;
        let key = self.waiting[at % BATCH_AHEAD].take()?;
        let hash = self.hashes.at(at);
        self.load(at + BATCH_AHEAD);
        self.hashes.load_lines(self.table, at + LINES_AHEAD);
        let _guard = self.table.guard();
        let value = self.table.get_hashed(hash, &key, V::clone);
        Some((key, value))
    }
}
