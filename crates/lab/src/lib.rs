//! The laboratory: the program `tarn` uses this crate to measure, simulate, explore and draw runs.
//!
//! Map:
//! - [`mod@bench`]: workloads on an embedded cluster, measured and checked.
//! - [`machine`]: a description of the machine on which a run takes place.
//! - [`simulate`]: workloads on a simulated cluster in virtual time.
//! - [`schedules`]: random orders of events on a simulated cluster.
//! - [`locks`]: lock services alone, on a simulated cluster.
//! - [`outage`]: nodes of a simulated cluster that crash under load.
//! - [`explore`]: small transactions in every order that the fabric's contract allows.
//! - [`reproduce`]: published figures, beside the figures of a simulated cluster.
//! - [`sweep`]: many simulated runs, side by side.
//! - [`trace`]: the steps of a single transaction.
//! - [`chosen`]: any of these kinds of runs with a workload that the caller names.
//! - [`harness`]: steps that several kinds of runs share.
//!
//! Invariant: this crate uses only the public interfaces of the library, the engine, the fabric and the simulator. So
//! any other program can do everything that this crate does.

#![forbid(unsafe_code)]

pub mod bench;
pub mod chosen;
pub mod explore;
pub mod harness;
pub mod locks;
pub mod machine;
pub mod outage;
pub mod reproduce;
pub mod schedules;
pub mod simulate;
pub mod sweep;
pub mod trace;
