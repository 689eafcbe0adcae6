//! Who recovers what a dead compute node left, as a coroutine.
//!
//! Invariant: first the dead node's access is revoked at every memory node, so that nothing of it lands
//! any more; then its coordinators' last logged transactions are resolved. Locks that it held without a
//! log stay, since nobody sweeps them yet (docs/design/0004).

use super::cluster::Cluster;
use super::desk::{Answer, Desk};
use crate::schedules::faults::last_logged;
use std::rc::Rc;
use tarn_engine::context::Context;
use tarn_engine::coordinator::{Coordinator, Retry};
use tarn_fabric::address::{NodeId, NodeSlot};

/// Recovers `dead`; `number` is a coordinator that nobody else has.
pub async fn recover(
    cluster: Rc<Cluster>,
    cx: Rc<Context>,
    (dead, number): (NodeId, u32),
    desk: Rc<Desk>,
) {
    for at in 0..cluster.shape().memory_nodes {
        // A memory node that is down executes nothing either.
        let _ = cx.port.revoke(dead, NodeSlot(at as u16)).await;
    }
    let mut by = Coordinator::new(Rc::clone(&cx), number, Retry::default());
    for (of, crew) in cluster.litmus().coordinators.iter().enumerate() {
        if cluster.node(crew.node) != dead {
            continue;
        }
        let Some(id) = last_logged(&cx, dead, of as u32).await else { continue };
        match by.resolve_of(id, of as u32).await {
            Ok(resolution) => desk.answers(Answer { id, resolution, at: cx.port.observed() }),
            Err(failure) => desk.fails(format!("{id} was not resolved: {failure}")),
        }
    }
    desk.recovered(dead);
}
