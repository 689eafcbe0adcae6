//! The tests of the library, all in one test program.
//!
//! Invariant: no test file depends on another file, or requires that it runs alone.

mod common;
mod configurations;
mod ends;
mod executors;
mod for_ever;
mod sessions;
mod snapshots;
mod space;
mod workers;
