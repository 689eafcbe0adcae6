//! The values that columns and keys can have: bytes in, bytes out.
//!
//! Invariant: a value takes the same number of bytes whatever it is. The bytes of an [`Ordered`] value compare like
//! the value itself, so that keys and indexes of such values are in their order.

mod numbers;
mod text;

pub use text::{Bytes, Text};

use tarn_store::schema::{ColumnType, KEY_BYTES_MAX, Key, KeyWidth};

/// A value that a column can have: bytes in, bytes out.
///
/// Integers from `u8` to `i128`, `bool`, `f32`, `f64`, [`Text`], [`Bytes`], `Option` of a field, arrays of fields and
/// tuples of fields are fields. `#[derive(Field)]` makes other types fields: an enum without data takes one byte, and
/// a struct takes the bytes of its fields. These types also become [`Ordered`], so they have to be `Copy` and
/// `PartialEq`.
///
/// ```
/// use tarn::{Field, Text};
///
/// #[derive(Field, Clone, Copy, PartialEq, Debug)]
/// enum Status {
///     Open,
///     Paid,
/// }
///
/// #[derive(Field, Clone, Copy, PartialEq, Debug)]
/// struct Sku(Text<12>);
///
/// assert_eq!((Status::BYTES, Sku::BYTES, <Option<i128>>::BYTES), (1, 12, 17));
/// let mut bytes = [0];
/// Status::Paid.encode(&mut bytes);
/// assert_eq!(Status::decode(&bytes), Status::Paid);
/// ```
///
/// A type of your own implements the trait by hand if its bytes are special:
///
/// ```
/// use std::time::Duration;
/// use tarn::Field;
///
/// #[derive(Clone, Copy, PartialEq)]
/// struct Timeout(Duration);
///
/// impl Field for Timeout {
///     const BYTES: usize = 8;
///     fn encode(&self, to: &mut [u8]) {
///         (self.0.as_nanos() as u64).encode(to);
///     }
///     fn decode(from: &[u8]) -> Timeout {
///         Timeout(Duration::from_nanos(u64::decode(from)))
///     }
/// }
/// ```
///
/// A type without a fixed number of bytes is refused where the row names it:
///
/// ```compile_fail,E0277
/// #[derive(tarn::Row)]
/// #[row(table = "notes", key(id))]
/// struct Note {
///     id: u64,
///     text: String, // `Text<100>` has a fixed number of bytes
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a column of a row: it is no `tarn::Field`",
    note = "columns are integers, bool, f32, f64, Text<N>, Bytes<N>, Option<T>, [T; N], tuples",
    note = "other types are fields by #[derive(tarn::Field)]"
)]
pub trait Field: Sized {
    /// The number of bytes of every value, at least 1.
    const BYTES: usize;
    /// The type of the column in the schema. Only integers of the schema's own types name it.
    #[doc(hidden)]
    const COLUMN_TYPE: ColumnType = ColumnType::Bytes(Self::BYTES as u16);

    /// Writes the value into `to`, which has [`Field::BYTES`] bytes.
    fn encode(&self, to: &mut [u8]);

    /// Creates the value from the bytes that [`Field::encode`] wrote.
    ///
    /// # Panics
    /// An enum's `decode` panics if no variant has the byte: the bytes were written by another program.
    fn decode(from: &[u8]) -> Self;
}

/// A field whose bytes compare like its values: a part of a key or of an index.
///
/// `None` is less than every `Some`. Floating-point numbers are in the order of `f64::total_cmp`. Arrays and tuples
/// are in the order of their first different part.
///
/// ```
/// use tarn::{Field, Ordered};
///
/// /// A day, counted from 1970. Later days come first in keys and indexes.
/// #[derive(Clone, Copy, PartialEq)]
/// struct LatestFirst(u32);
///
/// impl Field for LatestFirst {
///     const BYTES: usize = 4;
///     fn encode(&self, to: &mut [u8]) {
///         to.copy_from_slice(&(!self.0).to_be_bytes());
///     }
///     fn decode(from: &[u8]) -> LatestFirst {
///         LatestFirst(!u32::from_be_bytes(from.try_into().expect("four bytes")))
///     }
/// }
///
/// impl Ordered for LatestFirst {}
///
/// let bytes = |day: u32| {
///     let mut bytes = [0; LatestFirst::BYTES];
///     LatestFirst(day).encode(&mut bytes);
///     bytes
/// };
/// assert!(bytes(20_000) < bytes(19_999));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a key or of an index: it is no `tarn::Ordered`",
    note = "#[derive(tarn::Field)] implements `Ordered`; by hand, the bytes must compare like the values"
)]
pub trait Ordered: Field + Copy + PartialEq {}

impl Field for bool {
    const BYTES: usize = 1;
    const COLUMN_TYPE: ColumnType = ColumnType::U8;

    #[inline]
    fn encode(&self, to: &mut [u8]) {
        to[0] = u8::from(*self);
    }

    #[inline]
    fn decode(from: &[u8]) -> bool {
        from[0] != 0
    }
}

impl Ordered for bool {}

