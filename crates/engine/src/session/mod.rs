//! The interface of callers: coordinators and their transactions.
//!
//! Invariant: a caller sees only operations on a map. Rounds, retries and restructuring are done inside this
//! module.

pub(crate) mod attempt;
pub mod coordinator;
mod misuse;
mod multi_get;
mod restructure;
mod scanning;
pub(crate) mod settle;
pub mod transaction;
