//! Typed rows: a struct for a table's columns, and what a transaction does with it.
//!
//! Invariant: a row's columns are its fields in their order; nothing is stored that the struct does
//! not say.

use std::marker::PhantomData;
use tarn_engine::session::transaction::Transaction;
use tarn_engine::transaction::working_set::Handle;
use tarn_store::ids::{Explanation, Failure, UsageError};
use tarn_store::schema::row::Row;
use tarn_store::schema::{Cells, ColumnId, ColumnType, Key, KeyWidth, TableId, TableSchema};

/// What a column can hold.
pub trait Field: Sized {
    /// The column's type.
    const COLUMN_TYPE: ColumnType;
    /// From the column's bytes.
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

/// What a primary key can be: a word, or bytes where no word will do.
pub trait PrimaryKey {
    /// Its width in the schema.
    const WIDTH: KeyWidth;
    /// As the engine takes it.
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

    /// From a stored row.
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
///     /// What is in stock.
///     #[derive(Clone, PartialEq, Debug)]
///     pub struct Item in "stock" by [u8; 12] {
///         /// Pieces.
///         pub pieces: u32,
///         /// Where they lie.
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
                    row.bytes(columns.next().expect("64 columns at the most")),
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
                    columns.next().expect("64 columns at the most"),
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

/// A table of the database, by the type of its rows: of that database alone. A transaction of another one fails, and says so.
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

    /// What there is to say to a transaction of another database.
    #[cold]
    pub(crate) fn foreign(&self) -> UsageError {
        let (field, value) = ("table".into(), format!("{} of another database", R::TABLE));
        UsageError { field, value, allowed: "tables of the session's own database".into() }
    }

    #[cold]
    fn refuse(&self, tx: &mut Transaction<'_>) -> RecordHandle<R> {
        handle(tx.refuse(Explanation::Usage(self.foreign())))
    }

    /// The table's number, for the engine's own interface.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Asks for a record that will be read. It is there after the next [`Transaction::fetch`].
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

    /// Asks for a record to be inserted: after the fetch, [`Table::existed`] says whether it was
    /// there already (then it stays as it is); otherwise [`Table::set`] fills it, without which the transaction fails.
    pub fn insert(&self, tx: &mut Transaction<'_>, key: R::Key) -> RecordHandle<R> {
        if !self.is_of(tx.database()) {
            return self.refuse(tx);
        }
        handle(tx.insert(self.id, key.as_key()))
    }

    /// As [`Table::insert`], of a record whose columns are zeros unless it is set.
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

    /// Whether a fetched record was there for the operation whose handle this is: in the database, or by what the transaction had
    /// done before.
    pub fn existed(&self, tx: &Transaction<'_>, record: RecordHandle<R>) -> bool {
        tx.existed(record.handle)
    }

    /// A fetched record as the transaction sees it, its own changes included; `None` if there is
    /// none.
    ///
    /// # Panics
    /// If it was not fetched.
    #[inline]
    pub fn get(&self, tx: &Transaction<'_>, record: RecordHandle<R>) -> Option<R> {
        tx.get(record.handle).map(|row| R::load(&row))
    }

    /// Sets every column of a fetched record that was asked for by [`Table::update`] or
    /// [`Table::insert`]. Where there is none to update, or one where one was to be inserted, the transaction fails when it
    /// commits.
    ///
    /// # Panics
    /// If it was not fetched, or was asked for by [`Table::read`].
    #[inline]
    pub fn set(&self, tx: &mut Transaction<'_>, record: RecordHandle<R>, row: &R) {
        row.store(tx, record.handle);
    }

    /// Reads one record, with a fetch of its own.
    ///
    /// # Errors
    /// As [`Transaction::fetch`].
    pub async fn find(&self, tx: &mut Transaction<'_>, key: R::Key) -> Result<Option<R>, Failure> {
        let record = self.read(tx, key);
        tx.fetch().await?;
        Ok(self.get(tx, record))
    }

    /// Writes one record, new or not, with fetches of its own. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Transaction::fetch`].
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
