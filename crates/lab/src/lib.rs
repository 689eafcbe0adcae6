//! The laboratory: the program `tarn` measures, simulates, explores and draws with it.
//!
//! Map:
//! - [`mod@bench`]: workloads on an embedded cluster, measured and checked. [`machine`]: the machine that they run on.
//! - [`simulate`]: the same on a cluster in virtual time. [`schedules`]: random orders of events on it. [`outage`]: nodes
//!   that crash under load.
//! - [`explore`]: small transactions in every order that the contract allows.
//! - [`reproduce`]: published figures, beside those of such a cluster.
//! - [`sweep`]: many such runs, side by side. [`trace`]: one transaction, looked at closely.
//! - [`chosen`]: any of these runs with a workload by its name. [`harness`]: steps that they have in common.
//!
//! Invariant: everything here works through the public interfaces of the library, the engine, the fabric and the simulator;
//! a program of its own can do all that this crate does.

#![forbid(unsafe_code)]

pub mod bench;
pub mod chosen;
pub mod explore;
pub mod harness;
pub mod machine;
pub mod outage;
pub mod reproduce;
pub mod schedules;
pub mod simulate;
pub mod sweep;
pub mod trace;
