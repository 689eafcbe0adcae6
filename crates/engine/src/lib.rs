//! Tarn's engine: serializable transactions over the fabric contract.
//!
//! Map, in the order of the storeys: each imports only those before it. The bytes in memory, and how they are found, are in
//! [`tarn_store`].
//! - [`cluster`]: which compute nodes live, which map of memory is in force, what a protocol says of itself.
//! - [`services`]: what a compute node keeps for others: lock tables, shards, timestamps, counts of readers.
//! - [`transaction`]: one transaction, as data.
//! - [`site`]: the database, the compute node and the thread that a transaction runs on.
//! - [`requests`]: what a thread asks of other compute nodes, and does for them.
//! - [`steps`]: what protocols share: access to records and indexes, locks beside records, logs, recovery by logs.
//! - [`protocol`]: how transactions are run, one folder a system.
//! - [`recovery`]: what happens when a compute node dies.
//! - [`session`]: the interface of callers: coordinators and their transactions.
//! - [`admin`]: loading, inspection, new copies, repair.
//!
//! Invariant: this crate knows the fabric contract and what lies in memory, and nothing else: no simulator, no thread, no
//! wall clock. Time, randomness and I/O arrive through a [`tarn_fabric::port::Port`].

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
