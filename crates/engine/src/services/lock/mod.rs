//! Locks in compute nodes: the node that owns a shard decides which transaction may read or write its records.
//!
//! - [`name`]: names of locks, and modes. [`crate::transaction::lock_set`]: one transaction's locks and requests, here
//!   and elsewhere.
//! - [`table`]: a node's table of locks. `bucket` defines its words, `spill` adds room, `look` is its view for others
//!   than holders.
//! - [`versions`]: the versions that a node remembers of records whose locks it grants.
//! - [`holds`]: one transaction's locks in one table. [`grants`]: the locks of other nodes' transactions.
//! - [`message`]: the messages between nodes. `service` answers them. `closing`: work that goes on after a reply.
//!   `at_once`: the same without messages, within a process.
//! - `watched`: reports all this to the explorer of every order.
//! - `sync`: the table's atomics, so that they can be modelled. `planted`: planted bugs.
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

/// The parts that a model of the table's synchronisation needs. Only models use them.
#[cfg(loom)]
pub mod modelled {
    pub use super::bucket::BUCKET_BYTES;
    pub use super::sync::{Site, plant};
}