/// One byte says whether there is a value. Without a value, the other bytes are zeros.
impl<T: Field> Field for Option<T> {
    const BYTES: usize = 1 + T::BYTES;

    #[inline]
    fn encode(&self, to: &mut [u8]) {
        match self {
            None => to.fill(0),
            Some(value) => {
                to[0] = 1;
                value.encode(&mut to[1..]);
            }
        }
    }

    #[inline]
    fn decode(from: &[u8]) -> Option<T> {
        (from[0] != 0).then(|| T::decode(&from[1..]))
    }
}

impl<T: Ordered> Ordered for Option<T> {}

impl<T: Field, const N: usize> Field for [T; N] {
    const BYTES: usize = T::BYTES * N;

    #[inline]
    fn encode(&self, to: &mut [u8]) {
        for (value, to) in self.iter().zip(to.chunks_exact_mut(T::BYTES)) {
            value.encode(to);
        }
    }

    #[inline]
    fn decode(from: &[u8]) -> [T; N] {
        std::array::from_fn(|at| T::decode(&from[at * T::BYTES..][..T::BYTES]))
    }
}

impl<T: Ordered, const N: usize> Ordered for [T; N] {}

macro_rules! tuples {
    ($($($name:ident $at:tt)+;)+) => {$(
        impl<$($name: Field),+> Field for ($($name,)+) {
            const BYTES: usize = 0 $(+ $name::BYTES)+;

            #[inline]
            fn encode(&self, to: &mut [u8]) {
                let mut rest = to;
                $(
                    let (part, after) = rest.split_at_mut($name::BYTES);
                    self.$at.encode(part);
                    rest = after;
                )+
                let _ = rest;
            }

            #[inline]
            fn decode(from: &[u8]) -> Self {
                let mut rest = from;
                ($({
                    let (part, after) = rest.split_at($name::BYTES);
                    rest = after;
                    let _ = rest;
                    $name::decode(part)
                },)+)
            }
        }

        impl<$($name: Ordered),+> Ordered for ($($name,)+) {}
    )+};
}

tuples! {
    A 0;
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
    A 0 B 1 C 2 D 3 E 4;
    A 0 B 1 C 2 D 3 E 4 F 5;
}

/// The width of a primary key: a key of up to 8 bytes is a word.
pub(crate) const fn key_width<K: Field>() -> KeyWidth {
    if K::BYTES <= 8 { KeyWidth::Word } else { KeyWidth::Bytes(K::BYTES as u8) }
}

/// The word of a key of up to 8 bytes.
#[inline(always)]
pub(crate) fn word_of<K: Field>(key: &K) -> u64 {
    let mut bytes = [0; 8];
    key.encode(&mut bytes[8 - K::BYTES..]);
    u64::from_be_bytes(bytes)
}

/// Calls `then` with the key in the engine's form.
#[inline(always)]
pub(crate) fn as_key<K: Field, R>(key: &K, then: impl FnOnce(Key<'_>) -> R) -> R {
    if K::BYTES <= 8 {
        return then(Key::Word(word_of(key)));
    }
    let mut bytes = [0; KEY_BYTES_MAX];
    key.encode(&mut bytes[..K::BYTES]);
    then(Key::Bytes(&bytes[..K::BYTES]))
}

/// Returns the key that has this form in the engine.
#[inline]
pub(crate) fn from_key<K: Field>(key: Key<'_>) -> K {
    match key {
        Key::Word(word) => K::decode(&word.to_be_bytes()[8 - K::BYTES..]),
        Key::Bytes(bytes) => K::decode(bytes),
    }
}

/// Writes a column. Integers of the schema's own types lie in the row as the engine's other users see them.
#[inline(always)]
pub(crate) fn store_column<T: Field>(value: &T, to: &mut [u8]) {
    let mut word = [0; 8];
    match T::COLUMN_TYPE {
        ColumnType::U8 | ColumnType::Bytes(_) => value.encode(to),
        ColumnType::U16 | ColumnType::U32 | ColumnType::U64 | ColumnType::I64 => {
            value.encode(&mut word[8 - T::BYTES..]);
            let sign = if matches!(T::COLUMN_TYPE, ColumnType::I64) { 1 << 63 } else { 0 };
            let word = u64::from_be_bytes(word) ^ sign;
            to.copy_from_slice(&word.to_le_bytes()[..T::BYTES]);
        }
    }
}

/// Reads a column that [`store_column`] has written.
#[inline(always)]
pub(crate) fn load_column<T: Field>(from: &[u8]) -> T {
    let mut word = [0; 8];
    match T::COLUMN_TYPE {
        ColumnType::U8 | ColumnType::Bytes(_) => T::decode(from),
        ColumnType::U16 | ColumnType::U32 | ColumnType::U64 | ColumnType::I64 => {
            word[..T::BYTES].copy_from_slice(from);
            let sign = if matches!(T::COLUMN_TYPE, ColumnType::I64) { 1 << 63 } else { 0 };
            let word = (u64::from_le_bytes(word) ^ sign).to_be_bytes();
            T::decode(&word[8 - T::BYTES..])
        }
    }
}
