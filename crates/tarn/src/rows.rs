//! Typed rows: a struct for a table's columns, and the operations of a transaction on it.
//!
//! Invariant: a row's columns are its fields in their order; nothing else is stored.

use std::marker::PhantomData;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;
use tarn_store::ids::{Explanation, Failure, UsageError};
use tarn_store::schema::row::Row;
use tarn_store::schema::{Cells, ColumnId, ColumnType, Key, KeyWidth, TableId, TableSchema};

/// A type that a column can have.
pub trait Field: Sized {
    /// The column's type.
    const COLUMN_TYPE: ColumnType;
    /// Makes a value from the column's bytes.
    fn load(bytes: &[u8]) -> Self;
    /// Sets the column.
    fn store(&self, tx: &mut Transaction<'_>, handle: Handle, column: ColumnId);
}

macro_rules! integer_fields {
    ($($type:ty: $column:ident as $stored:ty),+ $(,)?) => {$(
        impl Field for $type {
            const COLUMN_TYPE: ColumnType = ColumnType::$column;

            #[inline]
            fn load(bytes: &[u8]) -> $type {
                <$type>::from_le_bytes(bytes.try_into().expect("the column's width"))
            }

            #[inline]
            fn store(&self, tx: &mut Transaction<'_>, handle: Handle, column: ColumnId) {
                tx.set(handle, column, <$stored>::from(*self));
            }
        }
    )+};
}

integer_fields! { u8: U8 as u64, u16: U16 as u64, u32: U32 as u64, u64: U64 as u64, i64: I64 as i64 }

impl<const N: usize> Field for [u8; N] {
    const COLUMN_TYPE: ColumnType = {
        assert!(N > 0 && N <= u16::MAX as usize);
        ColumnType::Bytes(N as u16)
    };

    #[inline]
    fn load(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("the column's width")
    }

    #[inline]
    fn store(&self, tx: &mut Transaction<'_>, handle: Handle, column: ColumnId) {
        tx.set(handle, column, self);
    }
}

/// A type that a primary key can have: a word, or bytes where a word does not suffice.
pub trait PrimaryKey {
    /// Its width in the schema.
    const WIDTH: KeyWidth;
    /// The key in the engine's form.
    fn as_key(&self) -> Key<'_>;
}

impl PrimaryKey for u64 {
    const WIDTH: KeyWidth = KeyWidth::Word;

    #[inline]
    fn as_key(&self) -> Key<'_> {
        Key::Word(*self)
    }
}

impl<const N: usize> PrimaryKey for [u8; N] {
    const WIDTH: KeyWidth = {
        assert!(N > 0 && N <= tarn_store::schema::KEY_BYTES_MAX);
        KeyWidth::Bytes(N as u8)
    };

    fn as_key(&self) -> Key<'_> {
        Key::Bytes(self)
    }
}

/// A table's row; [`row!`](crate::row!) writes the implementation.
pub trait Record: Sized {
    /// The table's name.
    const TABLE: &'static str;
    /// Its columns' names and types.
    const COLUMNS: &'static [(&'static str, ColumnType)];
    /// Its primary key.
    type Key: PrimaryKey;

    /// Makes a value from a stored row.
    fn load(row: &Row<'_>) -> Self;

    /// Sets every column.
    fn store(&self, tx: &mut Transaction<'_>, handle: Handle);

    /// The table's schema.
    fn schema(expected_records: u64) -> TableSchema {
        let mut schema = TableSchema::new(Self::TABLE, expected_records);
        schema.key = Self::Key::WIDTH;
        let columns = Self::COLUMNS.iter();
        columns.fold(schema, |schema, (name, column_type)| schema.column(name, *column_type))
    }
}

/// Declares a table: a struct of its columns, its name, the type of its primary key. Columns are
/// `u8`, `u16`, `u32`, `u64`, `i64` or `[u8; N]`; a key is `u64` or `[u8; N]`.
///
/// ```
/// tarn::row! {
///     /// A stock item.
///     #[derive(Clone, PartialEq, Debug)]
///     pub struct Item in "stock" by [u8; 12] {
///         /// Pieces.
///         pub pieces: u32,
///         /// Their place.
///         pub shelf: [u8; 8],
///     }
/// }
/// use tarn::Record;
/// assert_eq!(Item::schema(10).payload_bytes(), 12);
/// ```
#[macro_export]
macro_rules! row {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident in $table:literal by $key:ty {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident : $type:ty),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $type),+
        }

        impl $crate::Record for $name {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [(&'static str, $crate::ColumnType)] =
                &[$((stringify!($field), <$type as $crate::Field>::COLUMN_TYPE)),+];
            type Key = $key;

            fn load(row: &$crate::__private::Row<'_>) -> Self {
                let mut columns = (0..).map($crate::ColumnId);
                $(let $field = <$type as $crate::Field>::load(
                    row.bytes(columns.next().expect("a row has at most 64 columns")),
                );)+
                Self { $($field),+ }
            }

            fn store(
                &self,
                tx: &mut $crate::Transaction<'_>,
                handle: $crate::__private::Handle,
            ) {
                let mut columns = (0..).map($crate::ColumnId);
                $($crate::Field::store(
                    &self.$field,
                    tx,
                    handle,
                    columns.next().expect("a row has at most 64 columns"),
                );)+
            }
        }
    };
}

