//! Tarn's engine: serializable transactions over the fabric contract.
//!
//! Map:
//! - [`schema`], [`catalog`], [`layout`]: what is stored, and where it lies.
//! - [`coordinator`], [`transaction`], `multi_get`, [`row`]: what callers see. [`outcome`]: how it ends.
//! - [`protocol`]: how transactions are run, one folder a system.
//! - [`index`], [`address_cache`], [`heap`], [`record_gc`], [`log`], [`replica_groups`]: shared by protocols.
//! - `access`: records as transactions get at them, where locks stand beside them. `structure`: indexes likewise.
//! - `restructure`: what a coordinator does for its indexes between transactions.
//! - [`lock`], [`services`]: locks in compute nodes, and what nodes do for one another. [`resharding`]: who grants which.
//! - [`membership`], [`timestamp`]: seams for services. [`history`], [`recorder`], [`metrics`]: what
//!   happened.
//! - [`recovery`]: what is done about a dead compute node. [`clearance`]: what a live one may do.
//! - [`load`]: fills tables before transactions run. [`inspect`]: looks at memory when they rest.
//!
//! Invariant: this crate knows the fabric contract and nothing else: no simulator, no thread, no
//! wall clock. Time, randomness and I/O arrive through a [`tarn_fabric::port::Port`].

#![forbid(unsafe_code)]

mod access;
pub mod address_cache;
pub mod catalog;
pub mod clearance;
pub mod configuration;
pub mod context;
pub mod coordinator;
mod doubts;
mod fuse;
pub mod heap;
pub mod history;
mod in_place;
pub mod index;
mod index_schema;
pub mod inspect;
#[cfg(test)]
mod inspect_scene;
mod inspect_trees;
mod inspect_versions;
pub mod last_writes;
pub mod layout;
pub mod left_memory;
pub mod load;
pub mod load_trees;
pub mod lock;
pub mod log;
pub mod membership;
mod memory;
pub mod mend;
pub mod metrics;
mod misuse;
mod multi_get;
mod node_locks;
pub mod numbers;
pub mod ordered;
pub mod outcome;
pub mod owner;
mod plan_sizes;
pub mod procedure;
pub mod protocol;
pub mod range;
pub mod read_lease;
pub mod reconfigure;
pub mod record_gc;
pub mod recorder;
pub mod recovery;
pub mod replica_groups;
pub mod rereplicate;
pub mod resharding;
mod restructure;
mod retry;
pub mod routing;
pub mod row;
mod scanning;
pub mod schema;
pub mod sequel;
pub mod services;
pub mod shard_map;
mod structure;
pub mod threads;
pub mod timestamp;
pub mod transaction;
pub mod trees;
pub mod working_set;
