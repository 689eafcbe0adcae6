//! Tarn's engine: serializable transactions over the fabric contract.
//!
//! This is a map of the crate's modules, in layers: a module imports only modules that this list names before it. The
//! crate [`tarn_store`] defines the bytes in memory and how code finds them.
//! - [`cluster`]: which compute nodes are members, which map of replica groups is in force, and the constants that a
//!   protocol declares about itself.
//! - [`services`]: tables that a compute node keeps for other nodes: locks, shards, timestamps, counts of readers.
//! - [`transaction`]: the data of one transaction.
//! - [`site`]: the database, the compute node and the thread on which a transaction runs.
//! - [`requests`]: the requests that a thread sends to other compute nodes, and its answers to their requests.
//! - [`steps`]: the parts that protocols share: access to records and indexes, locks beside records, logs, and
//!   recovery by logs.
//! - [`protocol`]: how a protocol runs transactions. Each protocol has one folder.
//! - [`recovery`]: the actions that other nodes take after a compute node has died.
//! - [`session`]: the interface for callers: coordinators and their transactions.
//! - [`admin`]: loading of tables, inspection of memory, new copies of replica groups, and repair.
//!
//! Invariant: this crate knows only the fabric contract and the contents of memory. This crate knows no simulator, no
//! thread and no wall clock. It gets time, randomness and I/O only through a [`tarn_fabric::port::Port`].

#![forbid(unsafe_code)]

pub mod admin;
pub mod cluster;
pub mod protocol;
pub mod recovery;
pub mod requests;
pub mod services;
pub mod session;
pub mod site;
pub mod steps;
pub mod transaction;
