//! The state that compute nodes keep in their own memory, outside of the memory pool. Only protocols that keep their
//! locks in compute nodes, or at a lock service, have such state. The explorer takes a digest of this local state and processes lock
//! requests in the polls of coordinators. At the end of an execution the explorer checks that no lock remains held.
//!
//! Invariant: the local state of compute nodes does not change between polls. A thread's service and its coordinator
//! run in the same polls of the thread. So each poll of the coordinator first runs the service, and then the
//! coordinator itself. When a transaction is over, its locks are released in the first poll after its last verb has
//! landed. The explorer treats an actor as ended only when the actor's service has also stopped.
//! (docs/design/0018-explorer-beside-memory.md)

use super::cluster::Cluster;
use super::desk::Left;
use std::future::poll_fn;
use std::rc::Rc;
use tarn_engine::requests::serve::settle;
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::rng::mix;
use tarn_sim::explore::{End, Fate};
use tarn_store::placement::shard_map::{ShardEntry, ShardId};

/// Returns a digest of all local state that a node keeps. The digest covers the node's locks, its grants, the
/// requests that it has received, and the owners that it knows for the litmus's shards. For a protocol with readers'
/// leases, the digest covers the node's readers too. The result is `None` if the protocol keeps no local state.
pub fn digest(node: &ComputeNode, shards: &[ShardId]) -> Option<u64> {
    let Some(services) = node.services() else { return Some(node.readers()?.digest()) };
    let word = |shard: &ShardId| services.shards.entry(*shard).map_or(0, ShardEntry::word);
    Some(shards.iter().map(word).fold(services.digest(), |digest, word| mix(digest ^ word)))
}

/// Returns a coroutine that also runs its thread's service. When the coroutine ends, the thread waits until no work
/// of its transactions remains, so that all locks are released.
pub fn serving(
    cluster: &Rc<Cluster>,
    cx: &Rc<Context>,
    inner: impl Future<Output = ()> + 'static,
) -> impl Future<Output = ()> + 'static {
    let (cluster, cx, its) = (Rc::clone(cluster), Rc::clone(cx), Rc::clone(cx));
    let mut inner = Box::pin(async move {
        inner.await;
        settle(&its).await;
    });
    poll_fn(move |task| {
        cx.reread_shards(&cluster.shards);
        cx.serve();
        inner.as_mut().poll(task)
    })
}

/// Describes locks that will never be released, or returns `None` if there are no such locks. The
/// function considers member nodes whose actors have all ended, after the locks of recovered nodes were
/// dropped.
pub fn left_locked(left: &Left, end: &End<'_>) -> Option<String> {
    let has_ended = |cx: &Context| {
        let mut its = end.summary.actors.iter().filter(|actor| actor.node == cx.node.id);
        its.all(|actor| matches!(actor.fate, Fate::Finished | Fate::NeverStarted))
    };
    let is_member = |cx: &Context| cx.database().membership.is_member(cx.node.id);
    for cx in left.contexts.iter().filter(|cx| is_member(cx) && has_ended(cx)) {
        let node = cx.node.id.slot.0;
        let Some(services) = cx.node.services() else {
            let stations = cx.database().lock_stations.as_ref();
            let held = stations.map_or(0, |stations| stations.requests_of(cx.node.id));
            if held > 0 {
                return Some(format!(
                    "{held} are requested by node {node}, where nobody runs any more"
                ));
            }
            continue;
        };
        cx.serve();
        let is_awaited = services.holders().any(|life| !cx.database().membership.is_member(life));
        let held = services.locks.held();
        if held > 0 && !is_awaited {
            return Some(format!("{held} are held at node {node}, where nobody runs any more"));
        }
    }
    None
}
