//! Tests the bytes of fields: every value comes back, and the bytes compare like the values.
//!
//! Invariant: each type that the library implements has a row in a test of this file.

use proptest::prelude::*;
use std::cmp::Ordering;
use std::fmt::Debug;
use tarn::{Bytes, Field, Ordered, Text};

fn bytes_of<T: Field>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0xaa; T::BYTES];
    value.encode(&mut bytes);
    bytes
}

fn come_back<T: Field + PartialEq + Debug>(values: [T; 2]) {
    for value in values {
        assert_eq!(T::decode(&bytes_of(&value)), value);
    }
}

/// Asserts that both values come back, and that their bytes compare like the values.
fn compare<T: Ordered + Ord + Debug>([one, other]: [T; 2]) {
    assert_eq!(bytes_of(&one).cmp(&bytes_of(&other)), one.cmp(&other), "{one:?}, {other:?}");
    come_back([one, other]);
}

#[derive(Field, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Level {
    Low = 2,
    High = 7,
    Top = 255,
}

#[derive(Field, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Cents(i64);

#[derive(Field, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    floor: i8,
    shelf: Option<u16>,
}

fn levels() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Low), Just(Level::High), Just(Level::Top)]
}

fn places() -> impl Strategy<Value = Place> {
    (-1..1i8, any::<Option<u16>>()).prop_map(|(floor, shelf)| Place { floor, shelf })
}

/// Texts of few different characters, so that many texts begin alike.
fn texts() -> impl Strategy<Value = Text<6>> {
    let short =
        "[a-b\u{e9}\u{0}]{0,3}".prop_filter("ends with a zero", |text| !text.ends_with('\0'));
    short.prop_map(|text| Text::new(&text).expect("at most 6 bytes"))
}

fn byte_strings() -> impl Strategy<Value = Bytes<4>> {
    prop::collection::vec(0..3u8, 0..=4).prop_map(|bytes| Bytes::new(&bytes).expect("4 bytes"))
}

macro_rules! test_types {
    ($($name:ident: $($values:expr),+;)+) => {
        proptest! {
            $(#[test]
            fn $name(pairs in ($([$values, $values],)+)) {
                test_types!(@each pairs, [$($values),+], 0 1 2 3 4 5 6 7 8 9);
            })+
        }
    };
    (@each $pairs:ident, [$first:expr $(, $rest:expr)*], $at:tt $($more:tt)*) => {
        compare($pairs.$at);
        test_types!(@each $pairs, [$($rest),*], $($more)*);
    };
    (@each $pairs:ident, [], $($more:tt)*) => {};
}

test_types! {
    unsigned: any::<u8>(), any::<u16>(), any::<u32>(), any::<u64>(), any::<u128>();
    signed: any::<i8>(), any::<i16>(), any::<i32>(), any::<i64>(), any::<i128>();
    single: any::<bool>(), levels(), any::<i64>().prop_map(Cents);
    texts_and_bytes: texts(), byte_strings();
    optional: any::<Option<i32>>(), prop::option::of(texts()), any::<Option<Option<bool>>>();
    nested: any::<[u8; 5]>(), any::<[i16; 3]>(), any::<[[i8; 2]; 2]>(), any::<[Option<u8>; 2]>();
    composite: (-2..2i32, -2..2i64), (texts(), any::<u8>()), (0..2u8, byte_strings(), any::<i8>()),
        places();
}

proptest! {
    #[test]
    fn floats(one in any::<f64>(), other in any::<f64>(), small in any::<[f32; 2]>()) {
        for (one, other) in [(one, other), (one, -one), (one, 0.0), (0.0, -0.0), (one, f64::NAN)] {
            prop_assert_eq!(bytes_of(&one).cmp(&bytes_of(&other)), one.total_cmp(&other));
            prop_assert_eq!(f64::decode(&bytes_of(&one)).to_bits(), one.to_bits());
        }
        prop_assert_eq!(bytes_of(&small[0]).cmp(&bytes_of(&small[1])), small[0].total_cmp(&small[1]));
        prop_assert_eq!(f32::decode(&bytes_of(&small[0])).to_bits(), small[0].to_bits());
    }
}

#[test]
fn texts_that_do_not_fit_are_refused_with_their_length() {
    assert_eq!(&*Text::<4>::new("abcd").expect("it fits"), "abcd");
    let error = Text::<4>::new("abcde").expect_err("5 bytes").to_string();
    assert_eq!(
        error,
        "text = \"abcde\" of 5 bytes; allowed: at most 4 bytes, the last one not zero"
    );
    assert!(Text::<4>::new("a\0").is_err() && Text::<4>::new("\0a").is_ok());
    let error = Bytes::<2>::new(&[1; 3]).expect_err("3 bytes").to_string();
    assert_eq!(error, "bytes = 3 bytes; allowed: at most 2 bytes");
    assert_eq!(Text::<4>::literal("ab").cmp(&Text::literal("b")), Ordering::Less);
}

#[test]
fn bytes_of_another_program_make_no_text_that_is_no_utf_8() {
    assert_eq!(Text::<4>::decode(&[b'a', 0xff, b'b', 0]), "a");
    assert_eq!(Bytes::<2>::decode(&[1, 2, 0xff, 0xff]).len(), 2);
}

#[test]
#[should_panic(expected = "byte 3 is no variant of Level")]
fn a_byte_of_no_variant_is_named() {
    Level::decode(&[3]);
}
