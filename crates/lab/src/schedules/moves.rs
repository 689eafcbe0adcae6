//! Moves shards between compute nodes while transactions run and nodes die, under a protocol that has shards.
//!
//! Invariant: the seed determines all moves. Each incarnation of a compute node moves some of its own shards that
//! receive requests to other nodes. The new owner may be any member, including the node that only recovers others.
//! The caller drops some moves before they end. If a node dies during a move, other nodes open the shard. At the end
//! the shards of all living nodes are open.

use super::desk::Desk;
use super::drawn::Moving;
use rand::RngExt as _;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tarn_engine::requests::resharding::{Move, move_shard};
use tarn_engine::services::shard_load::Recent;
use tarn_engine::site::{Context, Database};
use tarn_fabric::clock::Nanos;
use tarn_fabric::rng::{mix, seeded};
use tarn_store::placement::shard_map::{ShardId, ShardState};

/// The stream of random numbers for a node's moves. The node's name is mixed into the seed.
const MOVES_STREAM: u64 = 0x6d6f_7665_7300;
/// Out of this number of moves, one is dropped before it ends.
const DROP_ONE_IN: u32 = 8;
const TURNS_MAX: u32 = 12;
/// The number of moves that a node begins. Without a limit, a node could move shards faster than messages arrive, and
/// so prevent transactions from ending. With seed 3217, in which three of ten messages are lost, transactions did not
/// end for this reason. The engine does not promise that transactions end in this case.
const MOVES_MAX: u32 = 200;

/// Moves shards of this node to other nodes until all coordinators of the node's first thread have ended.
pub(super) async fn keep_moving<T>(cx: Rc<Context>, (moving, seed): (Moving, u64), desk: &Desk<T>) {
    let Some(services) = cx.node.services() else { return };
    let Some(load) = services.load() else { return };
    let id = cx.node.id;
    let name = u64::from(id.slot.0) << 16 | u64::from(id.incarnation.0);
    let mut rng = seeded(seed, mix(MOVES_STREAM ^ name));
    let mut recent = Recent::default();
    for _ in 0..MOVES_MAX {
        if !cx.has_coordinators() || !cx.database().membership.is_member(id) {
            return;
        }
        cx.port.sleep(Nanos(rng.random_range(0..2 * moving.every_ns))).await;
        let mut own: Vec<ShardId> = Vec::new();
        recent.look(load, cx.port.now(), |shard, _| {
            if services.shards.is_served_by(shard, id) {
                own.push(shard);
            }
        });
        let members = cx.database().directory.members();
        if own.is_empty() || members.is_empty() {
            continue;
        }
        let shard = own[rng.random_range(0..own.len())];
        let to = members[rng.random_range(0..members.len())].id;
        drop(members);
        let is_dropped = rng.random_range(0..DROP_ONE_IN) == 0;
        let mut turns = if is_dropped { rng.random_range(1..TURNS_MAX) } else { u32::MAX };
        let mut moving = pin!(move_shard(&cx, shard, to, Nanos(moving.patience_ns)));
        let came = poll_fn(|waiting| match moving.as_mut().poll(waiting) {
            Poll::Pending if turns == 0 => Poll::Ready(None),
            Poll::Pending => {
                turns -= 1;
                Poll::Pending
            }
            Poll::Ready(came) => Poll::Ready(Some(came)),
        })
        .await;
        let moves = &mut desk.left.borrow_mut().incidents.moves;
        match came {
            Some(Move::Made { .. }) => moves.made += 1,
            Some(Move::TakenBack) => moves.taken_back += 1,
            Some(Move::NotOurs | Move::Lost) => {}
            None => moves.dropped += 1,
        }
    }
}

/// Describes a shard of a member that is closed, although no grant or move of the shard is in progress.
pub(super) fn left_closed(database: &Database) -> Option<String> {
    let membership = &database.membership;
    let is_left = |shard: &ShardId| {
        let entry = membership.shard(*shard);
        entry.is_some_and(|it| it.state == ShardState::Closed && membership.is_member(it.owner))
    };
    let shard = ShardId::all().find(is_left)?;
    Some(format!("a shard is left closed: {shard:?}, {:?}", membership.shard(shard)))
}
