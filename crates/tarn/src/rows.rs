//! Rows: the trait of a struct that is a row of a table, and the table's schema that follows from the struct.
//!
//! Invariant: the fields of the key make the primary key, and are stored nowhere else. All other fields are columns,
//! in the order of the struct, each at an offset that is known when the program is compiled.

use crate::field::{Field, Ordered, key_width, load_column, store_column};
use tarn_store::schema::{
    ColumnId, ColumnType, INDEX_KEY_BYTES_MAX, IndexPart, KEY_BYTES_MAX, KeyWidth,
    PAYLOAD_BYTES_MAX, TableSchema,
};

/// The row of a table. `#[derive(Row)]` implements this trait for a struct with named fields.
///
/// The attribute `#[row(...)]` has these parts:
/// - `table = "NAME"` is the table's name.
/// - `key(FIELD, ...)` names the fields of the primary key. A key of several fields is passed as a tuple. A key of up
///   to 8 bytes is the fastest kind. A key has at most 64 bytes.
/// - `ordered` keeps the rows in the order of their keys as well. Then [`Table::all`](crate::Table::all),
///   [`Table::range`](crate::Table::range) and [`Table::prefix`](crate::Table::prefix) exist.
/// - `index(NAME(FIELD, ...))` adds an ordered index, and `unique(NAME(FIELD, ...))` one in which no two rows have
///   the same fields. Each index becomes a method of the table, in a trait with the name of the struct and `Indexes`.
///   A module that does not contain the struct imports this trait.
///
/// An index costs each insert, each delete, and each change of its fields a write in one more place. All columns of a
/// row together have at most 16 KiB.
///
/// ```
/// use tarn::{Error, Field, Row, Tarn, Text};
///
/// #[derive(Field, Clone, Copy, PartialEq, Debug)]
/// enum Status {
///     Open,
///     Paid,
/// }
///
/// #[derive(Row, Clone, PartialEq, Debug)]
/// #[row(table = "orders", key(shop, number), ordered, index(by_status(status, placed)))]
/// struct Order {
///     shop: u16,
///     number: u32,
///     customer: Text<20>,
///     status: Status,
///     placed: u64,
///     coupon: Option<Text<8>>,
/// }
///
/// let tarn = Tarn::embedded().table::<Order>(100).open()?;
/// let orders = tarn.table::<Order>()?;
/// let customer = Text::new("Ada")?;
/// let status = Status::Open;
/// let order = Order { shop: 1, number: 7, customer, status, placed: 100, coupon: None };
/// let open = tarn.session()?.run(async |tx| {
///     orders.put(tx, &order).await?;
///     orders.put(tx, &Order { number: 8, placed: 90, ..order.clone() }).await?;
///     orders.by_status().prefix(Status::Open).rows(tx).await
/// })?;
/// assert_eq!(open.iter().map(|order| order.number).collect::<Vec<_>>(), [8, 7]);
/// # Ok::<(), Error>(())
/// ```
///
/// Mistakes are errors at the word that has to change:
///
/// ```compile_fail
/// #[derive(tarn::Row)]
/// #[row(table = "orders", key(nummer))] // no such field
/// struct Order {
///     number: u32,
///     placed: u64,
/// }
/// ```
///
/// ```compile_fail
/// #[derive(tarn::Row)]
/// #[row(table = "orders", key(number), index(by_place(place)))]
/// struct Order {
///     number: [u64; 9], // longer than 64 bytes
///     place: u64,
/// }
/// ```
pub trait Row: Sized {
    /// The type of the primary key: the type of its field, or a tuple of the types of its fields.
    type Key: Ordered;
    /// The table's name.
    const TABLE: &'static str;
    /// The table's columns.
    #[doc(hidden)]
    const COLUMNS: &'static [Column];
    /// The table's ordered indexes.
    #[doc(hidden)]
    const INDEXES: &'static [IndexDefinition];

