//! Locks in compute nodes: which transaction may read or write what, decided by the node whose shard it is.
//!
//! - [`name`]: what is locked, and how.
//! - [`table`]: a node's table of locks; `bucket` its words, `spill` what does not fit.
//! - `sync`: its atomics, so that they can be modelled. `planted`: what it must not do.
//!
//! Invariant: nobody waits for a lock; one that cannot be had is refused, and the transaction tries again.
//! See docs/locks.md. (Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing Disaggregated Transactions with
//! Disaggregated Locks".)

mod bucket;
pub mod name;
mod planted;
mod spill;
mod sync;
pub mod table;
#[cfg(all(test, not(loom)))]
mod tests;

/// What a model of the table's synchronisation needs, and nobody else.
#[cfg(loom)]
pub mod modelled {
    pub use super::sync::{Site, plant};
}
