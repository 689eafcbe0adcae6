//! Tests of the table.
//!
//! Invariant: each test ends by itself.

mod basic;
mod growth;
mod history;
mod planted;
mod surface;
mod threads;
