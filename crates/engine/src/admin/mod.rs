//! Work beside transactions: loading, inspection, new copies of groups, repair.
//!
//! Invariant: loads and inspections run while no transaction does; copies are made beside transactions.

pub mod inspect;
#[cfg(test)]
mod inspect_scene;
mod inspect_trees;
mod inspect_versions;
pub mod last_writes;
pub mod load;
pub mod load_trees;
pub mod repair;
pub mod rereplicate;
