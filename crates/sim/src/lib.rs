//! A cluster that does not exist: the fabric contract in deterministic virtual time.
//!
//! Map:
//! - [`profile`]: what hardware costs, each constant with its source.
//! - [`memory`]: lazy memory that replicas share until they write it.
//! - [`queue`]: what happens next.
//!
//! Invariant: no wall clock, no thread, no order of a hash table. The same seed gives the same run,
//! event for event, on every machine.

#![forbid(unsafe_code)]

pub mod memory;
pub mod profile;
pub mod queue;
