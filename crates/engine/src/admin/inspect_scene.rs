//! A test scene: one thread on an empty database in three memory nodes. Tests of loading and of the audit use it.
//!
//! Invariant: a test that uses this scene chooses only the catalog.

use crate::cluster::membership::EmbeddedMembership;
use crate::protocol::{ALL, AnyProtocol};
use crate::site::{ComputeNode, Context, Database};
use std::sync::Arc;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::local::{Backing, LocalConfig, LocalFabric};
use tarn_store::placement::catalog::Catalog;
use tarn_store::placement::replica_groups::ReplicaGroups;

pub(crate) fn thread_on(catalog: Catalog) -> Context {
    let config = LocalConfig {
        memory_nodes: 3,
        replicas: 2,
        group_bytes: catalog.group_bytes(),
        backing: Backing::Private,
        ..LocalConfig::default()
    };
    let fabric = LocalFabric::new(&config).expect("a fabric");
    let groups = ReplicaGroups::new(fabric.groups().to_vec());
    let protocol = AnyProtocol::by_name(ALL[0].name, "corrected").expect("the first");
    let membership = Arc::new(EmbeddedMembership::new(1));
    let database = Arc::new(Database::new(catalog, groups, protocol, membership));
    let id = database.membership.join(NodeSlot(0)).expect("a place");
    let node = Arc::new(ComputeNode::new(database, id));
    Context::new(node, fabric.port(id, 0, 7), 0, 0).expect("a thread")
}
