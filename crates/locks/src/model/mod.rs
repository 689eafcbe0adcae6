//! The exhaustive search: a small cluster of the shipped functions, in all orders of its events.
//!
//! Invariants that it checks in each state: an exclusive holder is alone; at most one agent is installed; each holder's token passes at a
//! guarded resource. And of each state: with no further request, loss or repetition, all waiters are granted and all locks released.

mod bounds;
mod cluster;
mod intern;
mod node;
pub mod plan;
mod search;

pub use bounds::{Action, Bounds, Flight, Violation};
pub use search::{Found, Limits, Outcome, search};
