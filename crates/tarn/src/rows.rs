//! Typed rows: a struct for a table's columns, and the operations of a transaction on such rows.
//!
//! Invariant: a row's columns are the fields of its struct in their order. The database stores nothing else for a
//! row.

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
    /// Creates a value from the column's bytes.
    fn load(bytes: &[u8]) -> Self;
    /// Sets the column of the record with this handle.
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

/// A type that a primary key can have: a word, or bytes if the key does not fit in a word.
pub trait PrimaryKey {
    /// The width of the key in the schema.
    const WIDTH: KeyWidth;
    /// Returns the key in the engine's form.
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

/// The row of a table. The macro [`row!`](crate::row!) writes the implementation of this trait.
pub trait Record: Sized {
    /// The table's name.
    const TABLE: &'static str;
    /// The names and types of the table's columns.
    const COLUMNS: &'static [(&'static str, ColumnType)];
    /// The type of the table's primary key.
    type Key: PrimaryKey;

    /// Creates a value from a stored row.
    fn load(row: &Row<'_>) -> Self;

    /// Sets every column of the record with this handle.
    fn store(&self, tx: &mut Transaction<'_>, handle: Handle);

    /// The table's schema.
    fn schema(expected_records: u64) -> TableSchema {
        let mut schema = TableSchema::new(Self::TABLE, expected_records);
        schema.key = Self::Key::WIDTH;
        let columns = Self::COLUMNS.iter();
        columns.fold(schema, |schema, (name, column_type)| schema.column(name, *column_type))
    }
}

/// Declares a table: a struct of its columns, its name, and the type of its primary key. The types of columns are
/// `u8`, `u16`, `u32`, `u64`, `i64` or `[u8; N]`. The type of a key is `u64` or `[u8; N]`.
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

/// A record that a transaction has requested.
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

/// A table of one database, identified by the type of its rows. If a transaction of another database uses the table,
/// the transaction fails with an error that says so.
pub struct Table<R> {
    id: TableId,
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

impl<R: Record> Table<R> {
    pub(crate) fn new(id: TableId, database: u64) -> Table<R> {
        Table { id, database, row: PhantomData }
    }

    /// Whether this is a table of the database with this number.
    #[inline]
    pub(crate) fn is_of(&self, database: u64) -> bool {
        self.database == database
    }

    /// Returns the error of a transaction of another database that uses this table.
    #[cold]
    pub(crate) fn foreign(&self) -> UsageError {
        let (field, value) = ("table".into(), format!("{} of another database", R::TABLE));
        UsageError { field, value, allowed: "tables of the session's own database".into() }
    }

    #[cold]
    fn refuse(&self, tx: &mut Transaction<'_>) -> RecordHandle<R> {
        handle(tx.refuse(Explanation::Usage(self.foreign())))
    }

    /// Returns the table's number, for use with the engine's own interface.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Requests a record that the transaction will read. The record is available after the next
    /// [`Transaction::fetch`].
    #[inline]
    pub fn read(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.read(self.id, key.as_key(), Cells::ALL))
    }

    /// Requests a record that the transaction will change. The fetch also locks the record.
    #[inline]
    pub fn update(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.update(self.id, key.as_key(), Cells::ALL))
    }

    /// Requests the insert of a record. After the fetch, [`Table::existed`] tells whether the record already existed.
    /// An existing record stays unchanged. If the record is new, the caller must fill it by [`Table::set`], or the
    /// transaction fails.
    pub fn insert(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.insert(self.id, key.as_key()))
    }

    /// Does the same as [`Table::insert`], for a record whose columns are zeros unless the caller sets them.
    pub fn insert_zeros(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.insert_zeros(self.id, key.as_key()))
    }

    /// Requests the deletion of a record. After the fetch, [`Table::existed`] tells whether the record existed.
    pub fn delete(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.delete(self.id, key.as_key()))
    }

    /// Returns whether a fetched record existed for the operation with this handle. The record may exist in the
    /// database, or because of earlier operations of the same transaction.
    pub fn existed(&self, tx: &Transaction<'_>, record: RecordHandle<R>) -> bool {
        tx.existed(record.handle)
    }

    /// Returns a fetched record as the transaction sees it, including the transaction's own changes. `None` if the
    /// record does not exist.
    ///
    /// # Panics
    /// If the record was not fetched.
    #[inline]
    pub fn get(&self, tx: &Transaction<'_>, record: RecordHandle<R>) -> Option<R> {
        tx.get(record.handle).map(|row| R::load(&row))
    }

    /// Sets every column of a fetched record that was requested by [`Table::update`] or [`Table::insert`]. The commit
    /// fails if the record to update does not exist, or if the record to insert already existed.
    ///
    /// # Panics
    /// If the record was not fetched, or was requested by [`Table::read`].
    #[inline]
    pub fn set(&self, tx: &mut Transaction<'_>, record: RecordHandle<R>, row: &R) {
        row.store(tx, record.handle);
    }

    /// Reads one record. This function fetches the record itself.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
    pub async fn find(&self, tx: &mut Transaction<'_>, key: R::Key) -> Result<Option<R>, Failure> {
        let record = self.read(tx, key);
        tx.fetch().await?;
        Ok(self.get(tx, record))
    }

    /// Writes one record, whether it exists or not. This function fetches the record itself. Returns whether the
    /// record existed before.
    ///
    /// # Errors
    /// The same errors as [`Transaction::fetch`].
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
