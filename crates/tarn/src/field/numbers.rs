//! Numbers as fields.
//!
//! Invariant: unsigned integers are big-endian. Signed integers are big-endian with the sign bit flipped. Of a
//! floating-point number, a negative one has all bits flipped, and any other one has its sign bit flipped.

use super::{Field, Ordered};
use tarn_store::schema::ColumnType;

macro_rules! integers {
    ($($type:ty, $unsigned:ty, $flip:expr $(, $column:ident)?;)+) => {$(
        impl Field for $type {
            const BYTES: usize = size_of::<$type>();
            $(const COLUMN_TYPE: ColumnType = ColumnType::$column;)?

            #[inline]
            fn encode(&self, to: &mut [u8]) {
                to.copy_from_slice(&(*self as $unsigned ^ $flip).to_be_bytes());
            }

            #[inline]
            fn decode(from: &[u8]) -> $type {
                let bytes = from.try_into().expect("the bytes of one value");
                (<$unsigned>::from_be_bytes(bytes) ^ $flip) as $type
            }
        }

        impl Ordered for $type {}
    )+};
}

integers! {
    u8, u8, 0, U8;
    u16, u16, 0, U16;
    u32, u32, 0, U32;
    u64, u64, 0, U64;
    u128, u128, 0;
    i8, u8, 1 << 7;
    i16, u16, 1 << 15;
    i32, u32, 1 << 31;
    i64, u64, 1 << 63, I64;
    i128, u128, 1 << 127;
}

macro_rules! floats {
    ($($type:ty, $bits:ty;)+) => {$(
        impl Field for $type {
            const BYTES: usize = size_of::<$type>();

            #[inline]
            fn encode(&self, to: &mut [u8]) {
                let (bits, sign) = (self.to_bits(), 1 << (<$bits>::BITS - 1));
                let ordered = if bits & sign != 0 { !bits } else { bits ^ sign };
                to.copy_from_slice(&ordered.to_be_bytes());
            }

            #[inline]
            fn decode(from: &[u8]) -> $type {
                let bytes = from.try_into().expect("the bytes of one value");
                let (ordered, sign) = (<$bits>::from_be_bytes(bytes), 1 << (<$bits>::BITS - 1));
                <$type>::from_bits(if ordered & sign != 0 { ordered ^ sign } else { !ordered })
            }
        }

        impl Ordered for $type {}
    )+};
}

floats! {
    f32, u32;
    f64, u64;
}
