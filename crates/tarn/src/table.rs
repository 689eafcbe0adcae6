//! The table of one type of rows: requests of rows by their keys, and shorthands that also fetch.
//!
//! Invariant: a row is found, changed and deleted only under the key that its own fields make. A transaction of
//! another database that uses the table fails with an error that says so.

use crate::error::Error;
use crate::field::{as_key, word_of};
use crate::index::{Index, Prefix, Select};
use crate::rows::{OrderedRow, Row};
use crate::transaction::Transaction;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use tarn_engine::transaction::working_set::Handle;
use tarn_store::ids::{Explanation, UsageError};
use tarn_store::schema::{Cells, IndexId, Key, TableId};

/// Does the same as [`Transaction::fetch`]. The body then polls the engine's future itself, which is a level less.
macro_rules! fetch {
    ($tx:ident) => {
        if let Err(failure) = $tx.engine().fetch().await {
            return Err($tx.explain(failure));
        }
    };
}

/// A row that a transaction has requested by its key.
///
/// ```
/// # use tarn::{Row, Tarn};
/// # #[derive(Row)]
/// # #[row(table = "players", key(id))]
/// # struct Player { id: u64, points: u64 }
/// # let game = Tarn::embedded().table::<Player>(100).open()?;
/// # let players = game.table::<Player>()?;
/// # let mut session = game.session()?;
/// let is_new = session.run(async |tx| {
///     let record = players.insert(tx, 7);
///     tx.fetch().await?;
///     assert_eq!(record.key(), 7);
///     let is_new = !players.existed(tx, record);
///     if is_new {
///         players.set(tx, record, &Player { id: 7, points: 3 });
///     }
///     tarn::Ok(is_new)
/// })?;
/// assert!(is_new);
/// # Ok::<(), tarn::Error>(())
/// ```
pub struct RecordHandle<R: Row> {
    handle: Handle,
    key: R::Key,
}

impl<R: Row> RecordHandle<R> {
    /// The key of the requested row.
    #[inline]
    pub fn key(&self) -> R::Key {
        self.key
    }
}

impl<R: Row> Clone for RecordHandle<R> {
    fn clone(&self) -> RecordHandle<R> {
        *self
    }
}

impl<R: Row> Copy for RecordHandle<R> {}

/// A table of one database, identified by the type of its rows: see [`Tarn::table`](crate::Tarn::table).
///
/// # Rounds
/// A transaction talks to memory in rounds. There are two ways to use a table:
/// - *Requests* ([`read`](Table::read), [`update`](Table::update), [`insert`](Table::insert),
///   [`delete`](Table::delete)) send nothing. [`Transaction::fetch`] then fetches everything that was requested, of
///   all tables, for the price of one row. [`get`](Table::get) and [`set`](Table::set) use the fetched rows.
/// - *Shorthands* (`async`) request and fetch. The documentation of each names its number of fetches.
///
/// The protocol decides how many rounds one fetch takes, for any number of rows: often one to find or read the rows,
/// and one to lock them (`docs/protocols` of the repository has a table for each protocol). Commit takes further
/// rounds. A call in a loop takes the rounds of each turn; the forms that end with `_many` take them once.
///
/// ```
/// use tarn::{Row, Tarn};
///
/// #[derive(Row, Clone, PartialEq, Debug)]
/// #[row(table = "stock", key(item))]
/// struct Stock {
///     item: u32,
///     pieces: u64,
/// }
///
/// let tarn = Tarn::embedded().table::<Stock>(100).open()?;
/// let stock = tarn.table::<Stock>()?;
/// let mut session = tarn.session()?;
/// session.run(async |tx| stock.put(tx, &Stock { item: 1, pieces: 5 }).await)?;
/// let left = session.run(async |tx| {
///     stock.modify(tx, 1, |row| { row.pieces -= 2; row.pieces }).await
/// })?;
/// assert_eq!(left, Some(3));
/// # Ok::<(), tarn::Error>(())
/// ```
pub struct Table<R> {
    id: TableId,
    /// The number of the table's first index in the catalog.
    first_index: u16,
    /// The number of the table's database: [`Database::number`](tarn_engine::site::Database::number).
    database: u64,
    row: PhantomData<fn() -> R>,
}

impl<R> Clone for Table<R> {
    fn clone(&self) -> Table<R> {
        *self
    }
}

impl<R> Copy for Table<R> {}

impl<R: Row> Table<R> {
    pub(crate) fn new(id: TableId, first_index: u16, database: u64) -> Table<R> {
        Table { id, first_index, database, row: PhantomData }
    }

    /// Whether this is a table of the database with this number.
    #[inline]
    pub(crate) fn is_of(&self, database: u64) -> bool {
        self.database == database
    }

    /// The number in the catalog of the table's index `number`.
    pub(crate) fn index_id(&self, number: u16) -> IndexId {
        IndexId(self.first_index + number)
    }

