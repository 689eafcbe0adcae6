//! A database: schemas, layouts, placement, and the state that all of its compute nodes share.
//!
//! Invariant: a database is the same for every compute node. Only the database's configuration changes.

use super::system::System;
use crate::cluster::configuration::Configurations;
use crate::cluster::loads::Loads;
use crate::cluster::log_area_owners::LogAreaOwners;
use crate::cluster::membership::Membership;
use crate::cluster::recovering::Sweeps;
use crate::services::Directory;
use crate::services::lease_desk::LeaseDesk;
use crate::services::lock_stations::LockStations;
use crate::services::timestamp::SharedCounter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_store::log::blocks::LogBlocks;
use tarn_store::placement::catalog::Catalog;
use tarn_store::placement::replica_groups::ReplicaGroups;

/// Schemas, layouts, placement and protocol, which are the same for every compute node.
pub struct Database {
    /// The schemas and layouts of tables.
    pub catalog: Catalog,
    /// The maps of replica groups, in the present and the next configuration.
    pub configurations: Configurations,
    /// The protocol that runs transactions.
    pub protocol: Arc<dyn System>,
    /// The members of the cluster.
    pub membership: Arc<dyn Membership>,
    /// Entries of ordered indexes that loaders have passed in.
    pub loads: Loads,
    /// Which node sweeps away the locks of dead incarnations, and which sweep must be made.
    pub sweeps: Sweeps,
    /// The source of timestamps, if the database uses no other source.
    pub counter: SharedCounter,
    /// The blocks for log entries that are longer than their log areas.
    pub(crate) log_blocks: LogBlocks,
    /// The machines of the lock service, under a protocol that needs one.
    pub lock_stations: Option<Arc<LockStations>>,
    /// The directory by which compute nodes of this process reach each other directly.
    pub directory: Directory,
    /// The compute nodes' counts of their transactions, and the changes of lease lengths that managers based on these
    /// counts.
    pub lease_desk: LeaseDesk,
    /// Transactions in doubt, how they ended, and which coordinators' numbers they need.
    pub log_area_owners: LogAreaOwners,
    number: u64,
}

/// The number of databases that this process has opened.
static DATABASES: AtomicU64 = AtomicU64::new(0);

impl Database {
    /// Creates a database whose first configuration has these replica groups.
    pub fn new(
        catalog: Catalog,
        groups: ReplicaGroups,
        protocol: impl System,
        membership: Arc<dyn Membership>,
    ) -> Database {
        let (configurations, sweeps) = (Configurations::new(groups), Sweeps::default());
        let (loads, counter) = (Loads::default(), SharedCounter::default());
        let directory = Directory::default();
        let lock_service = protocol.needs().lock_service;
        Database {
            lock_stations: lock_service.map(|need| Arc::new(LockStations::new(need))),
            catalog,
            configurations,
            protocol: Arc::new(protocol),
            membership,
            loads,
            sweeps,
            counter,
            log_blocks: LogBlocks::default(),
            directory,
            lease_desk: LeaseDesk::default(),
            log_area_owners: LogAreaOwners::default(),
            number: DATABASES.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Returns a database on the same memory, which another variant of its protocol runs from now on. No transaction
    /// may run during this call. New timestamps are above all earlier timestamps, because versions in memory contain
    /// earlier timestamps.
    pub fn run_by(&self, protocol: impl System) -> Database {
        let membership = Arc::clone(&self.membership);
        let counter = SharedCounter::after(self.counter.last());
        let next = Database::new(self.catalog.clone(), self.groups(), protocol, membership);
        Database { counter, number: self.number, ..next }
    }

    /// The number of the database in this process, which distinguishes the state of different databases.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The map of replica groups in the configuration that was opened last.
    pub fn groups(&self) -> ReplicaGroups {
        self.configurations.open().groups.clone()
    }
}
