//! One move of a shard, in four steps: close the shard, drain it, send the timestamp, give the shard away.
//!
//! Invariants: the owner first closes the shard in the shard's record, so that from then on no node grants the
//! shard's locks. The owner gives the shard away only when no transaction holds a lock of the shard. The owner's
//! greatest timestamp reaches the receiver before the shard does. So each later holder of a lock knows the commit
//! timestamps of all earlier holders. Each change is a compare-and-set in the record; a message changes nothing
//! (L11). If a move fails or its future is dropped, the shard is open at its owner again. So transactions find the
//! locks that are still held at the owner.
//!
//! A move waits for the holders of locks and does not abort them. In the paper's text the old owner aborts holders
//! that take longer than 10 ms. Such a holder may have passed its commit point C1, and its writes then overwrite the
//! writes of the next holder (L17). The old owner could request the holder to abort, but a transaction ends within
//! some rounds anyway, and an abort would waste its work. So after that time the owner takes the move back. The owner
//! tries the move again when the rule says so.
//!
//! Deaths: if the owner's incarnation ends, the map immediately changes the shard's state to `Recovering`, whatever
//! the state was before. The heirs get the shard by the two barriers of docs/sharding.md. If the receiver's
//! incarnation ends before the last step, the map refuses that step.

use crate::cluster::membership::ShardChange;
use crate::services::Planted;
use crate::services::lock::message::{self, TRANSFER};
use crate::site::Context;
use std::pin::pin;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_fabric::address::NodeId;
use tarn_fabric::clock::Nanos;
use tarn_store::placement::shard_map::{ShardEntry, ShardId, ShardState};

/// How long a waiting coroutine sleeps before it checks again.
const LOOK_EVERY: Nanos = Nanos(1_000);
/// The time after which a planted bug sends TRANSFER a second time.
const TWICE_AFTER: Nanos = Nanos(60_000);

/// The result of a move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// The receiver grants the shard's locks from now on.
    Made {
        /// When the shard was closed, by this node's clock.
        closed_at: Nanos,
        /// When the record named the receiver as the owner, by this node's clock.
        given_at: Nanos,
    },
    /// The shard stays with its owner. The reason is that the holders of its locks took too long, the receiving node
    /// did not answer, or the receiving node is not a member.
    TakenBack,
    /// This node did not own the shard, or the receiver already owns it.
    NotOurs,
    /// This node's incarnation has ended, and its heirs get its shards.
    Lost,
}

/// A closed shard. Dropping this value opens the shard again at its owner, unless the owner has given the shard away.
struct Closed<'a> {
    cx: &'a Context,
    shard: ShardId,
    /// The entry of the shard in its record; `None` after the owner has given the shard away.
    entry: Option<ShardEntry>,
}

impl<'a> Closed<'a> {
    fn close(cx: &'a Context, shard: ShardId) -> Option<Closed<'a>> {
        let open = cx.database().membership.shard(shard)?;
        let closed = open.next(cx.node.id, ShardState::Closed);
        if !open.is_served_by(cx.node.id) || !change(cx, shard, open, closed) {
            return None;
        }
        Some(Closed { cx, shard, entry: Some(closed) })
    }

    /// Gives the shard to the node `to`. Returns whether that node has the shard now.
    fn give(mut self, to: NodeId) -> bool {
        let entry = self.entry.expect("the shard is closed");
        let is_given = change(self.cx, self.shard, entry, entry.next(to, ShardState::Open));
        if is_given {
            self.entry = None;
        }
        is_given
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            // The map refuses this change only if this node's incarnation has ended.
            change(self.cx, self.shard, entry, entry.next(self.cx.node.id, ShardState::Open));
        }
    }
}

/// Changes the shard's record, and updates the node's view of the shard map. Returns whether the change was made.
fn change(cx: &Context, shard: ShardId, from: ShardEntry, to: ShardEntry) -> bool {
    let membership = &cx.database().membership;
    let made = membership.change_shard(cx.node.id, shard, from, to) == ShardChange::Made;
    cx.reread_shards(&[shard]);
    made
}

/// Gives a shard of this node to another node. The function waits at most `patience` for transactions that hold locks
/// of the shard.
pub async fn move_shard(cx: &Context, shard: ShardId, to: NodeId, patience: Nanos) -> Move {
    if to == cx.node.id {
        return Move::NotOurs;
    }
    let closed_at = cx.port.now();
    let Some(closed) = Closed::close(cx, shard) else { return Move::NotOurs };
    let until = Nanos(closed_at.0.saturating_add(patience.0));
    if !drain(cx, shard, to, until).await || !tell(cx, shard, to, until).await {
        return given_up(cx, closed);
    }
    if !closed.give(to) {
        return if is_member(cx, cx.node.id) { Move::TakenBack } else { Move::Lost };
    }
    let given_at = cx.port.now();
    if cx.node_services().options().planted_move == Some(Planted::TransferDecides) {
        cx.port.sleep(TWICE_AFTER).await;
        tell(cx, shard, to, Nanos(cx.port.now().0 + patience.0)).await;
    }
    Move::Made { closed_at, given_at }
}

fn given_up(cx: &Context, closed: Closed<'_>) -> Move {
    drop(closed);
    if is_member(cx, cx.node.id) { Move::TakenBack } else { Move::Lost }
}

fn is_member(cx: &Context, node: NodeId) -> bool {
    cx.database().membership.is_member(node)
}

/// Whether the move of the shard can still succeed.
fn goes_on(cx: &Context, to: NodeId, until: Nanos) -> bool {
    cx.port.now() < until && is_member(cx, to) && is_member(cx, cx.node.id)
}

/// Waits until no transaction holds a lock of the shard. Returns whether all these locks were released in time.
async fn drain(cx: &Context, shard: ShardId, to: NodeId, until: Nanos) -> bool {
    let services = cx.node_services();
    if services.options().planted_move == Some(Planted::Forced) {
        services.planted_abort(shard);
        return true;
    }
    let drain = services.want_drain();
    while !services.is_drained(drain, shard) {
        if !goes_on(cx, to, until) {
            return false;
        }
        pause(cx).await;
    }
    true
}

/// Sends the receiver the greatest timestamp that this node knows. Returns whether the receiver has answered.
async fn tell(cx: &Context, shard: ShardId, to: NodeId, until: Nanos) -> bool {
    let known = cx.timestamps.known(cx).max(cx.heard());
    if cx.node_services().transport().is_at_once() {
        return cx.transfer_at_once(to, shard, known);
    }
    let (rpc, peer) = cx.lock_peer(to);
    let mut call =
        pin!(rpc.call(peer, TRANSFER, |bytes| message::put_transfer(bytes, shard, known)));
    let mut waiting = Waiting::from_waker(Waker::noop());
    loop {
        match call.as_mut().poll(&mut waiting) {
            Poll::Ready(answer) => return answer.is_ok(),
            Poll::Pending if !goes_on(cx, to, until) => return false,
            Poll::Pending => pause(cx).await,
        }
    }
}

/// Serves this thread's messages, and lets other coroutines run.
async fn pause(cx: &Context) {
    cx.serve();
    cx.port.yield_now().await;
    cx.port.sleep(LOOK_EVERY).await;
}
