//! Resharding: a shard's locks are granted by another node from now on, while transactions run.
//!
//! - [`moving`]: one move, step by step. `drain`: when nothing is left of what was granted before.
//! - [`crate::services::shard_load`]: what a node is asked for, and how long its transactions take. [`crate::services::shard_rule`]: who is overloaded, and who is
//!   to take over. [`mod@balance`]: each node publishes, looks at the others, and gives its hottest shard away.
//!
//! Invariant: a matter of speed alone: whatever the rule decides, a shard has one owner. Locks move and data stay where
//! they are, so that a move costs no more than the wait for those who hold some.
//!
//! After Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks"
//! (§4.3, pass-by-range resharding). Where we differ: the membership service's map decides and no message does
//! (L11); nobody is aborted by the old owner (L17), see [`moving`].

pub mod balance;
pub mod moving;
#[cfg(all(test, not(loom)))]
mod moving_tests;

pub use balance::balance;
pub use moving::{Move, move_shard};