    /// Returns the error of a transaction of another database that uses this table.
    #[cold]
    pub(crate) fn foreign(&self) -> UsageError {
        let (field, value) = ("table".into(), format!("{} of another database", R::TABLE));
        UsageError { field, value, allowed: "tables of the session's own database".into() }
    }

    #[cold]
    pub(crate) fn refuse(&self, tx: &mut Transaction<'_>) -> Handle {
        tx.engine().refuse(Explanation::Usage(self.foreign()))
    }

    /// Returns the table's number, for use with [`Transaction::engine`].
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Requests a row by `request`, which gets the key in the engine's form.
    #[inline(always)]
    fn request(
        &self,
        tx: &mut Transaction<'_>,
        key: R::Key,
        request: impl FnOnce(&mut Transaction<'_>, Key<'_>) -> Handle,
    ) -> RecordHandle<R> {
        let handle = match self.is_of(tx.engine().database()) {
            true => as_key(&key, |key| request(tx, key)),
            false => self.refuse(tx),
        };
        RecordHandle { handle, key }
    }

    /// Requests a row that the transaction will read. The row is there after the next [`Transaction::fetch`].
    #[inline]
    pub fn read(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        self.request(tx, key, |tx, key| tx.engine().read(self.id, key, Cells::ALL))
    }

    /// Requests a row that the transaction will change. The fetch also locks the row.
    #[inline]
    pub fn update(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        self.request(tx, key, |tx, key| tx.engine().update(self.id, key, Cells::ALL))
    }

    /// Requests the insert of a row. After the fetch, [`Table::existed`] tells whether there was a row already. It
    /// stays unchanged. If the row is new, the caller must fill it by [`Table::set`], or the transaction fails.
    #[inline]
    pub fn insert(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        self.request(tx, key, |tx, key| tx.engine().insert(self.id, key))
    }

    /// Requests the deletion of a row. After the fetch, [`Table::existed`] tells whether there was a row.
    #[inline]
    pub fn delete(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        self.request(tx, key, |tx, key| tx.engine().delete(self.id, key))
    }

    /// Returns whether a fetched row existed for the operation with this handle. The row may exist in the database,
    /// or because of earlier operations of the same transaction.
    #[inline]
    pub fn existed(&self, tx: &Transaction<'_>, record: RecordHandle<R>) -> bool {
        tx.inner().existed(record.handle)
    }

    /// Returns a fetched row as the transaction sees it, including the transaction's own changes. `None` if there is
    /// no row.
    ///
    /// # Panics
    /// If the row was not fetched.
    #[inline]
    pub fn get(&self, tx: &Transaction<'_>, record: RecordHandle<R>) -> Option<R> {
        tx.inner().get(record.handle).map(|row| R::load(record.key, row.payload()))
    }

    /// Sets every column of a fetched row that was requested by [`Table::update`] or [`Table::insert`]. The commit
    /// fails if the row to update does not exist, if the row to insert already existed, or if the row has another key
    /// than the requested row.
    ///
    /// # Panics
    /// If the row was not fetched, or was requested by [`Table::read`].
    #[inline]
    pub fn set(&self, tx: &mut Transaction<'_>, record: RecordHandle<R>, row: &R) {
        if row.key() != record.key {
            return refuse_key(tx, R::TABLE);
        }
        tx.engine().set_row(record.handle, |payload| row.store(payload));
    }

