//! The interface of callers: coordinators and their transactions.
//!
//! Invariant: a caller sees only operations on a map. This module hides rounds, retries and restructuring from the
//! caller.

pub(crate) mod attempt;
pub mod coordinator;
mod late;
mod misuse;
mod multi_get;
mod restructure;
mod scanning;
pub(crate) mod settle;
pub mod transaction;
