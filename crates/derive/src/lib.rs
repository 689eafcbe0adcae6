//! The derive macros of the library `tarn`, which re-exports them: `Row` for structs that are rows of a table, and
//! `Field` for values that are columns.
//!
//! Map:
//! - `attribute`: the text of `#[row(...)]`.
//! - `row`: the code for `#[derive(Row)]`.
//! - `field`: the code for `#[derive(Field)]`.
//!
//! Invariant: an error of a macro points at the word of the caller's code that has to change. The macros read only
//! tokens. So the written code asserts every property of a type, at the place where the caller wrote the type.

#![forbid(unsafe_code)]

mod attribute;
mod field;
mod row;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct the row of a table. The documentation of the trait `tarn::Row` explains the attribute
/// `#[row(...)]`.
///
/// ```text
/// #[derive(Row)]
/// #[row(table = "orders", key(number), index(by_customer(customer, placed)))]
/// struct Order {
///     number: u64,
///     customer: u32,
///     placed: u64,
/// }
/// ```
#[proc_macro_derive(Row, attributes(row))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    row::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes an enum without data, or a struct of other fields, the value of a column. The documentation of the trait
/// `tarn::Field` has examples.
///
/// ```text
/// #[derive(Field, Clone, Copy, PartialEq)]
/// enum Status {
///     Open,
///     Paid,
/// }
/// ```
#[proc_macro_derive(Field)]
pub fn derive_field(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    field::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
