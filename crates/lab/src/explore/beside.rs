//! State that compute nodes keep beside memory, for protocols whose locks lie there. The explorer takes a digest of it,
//! serves it in the polls of coordinators, and checks at the end that no lock is left.
//!
//! Invariant: this state does not change between polls. A thread's service runs in the polls of its coordinator, before the
//! coordinator, as on a thread whose turns they share. A lock whose transaction is over is given up in the poll after the
//! last verb has landed. An actor has ended only when nothing of it runs on. (docs/design/0018-explorer-beside-memory.md)

use super::cluster::Cluster;
use super::desk::Left;
use std::future::poll_fn;
use std::rc::Rc;
use tarn_engine::requests::serve::settle;
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::rng::mix;
use tarn_sim::explore::{End, Fate};
use tarn_store::placement::shard_map::{ShardEntry, ShardId};

/// Returns a digest of all that a node keeps: its locks, its grants, the requests it has heard, and its view of the
/// litmus's shards. For a protocol with readers' leases it is a digest of its readers. `None` if the protocol keeps nothing
/// there.
pub fn digest(node: &ComputeNode, shards: &[ShardId]) -> Option<u64> {
    let Some(services) = node.services() else { return Some(node.readers()?.digest()) };
    let word = |shard: &ShardId| services.shards.entry(*shard).map_or(0, ShardEntry::word);
    Some(shards.iter().map(word).fold(services.digest(), |digest, word| mix(digest ^ word)))
}

/// Returns a coroutine together with its thread's service; at its end the thread gives up all that the coroutine has left.
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

/// Describes locks that will never be given up: those at members all of whose actors have ended, once the locks of the
/// recovered are dropped. `None`, if there are none.
pub fn left_locked(left: &Left, end: &End<'_>) -> Option<String> {
    let has_ended = |cx: &Context| {
        let mut its = end.summary.actors.iter().filter(|actor| actor.node == cx.node.id);
        its.all(|actor| matches!(actor.fate, Fate::Finished | Fate::NeverStarted))
    };
    let is_member = |cx: &Context| cx.database().membership.is_member(cx.node.id);
    for cx in left.contexts.iter().filter(|cx| is_member(cx) && has_ended(cx)) {
        let Some(services) = cx.node.services() else { continue };
        cx.serve();
        let is_awaited = services.holders().any(|life| !cx.database().membership.is_member(life));
        let held = services.locks.held();
        if held > 0 && !is_awaited {
            let node = cx.node.id.slot.0;
            return Some(format!("{held} are held at node {node}, where nobody runs any more"));
        }
    }
    None
}
