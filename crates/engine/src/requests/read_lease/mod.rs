//! Leases of readers in use: who reads, how long transactions take, and which clocks run off.
//!
//! Invariant: the rule itself is in [`crate::cluster::lease`].

pub(crate) mod explicit;
pub mod manager;
pub mod monitor;
