//! Tests of a shard's move, step by step, and of the events that may happen between the steps.
//!
//! Invariants checked: a move waits for the holders of the shard's locks, on the owner and on other nodes. No
//! transaction gets a lock of the shard meanwhile. A move that fails leaves the shard open at its owner. If the owner
//! or the receiver dies, the shard has at most one owner.

use super::{Move, move_shard};
use crate::cluster::membership::{Claim, Heirs, Reopening};
use crate::requests::lock_set_tests::{drive, nodes};
use crate::services::Transport;
use crate::services::lock::name::{LockMode, LockName};
use crate::site::Context;
use crate::transaction::lock_set::LockSet;
use std::pin::pin;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_fabric::clock::Nanos;
use tarn_store::ids::{AbortReason, Failure, Timestamp};
use tarn_store::placement::shard_map::{ShardEntry, ShardId, ShardState};

/// The shard that the tests move; node 0 owns it at first.
const SHARD: ShardId = ShardId(0);
const LONG: Nanos = Nanos(10_000_000_000);
const TRANSPORTS: [Transport; 3] = [Transport::Rpc, Transport::Near, Transport::Direct];

fn entry(nodes: &[Context]) -> ShardEntry {
    nodes[0].database().membership.shard(SHARD).expect("it is somebody's")
}

fn locked(nodes: &[Context], by: usize) -> Result<LockSet, Failure> {
    // All earlier messages arrive here, so that all nodes have read the map.
    (0..100).for_each(|_| nodes.iter().for_each(Context::serve));
    let mut set = LockSet::default();
    set.ask(&nodes[by], LockName::row(0, 7), SHARD, LockMode::Write);
    let granted = drive(nodes, set.collect(&nodes[by], nodes[by].next_tag()));
    match granted {
        Ok(()) => Ok(set),
        Err(failure) => {
            set.release(&nodes[by], None);
            Err(failure)
        }
    }
}

fn moved(nodes: &[Context], patience: Nanos) -> Move {
    drive(nodes, move_shard(&nodes[0], SHARD, nodes[1].node.id, patience))
}

#[test]
fn a_shard_without_holders_moves_at_once_and_others_learn_it() {
    for transport in TRANSPORTS {
        let nodes = nodes(3, transport);
        nodes[0].database().counter.raise(Timestamp(77));
        assert!(matches!(moved(&nodes, LONG), Move::Made { .. }));
        let now = entry(&nodes);
        assert_eq!((now.owner, now.state, now.epoch), (nodes[1].node.id, ShardState::Open, 3));
        assert!(nodes[1].node_services().seen.get() >= Timestamp(77), "the last holder's commit");
        for by in 0..3 {
            locked(&nodes, by).expect("granted by its new owner").release(&nodes[by], None);
        }
        assert_eq!(moved(&nodes, LONG), Move::NotOurs);
        let back = drive(&nodes, move_shard(&nodes[1], SHARD, nodes[0].node.id, LONG));
        assert!(matches!(back, Move::Made { .. }));
        assert_eq!(entry(&nodes).epoch, 5);
    }
}

#[test]
fn a_move_waits_for_all_holders_and_grants_no_lock_meanwhile() {
    for transport in TRANSPORTS {
        for holder in 0..3 {
            let nodes = nodes(3, transport);
            let mut held = locked(&nodes, holder).expect("free");
            let mut moving = pin!(move_shard(&nodes[0], SHARD, nodes[1].node.id, LONG));
            let mut waiting = Waiting::from_waker(Waker::noop());
            for _ in 0..300 {
                assert!(moving.as_mut().poll(&mut waiting).is_pending(), "{holder} holds one");
                nodes.iter().for_each(Context::serve);
            }
            assert_eq!(entry(&nodes).state, ShardState::Closed);
            for by in 0..3 {
                let refused = Failure::Abort(AbortReason::WrongOwner);
                assert_eq!(locked(&nodes, by).err(), Some(refused), "closed");
            }
            nodes[0].database().counter.raise(Timestamp(9));
            held.release(&nodes[holder], Some(Timestamp(9)));
            assert!(matches!(drive(&nodes, moving), Move::Made { .. }));
            assert!(nodes[1].node_services().seen.get() >= Timestamp(9));
            locked(&nodes, holder).expect("granted").release(&nodes[holder], None);
        }
    }
}

