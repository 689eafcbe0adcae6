//! This crate defines the contents of Tarn's remote memory, and computes the addresses of these contents. The crate
//! uses only bytes and arithmetic.
//!
//! The modules, in the order of their dependencies: each module uses only the modules before it.
//! - [`ids`]: names of transactions, numbers of timestamps, views and configurations; how a transaction ends.
//! - [`schema`]: tables, columns, keys, indexes, procedures.
//! - [`layout`]: the arrangement of records, buckets and index nodes in memory.
//! - [`placement`]: the plan of a database, its replica groups, its shards.
//! - [`index`]: lookups as state machines that plan verbs into a caller's round and absorb the answers.
//! - [`log`]: log entries as recovery reads them. [`memory`]: free blocks, discarded records, cached addresses.
//! - [`history`]: the reads and writes of transactions, for a checker.
//!
//! Invariant: this crate sends no verb and no message, and runs no transaction. The crate has no clock and no port,
//! and every result is a function of the arguments.

#![forbid(unsafe_code)]

pub mod history;
pub mod ids;
pub mod index;
pub mod layout;
pub mod log;
pub mod memory;
pub mod placement;
pub mod schema;
