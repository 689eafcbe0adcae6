//! The tests of the library, all in one test program.
//!
//! Invariant: no test file depends on another file, or requires that it runs alone.

mod calls;
mod common;
mod configurations;
mod ends;
mod executors;
mod fields;
mod for_ever;
mod selections;
mod sessions;
mod snapshots;
mod space;
mod workers;
