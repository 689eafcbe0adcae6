//! The placement of data: the plan of a database, its replica groups, and the compute nodes that own its shards.
//!
//! Invariant: the plan is a pure function of schemas and options. Replica groups and shards may change later, so a
//! service of the cluster provides the present groups and shards as values.

pub mod catalog;
mod plan_sizes;
pub mod replica_groups;
pub mod routing;
pub mod shard_map;
