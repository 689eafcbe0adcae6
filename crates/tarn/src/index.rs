//! Ordered indexes, and the rows that a program selects by them.
//!
//! Invariant: a selection shows all rows of its range and no other, as of the moment of the transaction. No row comes
//! into the range before the transaction commits. The order of the rows is the order of the index.

use crate::error::Error;
use crate::field::{Ordered, from_key};
use crate::rows::{Part, Row};
use crate::table::{RecordHandle, Table};
use crate::transaction::Transaction;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use tarn_store::schema::INDEX_KEY_BYTES_MAX;
use tarn_store::schema::range::{IndexKey, Scan, ScanHandle};

/// An ordered index of a table over fields with the types `K`: a method of the table that `#[derive(Row)]` writes.
///
/// A selection is made by [`prefix`](Index::prefix), [`range`](Index::range) or [`all`](Index::all). The methods of
/// [`Select`] then read it.
///
/// ```
/// use tarn::{Row, Tarn};
///
/// #[derive(Row, Clone, PartialEq, Debug)]
/// #[row(table = "visits", key(id), index(by_day(shop, day)))]
/// struct Visit {
///     id: u64,
///     shop: u32,
///     day: i32,
/// }
///
/// let tarn = Tarn::embedded().table::<Visit>(100).open()?;
/// let visits = tarn.table::<Visit>()?;
/// let ids = |rows: Vec<Visit>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
/// tarn.session()?.run(async |tx| {
///     for (id, shop, day) in [(1, 5, -3), (2, 5, 0), (3, 5, 4), (4, 6, -9)] {
///         visits.put(tx, &Visit { id, shop, day }).await?;
///     }
///     let by_day = visits.by_day();
///     assert_eq!(ids(by_day.prefix(5).rows(tx).await?), [1, 2, 3]);
///     assert_eq!(ids(by_day.range((5, -3)..(5, 4)).rows(tx).await?), [1, 2]);
///     assert_eq!(ids(by_day.all().rev().limit(2).rows(tx).await?), [4, 3]);
///     assert_eq!(by_day.prefix((5,)).count(tx).await?, 3);
///     assert!(by_day.prefix(7).is_empty(tx).await?);
///     tarn::Ok(())
/// })?;
/// # Ok::<(), tarn::Error>(())
/// ```
///
/// The fields of a prefix have the types of the index:
///
/// ```compile_fail,E0277
/// # use tarn::{Row, Tarn};
/// # #[derive(Row)]
/// # #[row(table = "visits", key(id), index(by_day(shop, day)))]
/// # struct Visit { id: u64, shop: u32, day: i32 }
/// fn of(visits: tarn::Table<Visit>) -> tarn::Select<Visit> {
///     visits.by_day().prefix("a shop")
/// }
/// ```
pub struct Index<R, K> {
    table: Table<R>,
    /// The number of the index among the indexes of its table.
    number: u16,
    key: PhantomData<fn() -> K>,
}

impl<R, K> Clone for Index<R, K> {
    fn clone(&self) -> Index<R, K> {
        *self
    }
}

impl<R, K> Copy for Index<R, K> {}

/// The index with this number of a table.
#[doc(hidden)]
#[inline]
pub fn index<R: Row, K>(table: &Table<R>, number: u16) -> Index<R, K> {
    Index::new(*table, number)
}

impl<R: Row, K> Index<R, K> {
    pub(crate) fn new(table: Table<R>, number: u16) -> Index<R, K> {
        Index { table, number, key: PhantomData }
    }

    /// Selects all rows of the table.
    pub fn all(&self) -> Select<R> {
        self.between(Some(IndexKey::new()), Some(IndexKey::new()))
    }

    /// Selects the rows whose first fields of the index have these values: one value, or a tuple of values.
    pub fn prefix(&self, first: impl Prefix<K>) -> Select<R> {
        let key = Some(self.key_of(&first));
        self.between(key, key)
    }

    /// Selects the rows between two values of the first fields of the index. `a..b` selects the rows from `a` on and
    /// before all rows that begin with `b`. `a..=b` also selects all rows that begin with `b`.
    pub fn range<P: Prefix<K>>(&self, range: impl RangeBounds<P>) -> Select<R> {
        let from = match range.start_bound() {
            Bound::Included(first) => Some(self.key_of(first)),
            Bound::Excluded(first) => self.key_of(first).after(),
            Bound::Unbounded => Some(IndexKey::new()),
        };
        let to = match range.end_bound() {
            Bound::Included(last) => Some(self.key_of(last)),
            Bound::Excluded(end) => self.key_of(end).before(),
            Bound::Unbounded => Some(IndexKey::new()),
        };
        self.between(from, to)
    }

    fn key_of(&self, first: &impl Prefix<K>) -> IndexKey {
        let parts = R::INDEXES[usize::from(self.number)].parts;
        let mut key = Fields { key: IndexKey::new(), parts };
        first.push(&mut key);
        key.key
    }

