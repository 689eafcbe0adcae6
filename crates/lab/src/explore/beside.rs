//! What compute nodes keep beside memory, for protocols whose locks lie there: how the explorer tells states of it
//! apart, who serves it, and what of it must be left at the end.
//!
//! Invariant: nothing of it changes between polls. A thread's service runs in the polls of its coordinator, before
//! it, as on a thread whose turns they share: what is over is given up in the poll after it has landed, and
//! an actor has ended only when nothing of it runs on. (docs/design/0018-explorer-beside-memory.md)

use super::cluster::Cluster;
use super::desk::Left;
use std::future::poll_fn;
use std::rc::Rc;
use tarn_engine::requests::serve::settle;
use tarn_engine::site::{ComputeNode, Context};
use tarn_fabric::rng::mix;
use tarn_sim::explore::{End, Fate};
use tarn_store::placement::shard_map::{ShardEntry, ShardId};

/// A digest of all that a node keeps: its locks, what it has granted and heard of, what it believes of the
/// shards that the litmus has to do with; or what its transactions read. Nothing, if the protocol keeps nothing there.
pub fn digest(node: &ComputeNode, shards: &[ShardId]) -> Option<u64> {
    let Some(services) = node.services() else { return Some(node.readers()?.digest()) };
    let word = |shard: &ShardId| services.shards.entry(*shard).map_or(0, ShardEntry::word);
    Some(shards.iter().map(word).fold(services.digest(), |digest, word| mix(digest ^ word)))
}

/// Returns a coroutine together with its thread's service; at its end the thread gives up what the coroutine has left.
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

/// Locks that nobody will give up: at members all of whose actors have ended, once what the recovered held is
/// dropped. `None`, if there are none.
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
