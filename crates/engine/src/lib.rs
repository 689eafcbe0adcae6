//! Tarn's engine: serializable transactions over the fabric contract.
//!
//! Map:
//! - [`coordinator`], [`transaction`], `multi_get`: the interface of callers.
//! - [`protocol`]: how transactions are run, one folder a system.
//! - `access`: how transactions read and lock records, where locks stand beside them. `structure`: the same for indexes.
//! - `restructure`: work on indexes that a coordinator does between transactions.
//! - [`lock`], [`services`]: locks in compute nodes, and other services between them. [`resharding`]: which node grants which lock.
//! - [`membership`], [`timestamp`]: interfaces of services. [`recorder`], [`metrics`]: histories and counts.
//! - [`recovery`]: what happens when a compute node dies. [`clearance`]: whether a live one may begin transactions.
//! - [`load`]: fills tables before transactions run. [`inspect`]: looks at memory when none runs.
//!
//! The bytes in memory, and how they are found, are in [`tarn_store`].
//!
//! Invariant: this crate knows the fabric contract and what lies in memory, and nothing else: no simulator, no thread, no
//! wall clock. Time, randomness and I/O arrive through a [`tarn_fabric::port::Port`].

#![forbid(unsafe_code)]

mod access;
pub mod clearance;
pub mod configuration;
pub mod context;
pub mod coordinator;
mod doubts;
mod fuse;
mod in_place;
pub mod index;
pub mod inspect;
#[cfg(test)]
mod inspect_scene;
mod inspect_trees;
mod inspect_versions;
pub mod last_writes;
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

pub mod protocol;
pub mod read_lease;
pub mod reconfigure;
pub mod recorder;
pub mod recovery;
pub mod rereplicate;
pub mod resharding;
mod restructure;
mod retry;
mod scanning;
pub mod sequel;
pub mod services;
mod structure;
pub mod threads;
pub mod timestamp;
pub mod transaction;
pub mod trees;
pub mod working_set;
