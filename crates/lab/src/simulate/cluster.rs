//! Makes a simulated cluster: memory nodes and compute nodes of a hardware profile, with a database on these nodes.
//!
//! Invariant: the database has the same layout as on the embedded cluster, because both use the same catalog. A
//! cluster that cannot be simulated is refused before any memory is allocated.

use super::Config;
use super::stamps::Source;
use crate::harness::simulated::{self, refused};
use std::sync::Arc;
use tarn::cluster::OpenError;
use tarn::memory::check_caches;
use tarn_engine::cluster::membership::EmbeddedMembership;
use tarn_engine::protocol::AnyProtocol;
use tarn_engine::services::ServiceOptions;
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::NodeSlot;
use tarn_sim::config::{Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::memory::{PAGE_BYTES, TABLE_ENTRY_BYTES};
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;
use tarn_store::placement::catalog::Catalog;
use tarn_store::schema::TableSchema;

/// The smallest number of bytes that a record takes in the simulator's packed image of memory: the nonzero words of
/// its slot.
const RECORD_BYTES_MIN: u64 = 24;

/// A simulated cluster: the hardware, and the database on this hardware.
pub struct SimCluster {
    fabric: SimFabric,
    database: Arc<Database>,
    config: Config,
    counts_load: bool,
}

impl SimCluster {
    /// Makes a cluster with new memory, which has a log area for every coordinator.
    ///
    /// # Errors
    /// Fails if a value cannot be used; the error names this value.
    pub fn new(
        schemas: &[TableSchema],
        config: &Config,
        records: u64,
    ) -> Result<SimCluster, OpenError> {
        let shape = &config.cluster;
        let protocol = AnyProtocol::by_name(&shape.protocol, &shape.variant)?;
        let mut options = shape.options.clone();
        options.coordinators_max = config.coordinators as u32;
        let catalog = protocol.catalog(schemas, &options, shape.memory_nodes)?;
        check_memory(&catalog, config, records)?;
        let hardware = SimConfig {
            memory_nodes: shape.memory_nodes,
            replicas: shape.replicas,
            compute_nodes: shape.compute_nodes,
            group_bytes: catalog.group_bytes(),
            profile: config.profile.clone(),
            mode: Mode::Timed,
            seed: shape.seed,
        };
        // The node that serves timestamps needs one more slot.
        let membership = EmbeddedMembership::new(shape.compute_nodes + 1);
        let membership = membership.leasing_reads(shape.read_lease_ns)?;
        let membership = Arc::new(membership.adjusting_reads(shape.read_lease_policy));
        let (fabric, database) =
            simulated::database((&hardware, 0), (protocol, catalog), membership)?;
        Ok(SimCluster { fabric, database, config: config.clone(), counts_load: false })
    }

    /// Returns the simulated hardware.
    pub fn fabric(&self) -> &SimFabric {
        &self.fabric
    }

    /// Returns the database.
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Returns the requested configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Sets the number of threads of each compute node and the number of all coordinators, from the
    /// next phase on.
    ///
    /// # Errors
    /// Fails if the number of coordinators exceeds the number of log areas in the memory.
    pub fn reseat(&mut self, threads: usize, coordinators: usize) -> Result<(), UsageError> {
        let most = self.database.catalog.options().coordinators_max as usize;
        if coordinators > most {
            let (value, allowed) = (coordinators.to_string(), format!("1 to {most}"));
            return Err(UsageError { field: "coordinators".into(), value, allowed });
        }
        (self.config.threads, self.config.coordinators) = (threads, coordinators);
        Ok(())
    }

    /// Replaces the variant of the protocol while no coordinator runs. From the next phase on, the new variant runs
    /// on the same memory.
    ///
    /// # Errors
    /// Fails if the variant does not exist, if its records have another layout, or if `protocol` is not the cluster's
    /// protocol.
    pub fn set_variant(&mut self, protocol: &str, variant: &str) -> Result<(), UsageError> {
        let shape = &mut self.config.cluster;
        if protocol != shape.protocol {
            let (value, allowed) = (protocol.to_owned(), shape.protocol.clone());
            return Err(UsageError { field: "protocol".into(), value, allowed });
        }
        let protocol = AnyProtocol::by_name(protocol, variant)?;
        let catalog = &self.database.catalog;
        let schemas: Vec<TableSchema> =
            catalog.tables().iter().map(|table| table.schema.clone()).collect();
        let wanted = protocol.catalog(&schemas, catalog.options(), shape.memory_nodes)?;
        if wanted.options().layout != catalog.options().layout {
            let allowed = "variants whose records lie as these do".to_owned();
            return Err(UsageError { field: "variant".into(), value: variant.to_owned(), allowed });
        }
        variant.clone_into(&mut shape.variant);
        self.database = Arc::new(self.database.run_by(protocol));
        Ok(())
    }

    /// Replaces the hardware profile. From the next phase on, the operations of the same hardware take other times.
    ///
    /// # Errors
    /// Fails if a changed constant would need another cluster.
    pub fn set_profile(&mut self, profile: Profile) -> Result<(), UsageError> {
        self.fabric.set_profile(&profile).map_err(refused)?;
        self.config.profile = profile;
        Ok(())
    }

    /// Returns the number of bytes of memory laid out, over all nodes and replicas; the simulation
    /// takes fewer bytes.
    pub fn memory_bytes(&self) -> u64 {
        let shape = &self.config.cluster;
        self.database.catalog.group_bytes() * (shape.memory_nodes * shape.replicas) as u64
    }

    /// Lets a compute node join the cluster as a new incarnation.
    ///
    /// # Errors
    /// Fails if the slot has used up its incarnation numbers.
    pub fn join(&self, slot: u16) -> Result<Arc<ComputeNode>, UsageError> {
        let id = self.database.membership.join(NodeSlot(slot))?;
        let (threads, nodes) = (self.config.threads as u16, self.config.cluster.compute_nodes);
        let services = ServiceOptions {
            version_cache_entries: self.config.cluster.version_cache_entries,
            counts_load: self.counts_load,
            ..ServiceOptions::new(threads, nodes)
        };
        Ok(Arc::new(ComputeNode::serving(Arc::clone(&self.database), id, &services)?))
    }

    /// Sets the largest number of version tables that each compute node caches from the next phase on.
    pub fn set_version_cache(&mut self, entries: usize) {
        self.config.cluster.version_cache_entries = entries;
    }

    /// Sets whether compute nodes count requests for their shards, from the next phase on.
    pub fn set_counts_load(&mut self, counts_load: bool) {
        self.counts_load = counts_load;
    }

    /// Sets the source from which transactions take timestamps from the next phase on.
    pub fn set_source(&mut self, source: Source) {
        self.config.timestamps = source;
    }

    /// Makes the context of a compute node's thread that runs transactions.
    ///
    /// # Errors
    /// Fails if the thread number is too large for owner tags.
    pub fn thread(&self, node: &Arc<ComputeNode>, thread: u16) -> Result<Context, UsageError> {
        let mut cx = self.context(node, thread)?;
        self.set_timestamps(&mut cx, self.config.timestamps);
        Ok(cx)
    }

    /// Makes the context of a compute node's thread, for use while no coordinator runs. This thread gets its
    /// timestamps without any delay.
    ///
    /// # Errors
    /// Fails if the thread number is too large for owner tags.
    pub fn context(&self, node: &Arc<ComputeNode>, thread: u16) -> Result<Context, UsageError> {
        let shape = &self.config.cluster;
        let port = self.fabric.port(node.id, thread, shape.seed);
        Context::new(Arc::clone(node), port, thread, shape.address_cache_entries)
    }
}

/// Refuses a cluster that needs more memory than this machine has.
fn check_memory(catalog: &Catalog, config: &Config, records: u64) -> Result<(), OpenError> {
    let shape = &config.cluster;
    let pages = catalog.group_bytes().div_ceil(PAGE_BYTES as u64) * shape.memory_nodes as u64;
    let tables = pages * TABLE_ENTRY_BYTES as u64 * (1 + shape.replicas as u64);
    let wanted = tables + records.saturating_mul(RECORD_BYTES_MIN);
    let Some(available) = tarn::memory::available_bytes() else { return Ok(()) };
    if wanted <= available {
        let threads = config.threads * shape.compute_nodes;
        return Ok(check_caches(shape.address_cache_entries, threads, wanted, available)?);
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Err(OpenError::Usage(UsageError {
        field: "records".into(),
        value: format!("{records}, {:.1} GiB at the least to simulate", gib(wanted)),
        allowed: format!("what this machine has available, {:.1} GiB", gib(available)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn::cluster::ClusterConfig;
    use tarn_store::schema::ColumnType;

    /// If a reader's timestamp is below the timestamps in memory, the reader finds no version, however often it
    /// tries.
    #[test]
    fn another_variant_goes_on_behind_the_timestamps_that_were_given() {
        let cluster = ClusterConfig { protocol: "motor".into(), ..ClusterConfig::default() };
        let profile = Profile::load("cx3-56g").expect("embedded");
        let config =
            Config { cluster, profile, threads: 1, coordinators: 1, timestamps: Source::Counter };
        let schema = TableSchema::new("t", 10).column("a", ColumnType::U64);
        let mut it = SimCluster::new(&[schema], &config, 10).expect("a cluster");
        let given = (0..3).map(|_| it.database().counter.next()).max();
        it.set_variant("motor", "measured").expect("a variant");
        let counter = &it.database().counter;
        assert_eq!(Some(counter.last()), given);
        assert!(Some(counter.next()) > given);
    }
}
