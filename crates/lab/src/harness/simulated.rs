//! Makes a database on simulated hardware. The database's tables are laid out but contain no records.
//!
//! Invariant: the catalog decides the size of a node's memory. The database lists the spare nodes
//! in the order of their slots, after the memory nodes.

use std::sync::Arc;
use tarn_engine::cluster::membership::Membership;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::site::Database;
use tarn_fabric::address::NodeSlot;
use tarn_sim::config::{ConfigError, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::memory::Zeros;
use tarn_store::ids::UsageError;
use tarn_store::placement::catalog::Catalog;
use tarn_store::placement::replica_groups::ReplicaGroups;

/// Makes the hardware that `config` describes, with `spares` additional memory nodes, and a
/// database on this hardware.
///
/// # Errors
/// Fails if the simulator refuses the configuration.
pub(crate) fn database(
    (config, spares): (&SimConfig, usize),
    (protocol, catalog): (AnyProtocol, Catalog),
    membership: Arc<dyn Membership>,
) -> Result<(SimFabric, Arc<Database>), UsageError> {
    debug_assert_eq!(config.group_bytes, catalog.group_bytes());
    let fabric = SimFabric::with_spares(config, Box::new(Zeros), spares).map_err(refused)?;
    let groups = ReplicaGroups::new(fabric.groups());
    let database = Arc::new(Database::new(catalog, groups, protocol, membership));
    for spare in 0..spares {
        database.configurations.add_spare(NodeSlot((config.memory_nodes + spare) as u16));
    }
    Ok((fabric, database))
}

/// Converts the simulator's error, so that the error names the field in the same way as the command-line flag.
pub(crate) fn refused(error: ConfigError) -> UsageError {
    let ConfigError { field, value, allowed } = error;
    UsageError { field: field.replace('_', "-"), value, allowed }
}