    /// The row's primary key.
    fn key(&self) -> Self::Key;

    /// Creates a row from its key and the bytes of its columns.
    #[doc(hidden)]
    fn load(key: Self::Key, payload: &[u8]) -> Self;

    /// Writes the bytes of the row's columns.
    #[doc(hidden)]
    fn store(&self, payload: &mut [u8]);

    /// The table's schema, laid out for this number of rows.
    fn schema(expected_records: u64) -> TableSchema {
        let mut schema = TableSchema::new(Self::TABLE, expected_records);
        schema.key = key_width::<Self::Key>();
        for column in Self::COLUMNS {
            schema = schema.column(column.name, column.column_type);
        }
        for index in Self::INDEXES {
            schema = schema.index(index.name, &index.parts_of::<Self::Key>(), index.is_unique);
        }
        schema
    }
}

/// The row of a table that is also in the order of its keys. `#[derive(Row)]` with `ordered` implements this trait.
///
/// ```
/// use tarn::{Row, Tarn};
///
/// #[derive(Row)]
/// #[row(table = "prices", key(item, day), ordered)]
/// struct Price {
///     item: u32,
///     day: u32,
///     cents: u64,
/// }
///
/// let tarn = Tarn::embedded().table::<Price>(100).open()?;
/// let prices = tarn.table::<Price>()?;
/// let latest = tarn.session()?.run(async |tx| {
///     for day in 1..=3 {
///         prices.put(tx, &Price { item: 7, day, cents: 100 + u64::from(day) }).await?;
///     }
///     prices.prefix(7).rev().first(tx).await
/// })?;
/// assert_eq!(latest.map(|price| price.cents), Some(103));
/// # Ok::<(), tarn::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the table of `{Self}` is not in the order of its keys",
    note = "add `ordered` to the #[row(...)] of `{Self}`"
)]
pub trait OrderedRow: Row {
    /// The types of the fields of the key, as a tuple.
    type Parts;
}

/// A column of a row.
#[doc(hidden)]
#[derive(Debug)]
pub struct Column {
    name: &'static str,
    column_type: ColumnType,
}

impl Column {
    /// The column with this name and the type `T`.
    pub const fn of<T: Field>(name: &'static str) -> Column {
        assert!(T::BYTES > 0, "a column has at least one byte");
        assert!(T::BYTES <= PAYLOAD_BYTES_MAX, "a column has at most 16 KiB");
        Column { name, column_type: T::COLUMN_TYPE }
    }
}

/// An ordered index of a row.
#[doc(hidden)]
#[derive(Debug)]
pub struct IndexDefinition {
    /// The index's name.
    pub name: &'static str,
    /// The fields from which an index key is made.
    pub parts: &'static [Part],
    /// Whether no two rows have the same fields.
    pub is_unique: bool,
}

/// A field from which an index key is made.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// Bytes of the primary key.
    Key {
        /// The position of the first byte.
        at: usize,
        /// The number of bytes.
        bytes: usize,
    },
    /// A column.
    Column {
        /// The number of the column.
        number: u8,
        /// The number of bytes.
        bytes: usize,
        /// Whether the schema says that the column is signed.
        is_signed: bool,
    },
}

impl Part {
    /// The column with this number and the type `T`.
    pub const fn column<T: Field>(number: u8) -> Part {
        let is_signed = matches!(T::COLUMN_TYPE, ColumnType::I64);
        Part::Column { number, bytes: T::BYTES, is_signed }
    }

    const fn bytes(self) -> usize {
        match self {
            Part::Key { bytes, .. } | Part::Column { bytes, .. } => bytes,
        }
    }
}

