//! The interface of callers: coordinators and their transactions.
//!
//! Invariant: a caller sees operations on a map; rounds, retries and restructuring are done here.

pub(crate) mod attempt;
pub mod coordinator;
mod misuse;
mod multi_get;
mod restructure;
mod scanning;
pub(crate) mod settle;
pub mod transaction;
