//! Requests of a thread to other compute nodes, and its answers to requests from other nodes: locks, timestamps,
//! shards, leases, revocations.
//!
//! Invariant: a thread that waits for an answer keeps answering requests of other nodes.

pub(crate) mod at_once;
pub(crate) mod closing;
pub(crate) mod fence;
pub mod lock_service;
pub mod lock_set;
#[cfg(all(test, not(loom)))]
pub(crate) mod lock_set_tests;
pub mod read_lease;
pub mod resharding;
pub mod serve;
mod served_locks;
pub mod timestamp;
pub(crate) mod watched;
