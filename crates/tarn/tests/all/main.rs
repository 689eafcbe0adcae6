//! The tests of the library, in one program.
//!
//! Invariant: no file depends on another or on running alone.

mod common;
mod configurations;
mod ends;
mod executors;
mod for_ever;
mod sessions;
mod space;
