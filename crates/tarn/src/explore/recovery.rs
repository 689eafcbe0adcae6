//! Who recovers what a lost compute node left, as a coroutine; and the objects beside memory that count.
//!
//! Invariant: the engine's own recovery, begun by declaring the node dead. Locks without a log are left to
//! whoever meets them; those that nobody met, the judge sweeps away before it looks for any.

use super::cluster::Cluster;
use super::desk::Desk;
use std::rc::Rc;
use tarn_engine::context::{Context, Database};
use tarn_engine::membership::Standing;
use tarn_engine::recovery::{self, Attempt};
use tarn_fabric::address::NodeId;
use tarn_fabric::rng::mix;

/// Recovers `dead`.
pub async fn recover(cx: Rc<Context>, dead: NodeId, desk: Rc<Desk>) {
    cx.database().membership.expel(dead);
    match recovery::recover(&cx, dead).await {
        Ok(Attempt::Recovered(_)) => desk.recovered(dead),
        Ok(other) => desk.fails(format!("{dead} was not recovered: {other:?}")),
        Err(failure) => desk.fails(format!("{dead} was not recovered: {failure}")),
    }
}

/// A digest of what coordinators may learn of the cluster otherwise than from memory.
pub fn digest(cluster: &Cluster, database: &Database) -> u64 {
    let nodes = (0..cluster.compute_nodes() as u16).map(|slot| cluster.node(slot));
    let standing = |node: NodeId| match database.membership.standing(node) {
        Standing::Unknown => 0,
        Standing::Member => 1,
        Standing::Expelled => 2,
        Standing::Recovered => 3u64,
    };
    let configurations = &database.configurations;
    let numbers = [configurations.announced(), configurations.open().number];
    let first = numbers.iter().fold(database.membership.view().0, |digest, it| mix(digest) ^ it.0);
    nodes.fold(mix(first), |digest, node| mix(digest ^ standing(node)))
}
