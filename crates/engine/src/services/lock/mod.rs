//! Locks in compute nodes: the node that owns a shard decides which transaction may read or write the shard's
//! records.
//!
//! - [`name`]: names of locks, and modes. [`crate::transaction::lock_set`]: one transaction's locks and requests, at
//!   its own node and at other nodes.
//! - [`table`]: a node's table of locks. `bucket` defines the table's words, `spill` adds buckets, `look` has the
//!   functions for code that holds no lock.
//! - [`versions`]: a cache of the version tables of records whose locks the node grants.
//! - [`holds`]: one transaction's locks in one table. [`grants`]: the locks of other nodes' transactions.
//! - [`message`]: the messages between nodes. `service` answers these messages. `closing`: work that continues after
//!   a reply to the caller. `at_once`: the same requests without messages, within a process.
//! - `watched`: reports all accesses to locks and cached versions to the explorer of every order.
//! - `sync`: the lock table's atomics, which loom can model. `planted`: planted bugs.
//!
//! Invariant: no transaction waits for a lock. A lock that cannot be granted is refused, and the transaction tries
//! again. See docs/locks.md. (Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing Disaggregated Transactions with
//! Disaggregated Locks".)

mod bucket;
pub mod grants;
pub mod holds;
mod look;
pub mod message;
pub mod name;
mod planted;
pub(crate) mod service;
mod spill;
pub(crate) mod sync;
pub mod table;
#[cfg(all(test, not(loom)))]
mod tests;
pub mod versions;
pub(crate) mod watch;

/// Re-exports for loom models of the table's synchronisation. Only these models use the re-exports.
#[cfg(loom)]
pub mod modelled {
    pub use super::bucket::BUCKET_BYTES;
    pub use super::sync::{Site, plant};
}