/// A record that a transaction has asked for.
pub struct RecordHandle<R> {
    handle: Handle,
    row: PhantomData<fn() -> R>,
}

impl<R> Clone for RecordHandle<R> {
    fn clone(&self) -> RecordHandle<R> {
        *self
    }
}

impl<R> Copy for RecordHandle<R> {}

/// A table of one database, by the type of its rows. A transaction of another database that uses it
/// fails, and says so.
pub struct Table<R> {
    id: TableId,
    /// [`Database::number`](tarn_engine::site::Database::number).
    database: u64,
    row: PhantomData<fn() -> R>,
}

impl<R> Clone for Table<R> {
    fn clone(&self) -> Table<R> {
        *self
    }
}

impl<R> Copy for Table<R> {}

impl<R: Record> Table<R> {
    pub(crate) fn new(id: TableId, database: u64) -> Table<R> {
        Table { id, database, row: PhantomData }
    }

    /// Whether this is a table of the database with this number.
    #[inline]
    pub(crate) fn is_of(&self, database: u64) -> bool {
        self.database == database
    }

    /// The error for a transaction of another database.
    #[cold]
    pub(crate) fn foreign(&self) -> UsageError {
        let (field, value) = ("table".into(), format!("{} of another database", R::TABLE));
        UsageError { field, value, allowed: "tables of the session's own database".into() }
    }

    #[cold]
    fn refuse(&self, tx: &mut Transaction<'_>) -> RecordHandle<R> {
        handle(tx.refuse(Explanation::Usage(self.foreign())))
    }

    /// Returns the table's number, for the engine's own interface.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Asks for a record that will be read. The record is there after the next
    /// [`Transaction::fetch`].
    #[inline]
    pub fn read(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.read(self.id, key.as_key(), Cells::ALL))
    }

    /// Asks for a record that will be changed; the fetch locks it as well.
    #[inline]
    pub fn update(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.update(self.id, key.as_key(), Cells::ALL))
    }

    /// Asks for a record to be inserted. After the fetch, [`Table::existed`] says whether the
    /// record was there already; then it stays as it is. Otherwise [`Table::set`] must fill it, or
    /// the transaction fails.
    pub fn insert(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.insert(self.id, key.as_key()))
    }

    /// Like [`Table::insert`], for a record whose columns are zeros unless it is set.
    pub fn insert_zeros(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.insert_zeros(self.id, key.as_key()))
    }

    /// Asks for a record to be deleted; after the fetch [`Table::existed`] says whether it was
    /// there.
    pub fn delete(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.delete(self.id, key.as_key()))
    }

    /// Returns whether a fetched record was there for the operation that has this handle: in the
    /// database, or by the transaction's own earlier operations.
    pub fn existed(&self, tx: &Transaction<'_>, record: RecordHandle<R>) -> bool {
        tx.existed(record.handle)
    }

    /// Returns a fetched record as the transaction sees it, its own changes included; `None` if it
    /// does not exist.
    ///
    /// # Panics
    /// If the record was not fetched.
    #[inline]
    pub fn get(&self, tx: &Transaction<'_>, record: RecordHandle<R>) -> Option<R> {
        tx.get(record.handle).map(|row| R::load(&row))
    }

    /// Sets every column of a fetched record that was asked for by [`Table::update`] or
    /// [`Table::insert`]. The transaction fails when it commits if the record to update is missing,
    /// or if the record to insert was there.
    ///
    /// # Panics
    /// If the record was not fetched, or was asked for by [`Table::read`].
    #[inline]
    pub fn set(&self, tx: &mut Transaction<'_>, record: RecordHandle<R>, row: &R) {
        row.store(tx, record.handle);
    }

    /// Reads one record, with a fetch of its own.
    ///
    /// # Errors
    /// Those of [`Transaction::fetch`].
    pub async fn find(&self, tx: &mut Transaction<'_>, key: R::Key) -> Result<Option<R>, Failure> {
        let record = self.read(tx, key);
        tx.fetch().await?;
        Ok(self.get(tx, record))
    }

    /// Writes one record, new or not, with fetches of its own. Returns whether the record was
    /// there.
    ///
    /// # Errors
    /// Those of [`Transaction::fetch`].
    pub async fn put(
        &self,
        tx: &mut Transaction<'_>,
        key: R::Key,
        row: &R,
    ) -> Result<bool, Failure> {
        if !self.is_of(tx.database()) {
            self.refuse(tx);
            tx.fetch().await?;
        }
        let found = handle::<R>(tx.update(self.id, key.as_key(), Cells::ALL));
        tx.fetch().await?;
        if self.existed(tx, found) {
            self.set(tx, found, row);
            return Ok(true);
        }
        let inserted = self.insert(tx, key);
        tx.fetch().await?;
        self.set(tx, inserted, row);
        Ok(false)
    }
}

fn handle<R>(handle: Handle) -> RecordHandle<R> {
    RecordHandle { handle, row: PhantomData }
}
