//! The contents of Tarn's remote memory, and how to find them there: bytes and arithmetic.
//!
//! Map, in the order of the storeys: each uses only those before it.
//! - [`ids`]: names of transactions, numbers of timestamps, views and configurations; how a transaction ends.
//! - [`schema`]: tables, columns, keys, indexes, procedures.
//! - [`layout`]: how records, buckets and nodes of indexes lie.
//! - [`placement`]: the plan of a database, its replica groups, its shards.
//! - [`index`]: lookups as state machines that plan verbs into a caller's round and absorb the answers.
//! - [`log`]: entries as recovery reads them. [`memory`]: free blocks, discarded records, remembered addresses.
//! - [`history`]: the reads and writes of transactions, for a checker.
//!
//! Invariant: this crate sends nothing and knows no transaction. It has no clock and no port; every result is
//! a function of the arguments.

#![forbid(unsafe_code)]

pub mod history;
pub mod ids;
pub mod index;
pub mod layout;
pub mod log;
pub mod memory;
pub mod placement;
pub mod schema;
