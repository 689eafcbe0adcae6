//! Resharding: another node grants a shard's locks from now on, while transactions run.
//!
//! - [`moving`]: one move, step by step. `drain`: finds out when all earlier grants are released.
//! - [`crate::services::shard_load`]: how often a node is asked for locks, and how long its transactions take.
//!   [`crate::services::shard_rule`]: which node is overloaded, and which takes over. [`mod@balance`]: each node
//!   publishes, looks at the others, and gives its hottest shard away.
//!
//! Invariant: resharding affects only speed: whatever the rule decides, a shard has one owner. Locks move and data stay
//! where they are. So a move costs only the wait for transactions that hold some of the locks.
//!
//! After Hu, Zuo, Hu, Chen, Wang, Yang, "LOTUS: Optimizing Disaggregated Transactions with Disaggregated Locks" (§4.3,
//! pass-by-range resharding). We differ in two points: the membership service's map decides, and no message does (L11);
//! the old owner aborts no transaction (L17), see [`moving`].

pub mod balance;
pub mod moving;
#[cfg(all(test, not(loom)))]
mod moving_tests;

pub use balance::balance;
pub use moving::{Move, move_shard};
