//! Standard benchmarks: one folder each, with schema, load, one file a transaction, invariants.
//!
//! Map: [`workload`] is what a benchmark is; [`distribution`] draws keys; then one module a
//! benchmark: [`kvs`].
//!
//! Invariant: a workload never names a protocol or a fabric. Its inputs are drawn from a seeded
//! generator, and its invariants are judged on the memory that is left, not on what it was told.

#![forbid(unsafe_code)]

pub mod distribution;
pub mod kvs;
pub mod workload;

pub use workload::{Invariant, Profile, Settings, Workload};
