//! Locks in compute nodes: which transaction may read or write what, decided by the node whose shard it is.
//!
//! - [`name`]: what is locked, and how. [`crate::transaction::lock_set`]: what one transaction holds and asks for, here and elsewhere.
//! - [`table`]: a node's table of locks; `bucket` its words, `spill` what does not fit, `look` what
//!   others see of it.
//! - [`versions`]: what a node remembers of the records that it grants.
//! - [`holds`]: one transaction's in one table. [`grants`]: those of other nodes' transactions.
//! - [`message`]: what nodes say to one another. `service` answers. `closing`: what still runs after a reply.
//!   `at_once`: the same without messages, within a process.
//! - `watched`: what whoever explores every order is told of all this.
//! - `sync`: its atomics, so that they can be modelled. `planted`: what it must not do.
//!
//! Invariant: nobody waits for a lock; one that cannot be had is refused, and the transaction tries again.
//! See docs/locks.md. (Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing Disaggregated Transactions with
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

/// What a model of the table's synchronisation needs, and nobody else.
#[cfg(loom)]
pub mod modelled {
    pub use super::bucket::BUCKET_BYTES;
    pub use super::sync::{Site, plant};
}