#[test]
fn a_late_or_dropped_move_opens_the_shard_again_and_keeps_its_holders() {
    for transport in TRANSPORTS {
        for holder in 0..3 {
            let nodes = nodes(3, transport);
            let mut held = locked(&nodes, holder).expect("free");
            assert_eq!(moved(&nodes, Nanos(50_000)), Move::TakenBack);
            {
                let mut moving = pin!(move_shard(&nodes[0], SHARD, nodes[1].node.id, LONG));
                let mut waiting = Waiting::from_waker(Waker::noop());
                assert!(moving.as_mut().poll(&mut waiting).is_pending());
                assert_eq!(entry(&nodes).state, ShardState::Closed);
            }
            let now = entry(&nodes);
            assert!(now.is_served_by(nodes[0].node.id), "{now:?}");
            nodes.iter().for_each(Context::serve);
            let other = (holder + 1) % 3;
            let refused = Failure::Abort(AbortReason::LockRefused);
            assert_eq!(locked(&nodes, other).err(), Some(refused), "it is held still");
            held.release(&nodes[holder], None);
            assert!(matches!(moved(&nodes, LONG), Move::Made { .. }), "and may move later");
        }
    }
}

#[test]
fn a_receiver_that_dies_gets_nothing() {
    for transport in TRANSPORTS {
        let nodes = nodes(3, transport);
        let mut held = locked(&nodes, 2).expect("free");
        let (to, membership) = (nodes[1].node.id, &nodes[0].database().membership);
        let mut moving = pin!(move_shard(&nodes[0], SHARD, to, LONG));
        let mut waiting = Waiting::from_waker(Waker::noop());
        assert!(moving.as_mut().poll(&mut waiting).is_pending());
        membership.expel(to);
        held.release(&nodes[2], None);
        assert_eq!(drive(&nodes, moving), Move::TakenBack);
        assert!(entry(&nodes).is_served_by(nodes[0].node.id));
        assert_eq!(moved(&nodes, LONG), Move::TakenBack, "nor later");
        locked(&nodes, 2).expect("granted by the owner").release(&nodes[2], None);
    }
}

/// Tests a death of the owner after each step of the move. The heirs get the shard by the two barriers, like any
/// other shard of the dead owner.
#[test]
fn heirs_get_a_shard_whose_owner_dies_while_moving_it() {
    for transport in TRANSPORTS {
        for polls in 0..6 {
            let nodes = nodes(3, transport);
            let (dead, to) = (nodes[0].node.id, nodes[1].node.id);
            let membership = &nodes[0].database().membership;
            let mut waiting = Waiting::from_waker(Waker::noop());
            let mut moving = Box::pin(move_shard(&nodes[0], SHARD, to, LONG));
            let mut came = None;
            for _ in 0..polls {
                if let Poll::Ready(made) = moving.as_mut().poll(&mut waiting) {
                    came = Some(made);
                    break;
                }
                nodes.iter().for_each(Context::serve);
            }
            membership.expel(dead);
            if came.is_none() {
                assert!(matches!(drive(&nodes, moving), Move::Lost | Move::NotOurs), "{polls}");
                assert_eq!(entry(&nodes).state, ShardState::Recovering);
                assert!(matches!(membership.claim_recovery(dead, to), Claim::Granted { .. }));
                assert!(membership.recovered(dead, to));
                (0..100).for_each(|_| nodes[1..].iter().for_each(Context::serve));
                assert_eq!(membership.reopen_shards(dead, Heirs::Owners), Reopening::Done);
            }
            assert!(entry(&nodes).state == ShardState::Open && entry(&nodes).owner != dead);
            nodes[1..].iter().for_each(Context::serve);
            let mut set = LockSet::default();
            set.ask(&nodes[2], LockName::row(0, 7), SHARD, LockMode::Write);
            let granted = drive(&nodes[1..], set.collect(&nodes[2], nodes[2].next_tag()));
            assert_eq!(granted, Ok(()), "{polls}");
            set.release(&nodes[2], None);
        }
    }
}
