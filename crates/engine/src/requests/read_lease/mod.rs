//! The use of readers' leases: which transactions read, how long transactions take, and which clocks drift too far.
//!
//! Invariant: the module [`crate::cluster::lease`] contains the rule that makes leases safe.

pub(crate) mod explicit;
pub mod manager;
pub mod monitor;
