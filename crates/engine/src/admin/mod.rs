//! Administration of a database: loading, inspection, new copies of replica groups, repair.
//!
//! Invariant: loads and inspections run while no transaction runs. New copies of replica groups are made while
//! transactions run. A stop ([`stop`]) holds all transactions back for a moment.

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
pub mod stop;
