//! Where data lie: the plan of a database, its replica groups, and the compute nodes that own its shards.
//!
//! Invariant: the plan is a function of schemas and options. Groups and shards, which change later, are
//! values that a service hands in.

pub mod catalog;
mod plan_sizes;
pub mod replica_groups;
pub mod routing;
pub mod shard_map;