    /// Selects the rows between two keys. `None` means that no key is so low, or so high.
    fn between(&self, from: Option<IndexKey>, to: Option<IndexKey>) -> Select<R> {
        let scan = from.zip(to).map(|(from, to)| Scan::range(from, to));
        Select { table: self.table, number: self.number, scan }
    }
}

/// The first fields of an index with fields of the types `K`: the first field alone, or a tuple.
///
/// ```
/// use tarn::{Prefix, Row, Select, Table};
///
/// #[derive(Row)]
/// #[row(table = "visits", key(id), index(by_day(shop, day)))]
/// struct Visit {
///     id: u64,
///     shop: u32,
///     day: i32,
/// }
///
/// fn of(visits: Table<Visit>, first: impl Prefix<(u32, i32)>) -> Select<Visit> {
///     visits.by_day().prefix(first)
/// }
///
/// # fn both(visits: Table<Visit>) {
/// let of_shop = of(visits, 5);
/// let of_day = of(visits, (5, -3));
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the beginning of a key with the fields `{K}`",
    note = "the first field, or a tuple of the first fields, each with the type of its field"
)]
pub trait Prefix<K> {
    /// Adds the fields to a key.
    #[doc(hidden)]
    fn push(&self, to: &mut Fields);
}

/// The fields of an index key that were added so far.
#[doc(hidden)]
pub struct Fields {
    key: IndexKey,
    /// The parts of the index that are left.
    parts: &'static [Part],
}

impl Fields {
    fn add<T: Ordered>(&mut self, value: &T) {
        let mut bytes = [0; INDEX_KEY_BYTES_MAX];
        let [part, rest @ ..] = self.parts else { return };
        self.parts = rest;
        let to = &mut bytes[..T::BYTES];
        value.encode(to);
        self.key = match (part, to.first_chunk()) {
            (Part::Column { is_signed: true, .. }, Some(word)) => {
                self.key.i64((u64::from_be_bytes(*word) ^ 1 << 63) as i64)
            }
            _ => self.key.bytes(to, T::BYTES),
        };
    }
}

macro_rules! prefixes {
    ($(($($key:ident),+): $(($($name:ident $at:tt),+)),+;)+) => {$(
        impl<$($key: Ordered),+> Prefix<($($key,)+)> for A {
            fn push(&self, to: &mut Fields) {
                to.add(self);
            }
        }

        prefixes! { @tuples ($($key),+) $(($($name $at),+))+ }
    )+};
    (@tuples $keys:tt $($tuple:tt)+) => {
        $(prefixes! { @tuple $keys $tuple })+
    };
    (@tuple ($($key:ident),+) ($($name:ident $at:tt),+)) => {
        impl<$($key: Ordered),+> Prefix<($($key,)+)> for ($($name,)+) {
            fn push(&self, to: &mut Fields) {
                $(to.add(&self.$at);)+
            }
        }
    };
}

prefixes! {
    (A): (A 0);
    (A, B): (A 0), (A 0, B 1);
    (A, B, C): (A 0), (A 0, B 1), (A 0, B 1, C 2);
    (A, B, C, D): (A 0), (A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3);
    (A, B, C, D, E): (A 0), (A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3),
        (A 0, B 1, C 2, D 3, E 4);
    (A, B, C, D, E, F): (A 0), (A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3),
        (A 0, B 1, C 2, D 3, E 4), (A 0, B 1, C 2, D 3, E 4, F 5);
}

/// Rows that a program selects by an index, in the order of the index.
///
/// # Rounds
/// [`request`](Select::request) plans the scan for the next [`Transaction::fetch`], with everything else that is
/// requested. A fetch with a scan reads one page of a few leaves in a round. A scan takes one round in an index whose
/// inner nodes the thread has cached, and one more for each further page. The rows themselves lie elsewhere:
/// [`rows`](Select::rows) takes one fetch for the index and one for all rows together. [`count`](Select::count),
/// [`is_empty`](Select::is_empty) and [`keys`](Select::keys) need no rows, and take the first fetch alone.
///
/// Each row of [`rows`](Select::rows) counts as a record of the transaction, so a large table is read in several
/// transactions: `range(last..)` with a [`limit`](Select::limit).
///
/// ```
/// # use tarn::{Row, Tarn};
/// # #[derive(Row)]
/// # #[row(table = "players", key(id), index(by_points(points)))]
/// # struct Player { id: u64, points: u64 }
/// # let game = Tarn::embedded().table::<Player>(100).open()?;
/// # let players = game.table::<Player>()?;
/// let best = players.by_points().all().rev().limit(2);
/// let ids = game.session()?.run(async |tx| {
///     for (id, points) in [(1, 30), (2, 50), (3, 40)] {
///         players.put(tx, &Player { id, points }).await?;
///     }
///     best.keys(tx).await
/// })?;
/// assert_eq!(ids, [2, 3]);
/// # Ok::<(), tarn::Error>(())
/// ```
pub struct Select<R> {
    table: Table<R>,
    number: u16,
    /// The scan of the index. `None` if the range is empty.
    scan: Option<Scan>,
}

