//! Use of readers' leases: which transactions read, how long transactions take, and which clocks run off.
//!
//! Invariant: the rule itself is in [`crate::cluster::lease`].

pub(crate) mod explicit;
pub mod manager;
pub mod monitor;
