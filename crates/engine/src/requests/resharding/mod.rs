//! Resharding: the right to grant a shard's locks moves to another node, while transactions run.
//!
//! - [`moving`]: one move of a shard, step by step. `drain`: detects when all earlier grants are released.
//! - [`crate::services::shard_load`]: the number of lock requests to a node, and how long its transactions take.
//!   [`crate::services::shard_rule`]: which node is overloaded, and which node takes over a shard. [`mod@balance`]:
//!   each node publishes its load, reads the other nodes' loads, and gives its hottest shard away.
//!
//! Invariant: resharding affects only speed: whatever the rule decides, a shard has one owner. Only the right to
//! grant locks moves, and data stay in place. So a move costs only the wait for transactions that hold some of the
//! shard's locks.
//!
//! The design follows Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing Disaggregated Transactions with Disaggregated
//! Locks" (§4.3, pass-by-range resharding). The design differs from the paper in two points. The membership service's
//! map decides which node owns a shard, and no message does (L11). The old owner aborts no transaction (L17), see
//! [`moving`].

pub mod balance;
pub mod moving;
#[cfg(all(test, not(loom)))]
mod moving_tests;

pub use balance::balance;
pub use moving::{Move, move_shard};