    /// Reads one row, in one fetch.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn find(&self, tx: &mut Transaction<'_>, key: R::Key) -> Result<Option<R>, Error> {
        let record = self.read(tx, key);
        fetch!(tx);
        Ok(self.get(tx, record))
    }

    /// Reads several rows, in one fetch. The result has one place for each key, in the order of the keys.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn find_many(
        &self,
        tx: &mut Transaction<'_>,
        keys: impl IntoIterator<Item = R::Key>,
    ) -> Result<Vec<Option<R>>, Error> {
        let records: Vec<_> = keys.into_iter().map(|key| self.read(tx, key)).collect();
        fetch!(tx);
        Ok(records.into_iter().map(|record| self.get(tx, record)).collect())
    }

    /// Writes one row, whether there is a row under its key or not. This takes one fetch if there is, and two if
    /// there is none. Returns whether there was a row before.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn put(&self, tx: &mut Transaction<'_>, row: &R) -> Result<bool, Error> {
        let found = self.update(tx, row.key());
        fetch!(tx);
        if self.existed(tx, found) {
            self.set(tx, found, row);
            return Ok(true);
        }
        let inserted = self.insert(tx, row.key());
        fetch!(tx);
        self.set(tx, inserted, row);
        Ok(false)
    }

    /// Writes several rows, as by [`Table::put`], in as many fetches as one row takes. If several rows have one key,
    /// the last one stays. Returns the number of rows that were there before.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn put_many(&self, tx: &mut Transaction<'_>, rows: &[R]) -> Result<usize, Error> {
        let found: Vec<_> = rows.iter().map(|row| self.update(tx, row.key())).collect();
        fetch!(tx);
        let mut absent = Vec::new();
        for (record, row) in found.into_iter().zip(rows) {
            match self.existed(tx, record) {
                true => self.set(tx, record, row),
                false => absent.push((self.insert(tx, row.key()), row)),
            }
        }
        if absent.is_empty() {
            return Ok(rows.len());
        }
        fetch!(tx);
        let before = rows.len() - absent.len();
        for (inserted, row) in absent {
            match self.existed(tx, inserted) {
                false => self.set(tx, inserted, row),
                // An earlier row of the batch has the same key.
                true => _ = self.put(tx, row).await?,
            }
        }
        Ok(before)
    }

    /// Adds one row if there is none under its key, in one fetch. Returns whether the row was added. Unique indexes are
    /// checked later, at the commit ([`Error::violated_index`]).
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn add(&self, tx: &mut Transaction<'_>, row: &R) -> Result<bool, Error> {
        let record = self.insert(tx, row.key());
        fetch!(tx);
        if self.existed(tx, record) {
            return Ok(false);
        }
        self.set(tx, record, row);
        Ok(true)
    }

    /// Deletes one row, in one fetch. Returns whether there was a row.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn remove(&self, tx: &mut Transaction<'_>, key: R::Key) -> Result<bool, Error> {
        let record = self.delete(tx, key);
        fetch!(tx);
        Ok(self.existed(tx, record))
    }

    /// Deletes several rows, in one fetch. Returns the number of rows that there were.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn remove_many(
        &self,
        tx: &mut Transaction<'_>,
        keys: impl IntoIterator<Item = R::Key>,
    ) -> Result<usize, Error> {
        let records: Vec<_> = keys.into_iter().map(|key| self.delete(tx, key)).collect();
        fetch!(tx);
        Ok(records.into_iter().filter(|record| self.existed(tx, *record)).count())
    }

    /// Changes one row by `change`, in one fetch. Returns the result of `change`, or `None` if there is no row.
    ///
    /// `change` may change every field except the key. If it returns an error of yours, `?` on this error rolls the
    /// transaction back.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn modify<T>(
        &self,
        tx: &mut Transaction<'_>,
        key: R::Key,
        change: impl FnOnce(&mut R) -> T,
    ) -> Result<Option<T>, Error> {
        let record = self.update(tx, key);
        fetch!(tx);
        let Some(mut row) = self.get(tx, record) else { return Ok(None) };
        let result = change(&mut row);
        self.set(tx, record, &row);
        Ok(Some(result))
    }

    /// Changes several rows by `change`, in one fetch. The result has one place for each key, in the order of the
    /// keys. A key that repeats is changed again, and `change` sees the row as it was left before.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn modify_many<T>(
        &self,
        tx: &mut Transaction<'_>,
        keys: impl IntoIterator<Item = R::Key>,
        mut change: impl FnMut(&mut R) -> T,
    ) -> Result<Vec<Option<T>>, Error> {
        let records: Vec<_> = keys.into_iter().map(|key| self.update(tx, key)).collect();
        fetch!(tx);
        let mut results = Vec::with_capacity(records.len());
        for record in records {
            let row = self.get(tx, record);
            results.push(row.map(|mut row| {
                let result = change(&mut row);
                self.set(tx, record, &row);
                result
            }));
        }
        Ok(results)
    }

    /// The words of these keys, if the table's keys are words.
    pub(crate) fn words(keys: &[R::Key]) -> impl ExactSizeIterator<Item = u64> + Clone {
        keys.iter().map(word_of)
    }
}

impl<R: OrderedRow> Table<R> {
    fn by_key(&self) -> Index<R, R::Parts> {
        Index::new(*self, 0)
    }

    /// Selects all rows, in the order of their keys.
    pub fn all(&self) -> Select<R> {
        self.by_key().all()
    }

    /// Selects the rows whose keys lie in this range, in their order: see [`Index::range`].
    pub fn range<P: Prefix<R::Parts>>(&self, range: impl RangeBounds<P>) -> Select<R> {
        self.by_key().range(range)
    }

    /// Selects the rows whose keys begin with these fields, in the order of their keys: see [`Index::prefix`].
    pub fn prefix(&self, first: impl Prefix<R::Parts>) -> Select<R> {
        self.by_key().prefix(first)
    }
}

#[cold]
fn refuse_key(tx: &mut Transaction<'_>, table: &str) {
    let field = format!("set of a row of {table}");
    let (value, allowed) = ("a row with another key than its handle", "the key of the handle");
    tx.engine().refuse(Explanation::usage(&field, value, allowed));
}
