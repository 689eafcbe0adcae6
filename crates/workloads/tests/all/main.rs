//! The tests of the workloads, in one program.
//!
//! Invariant: no file depends on another or on running alone; shared code is in `common`.

mod common;
mod draws;
mod histories;
mod invariants;
mod planted;
mod stress;
mod threads;
mod tpcc;
