//! The tests of the workloads, in one program.
//!
//! Invariant: each test file works without the other files, and its tests may run at the same time as
//! the tests of other files. Shared code is in `common`.

mod common;
mod draws;
mod histories;
mod invariants;
mod planted;
mod stress;
mod threads;
mod tpcc;