impl<R> Clone for Select<R> {
    fn clone(&self) -> Select<R> {
        *self
    }
}

impl<R> Copy for Select<R> {}

impl<R: Row> Select<R> {
    /// Reverses the order: the last row comes first.
    #[must_use]
    pub fn rev(mut self) -> Select<R> {
        if let Some(scan) = &mut self.scan {
            scan.backward = !scan.backward;
        }
        self
    }

    /// Selects only the first `rows` rows. The transaction depends on no later row.
    #[must_use]
    pub fn limit(mut self, rows: u32) -> Select<R> {
        if let Some(scan) = &mut self.scan {
            scan.limit = scan.limit.min(rows);
        }
        self
    }

    /// Requests the selection. After the next [`Transaction::fetch`], the methods of [`Selected`] show its keys.
    pub fn request(&self, tx: &mut Transaction<'_>) -> Selected<R> {
        let Select { table, number, scan } = *self;
        if !table.is_of(tx.engine().database()) {
            table.refuse(tx);
            return Selected { table, scan: None };
        }
        let index = table.index_id(number);
        let scan =
            scan.map(|scan| match scan.limit == 1 && !scan.backward && scan.from == scan.to {
                true => tx.engine().seek(index, scan.from),
                false => tx.engine().scan(index, scan),
            });
        Selected { table, scan }
    }

    async fn fetch(&self, tx: &mut Transaction<'_>) -> Result<Selected<R>, Error> {
        let selected = self.request(tx);
        tx.fetch().await?;
        Ok(selected)
    }

    /// Reads the rows, in two fetches.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn rows(&self, tx: &mut Transaction<'_>) -> Result<Vec<R>, Error> {
        let keys = self.keys(tx).await?;
        let rows = self.table.find_many(tx, keys).await?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// Reads the rows and locks them, in two fetches. [`Table::set`] changes a row by its handle.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn update(
        &self,
        tx: &mut Transaction<'_>,
    ) -> Result<Vec<(RecordHandle<R>, R)>, Error> {
        let keys = self.keys(tx).await?;
        let records: Vec<_> = keys.into_iter().map(|key| self.table.update(tx, key)).collect();
        tx.fetch().await?;
        let row = |record| Some((record, self.table.get(tx, record)?));
        Ok(records.into_iter().filter_map(row).collect())
    }

    /// Reads the first row, in two fetches.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn first(&self, tx: &mut Transaction<'_>) -> Result<Option<R>, Error> {
        let keys = self.limit(1).keys(tx).await?;
        let Some(key) = keys.first() else { return Ok(None) };
        self.table.find(tx, *key).await
    }

    /// Reads the primary keys of the rows, in one fetch.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn keys(&self, tx: &mut Transaction<'_>) -> Result<Vec<R::Key>, Error> {
        let selected = self.fetch(tx).await?;
        Ok(selected.keys(tx).collect())
    }

    /// Counts the rows, in one fetch.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn count(&self, tx: &mut Transaction<'_>) -> Result<usize, Error> {
        let selected = self.fetch(tx).await?;
        Ok(selected.keys(tx).count())
    }

    /// Whether there is no row, in one fetch.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn is_empty(&self, tx: &mut Transaction<'_>) -> Result<bool, Error> {
        Ok(self.limit(1).count(tx).await? == 0)
    }
}

/// A selection that a transaction has requested.
///
/// ```
/// # use tarn::{Row, Tarn};
/// # #[derive(Row)]
/// # #[row(table = "players", key(id), index(by_points(points)))]
/// # struct Player { id: u64, points: u64 }
/// # let game = Tarn::embedded().table::<Player>(100).open()?;
/// # let players = game.table::<Player>()?;
/// # let mut session = game.session()?;
/// # session.run(async |tx| players.put(tx, &Player { id: 7, points: 3 }).await)?;
/// let (found, rich) = session.run(async |tx| {
///     let player = players.read(tx, 7);
///     let rich = players.by_points().range(2..).request(tx);
///     tx.fetch().await?; // the row and the selection, in one fetch
///     tarn::Ok((players.get(tx, player).is_some(), rich.keys(tx).count()))
/// })?;
/// assert_eq!((found, rich), (true, 1));
/// # Ok::<(), tarn::Error>(())
/// ```
pub struct Selected<R> {
    table: Table<R>,
    scan: Option<ScanHandle>,
}

impl<R> Clone for Selected<R> {
    fn clone(&self) -> Selected<R> {
        *self
    }
}

impl<R> Copy for Selected<R> {}

impl<R: Row> Selected<R> {
    /// The table of the selected rows.
    pub fn table(&self) -> Table<R> {
        self.table
    }

    /// The primary keys of the rows, after the fetch.
    ///
    /// # Panics
    /// If the selection was not fetched.
    pub fn keys(&self, tx: &Transaction<'_>) -> impl Iterator<Item = R::Key> {
        let entries = self.scan.map(|scan| tx.inner().scanned(scan));
        entries.into_iter().flatten().map(|entry| from_key(entry.record))
    }
}
