//! The use of readers' leases: which transactions read, how long transactions take, and which clocks drift too far.
//!
//! Invariant: the rule that makes leases safe is in [`crate::cluster::lease`].

pub(crate) mod explicit;
pub mod manager;
pub mod monitor;