impl IndexDefinition {
    /// The parts of the index in the schema of a table with the key `K`.
    fn parts_of<K: Field>(&self) -> Vec<IndexPart> {
        // An index over the whole key needs no value beside its keys.
        let is_key = |parts: &[Part]| match parts {
            [Part::Key { at: 0, bytes }] => *bytes == K::BYTES && *bytes >= 8,
            parts if K::BYTES > 8 => {
                let mut end = 0;
                parts.iter().all(|part| match *part {
                    Part::Key { at, bytes } if at == end => {
                        end += bytes;
                        true
                    }
                    _ => false,
                }) && end == K::BYTES
            }
            _ => false,
        };
        if is_key(self.parts) {
            return vec![IndexPart::Key];
        }
        let part = |part: &Part| match *part {
            Part::Column { number, .. } => IndexPart::Column(ColumnId(number)),
            Part::Key { at, bytes } => match key_width::<K>() {
                KeyWidth::Bytes(_) => IndexPart::KeyBytes { at: at as u8, bytes: bytes as u8 },
                KeyWidth::Word => {
                    let shift = 8 * (K::BYTES - at - bytes);
                    IndexPart::KeyBits { shift: shift as u8, bits: 8 * bytes as u8 }
                }
            },
        };
        self.parts.iter().map(part).collect()
    }
}

/// The number of bytes of all columns.
const fn payload_bytes(columns: &[Column]) -> usize {
    let (mut bytes, mut at) = (0, 0);
    while at < columns.len() {
        bytes += columns[at].column_type.width_bytes();
        at += 1;
    }
    assert!(bytes <= PAYLOAD_BYTES_MAX, "the columns of a row have at most 16 KiB");
    bytes
}

/// Asserts that a type can be part of a key or of an index.
#[doc(hidden)]
pub const fn ordered<T: Ordered>() {}

/// Asserts that the key has an allowed length.
#[doc(hidden)]
pub const fn check_key<R: Row>() {
    let bytes = <R::Key as Field>::BYTES;
    assert!(bytes > 0 && bytes <= KEY_BYTES_MAX, "the key of a row has 1 to 64 bytes");
}

/// Asserts that the keys of an index have an allowed length.
#[doc(hidden)]
pub const fn check_index<R: Row>(number: usize) {
    let index = &R::INDEXES[number];
    let key_bytes = if <R::Key as Field>::BYTES <= 8 { 8 } else { <R::Key as Field>::BYTES };
    let (mut bytes, mut at) = (if index.is_unique { 0 } else { key_bytes }, 0);
    while at < index.parts.len() {
        bytes += index.parts[at].bytes();
        at += 1;
    }
    assert!(
        bytes <= INDEX_KEY_BYTES_MAX,
        "the fields of an index have at most 64 bytes, together with the primary key if it is not unique"
    );
}

/// Reads the columns of a row in their order.
#[doc(hidden)]
pub struct Take<'a> {
    rest: &'a [u8],
}

impl<'a> Take<'a> {
    /// Begins with the first column of `R`.
    #[inline(always)]
    pub fn new<R: Row>(payload: &'a [u8]) -> Take<'a> {
        Take { rest: &payload[..const { payload_bytes(R::COLUMNS) }] }
    }

    /// Reads the next column.
    #[inline(always)]
    pub fn take<T: Field>(&mut self) -> T {
        let (column, rest) = self.rest.split_at(T::BYTES);
        self.rest = rest;
        load_column(column)
    }
}

/// Writes the columns of a row in their order.
#[doc(hidden)]
pub struct Give<'a> {
    rest: &'a mut [u8],
}

impl<'a> Give<'a> {
    /// Begins with the first column of `R`.
    #[inline(always)]
    pub fn new<R: Row>(payload: &'a mut [u8]) -> Give<'a> {
        Give { rest: &mut payload[..const { payload_bytes(R::COLUMNS) }] }
    }

    /// Writes the next column.
    #[inline(always)]
    pub fn give<T: Field>(&mut self, value: &T) {
        let (column, rest) = std::mem::take(&mut self.rest).split_at_mut(T::BYTES);
        self.rest = rest;
        store_column(value, column);
    }
}
