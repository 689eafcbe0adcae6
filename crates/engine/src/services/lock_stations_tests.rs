//! Tests of views that begin beside expulsions, of the locks of threads that have ended, and of settings.
//!
//! Invariant checked: no lock of an incarnation is free before the incarnation is recovered, or before the lock's
//! transaction is settled. A value that is out of range is refused, and changes nothing.

use super::*;
use crate::cluster::membership::EmbeddedMembership;
use std::cell::Cell;
use tarn_fabric::address::NodeSlot;
use tarn_locks::value::Mode;
use tarn_store::ids::OwnerTag;

const LOCK: LockId = LockId(3);

/// Machines of two incarnations; the second holds a lock.
struct Two {
    stations: LockStations,
    membership: EmbeddedMembership,
    lives: [NodeId; 2],
    machines: [(Machine, SharedStation); 2],
    held: RequestId,
}

fn service(kind: Kind) -> LockStations {
    LockStations::new(LockServiceNeed { kind, frees_at_once: false, copies_unlocked: false })
}

fn two() -> Two {
    let (stations, membership) = (service(Kind::SrvLock), EmbeddedMembership::new(2));
    let lives = [0, 1].map(|slot| membership.join(NodeSlot(slot)).expect("a first life"));
    let machines = lives.map(|life| {
        let endpoint = Endpoint { node: life.slot, thread: 0 };
        stations.join(life, endpoint, &membership).expect("a number")
    });
    stations.turn_all(0, &membership);
    let held = locked(&machines[1].1).acquire(0, LOCK, Mode::Exclusive).expect("in range");
    let mut two = Two { stations, membership, lives, machines, held };
    two.deliver();
    assert!(two.holds(1), "it holds the lock");
    two
}

impl Two {
    fn deliver(&mut self) {
        loop {
            let posts =
                self.machines.iter().flat_map(|(_, it)| locked(it).posts().collect::<Vec<_>>());
            let posts: Vec<_> = posts.collect();
            if posts.is_empty() {
                return;
            }
            for post in posts {
                let to = self.machines.iter().find(|(machine, _)| *machine == post.to);
                if let (Some((_, to)), Some(arrived)) = (to, post.mail.arrive()) {
                    locked(to).receive(0, arrived);
                }
            }
        }
    }

    fn holds(&self, at: usize) -> bool {
        let requests = locked(&self.machines[at].1).requests();
        requests.iter().any(|(_, lock, it)| *lock == LOCK && matches!(it, Outcome::Holds(_)))
    }

    /// Whether the first machine gets the lock.
    fn is_free(&mut self) -> bool {
        let _ = locked(&self.machines[0].1).acquire(0, LOCK, Mode::Shared);
        self.deliver();
        self.holds(0)
    }

    fn leave(&self, doubts: &[(TxnId, Vec<RequestId>)]) {
        self.stations.leave(self.machines[1].0, doubts);
    }

    fn look(&self, is_open: bool) {
        self.stations.look(&self.membership, &|_| is_open);
        self.stations.turn_all(0, &self.membership);
    }

    fn doubt(&self) -> (TxnId, Vec<RequestId>) {
        (OwnerTag::new(self.lives[1], 0, 1), vec![self.held])
    }
}

#[test]
fn an_incarnation_that_is_expelled_while_a_view_begins_keeps_its_locks() {
    for looks in 0..3 {
        let mut two = two();
        let mut state = two.stations.state();
        two.stations.announce(&mut state);
        let announced = state.announced;
        for member in state.members.values_mut() {
            member.submission = locked(&member.station).pause(announced);
        }
        // The incarnation is expelled after so many looks at it.
        let left = Cell::new(looks);
        let standing = |life: NodeId| match life == two.lives[1] && left.get() == 0 {
            true => Standing::Expelled,
            false => {
                left.set(left.get() - u32::from(life == two.lives[1]));
                Standing::Member
            }
        };
        two.stations.begin(&mut state, &standing);
        let machine = two.machines[1].0;
        assert!(state.members.contains_key(&machine), "{looks}: taken for one that is over");
        assert_eq!(state.current.view == announced, looks > 0, "{looks}");
        drop(state);
        two.stations.turn_all(0, &two.membership);
        assert!(!two.is_free(), "{looks}");
    }
}

#[test]
fn locks_of_a_thread_that_has_ended_are_free_once_its_transaction_is_settled() {
    let mut two = two();
    two.leave(&[two.doubt()]);
    two.look(true);
    assert!(!two.is_free(), "the transaction is in doubt");
    two.look(true);
    assert!(!two.is_free(), "it still is");
    two.look(false);
    assert!(two.is_free(), "it is settled");
    assert!(two.stations.state().left_behind.is_empty());
}

#[test]
fn locks_left_behind_stay_if_their_incarnation_is_being_recovered_or_no_transaction_had_them() {
    let mut expelled = two();
    expelled.leave(&[expelled.doubt()]);
    expelled.membership.expel(expelled.lives[1]);
    expelled.look(false);
    assert!(!expelled.is_free(), "its recovery forgets transactions before they are settled");
    let mut without = two();
    without.leave(&[]);
    without.look(false);
    assert!(!without.is_free(), "a caller without transactions holds it");
}

#[test]
fn a_machine_number_is_never_used_twice() {
    let two = two();
    two.stations.state().last_machine = u16::MAX;
    let endpoint = Endpoint { node: NodeSlot(0), thread: 1 };
    assert!(two.stations.join(two.lives[0], endpoint, &two.membership).is_none());
    assert_eq!(two.stations.state().members.len(), 2);
}

#[test]
fn settings_are_checked_and_put_in_order() {
    let (stations, membership) = (service(Kind::FissLockLocal), EmbeddedMembership::new(2));
    let lives = [0, 1].map(|slot| membership.join(NodeSlot(slot)).expect("a first life"));
    let refused = |change: fn(&mut Choice, NodeId)| {
        stations.set(|choice| change(choice, lives[0])).expect_err("refused").field
    };
    assert_eq!(refused(|it, _| it.profile.hot = vec![LockId(LOCKS)]), "lock");
    assert_eq!(refused(|it, life| it.local = vec![(LockId(u32::MAX), life)]), "lock");
    assert_eq!(refused(|it, _| it.profile = Profile { hot: vec![LOCK], slots: 0 }), "slots");
    let twice =
        |it: &mut Choice, life| it.local = vec![(LOCK, life), (LockId(1), life), (LOCK, life)];
    assert_eq!(refused(twice), "local lock");
    let set = stations.set(|it| {
        it.profile = Profile { hot: vec![LockId(9), LockId(2)], slots: 1 };
        it.local = vec![(LOCK, lives[0]), (LockId(1), lives[1])];
    });
    set.expect("in range");
    let join = |life: NodeId, thread| {
        let endpoint = Endpoint { node: life.slot, thread };
        stations.join(life, endpoint, &membership).expect("a number").1
    };
    let [own, second, other] =
        [(lives[0], 0), (lives[0], 1), (lives[1], 0)].map(|(life, at)| join(life, at));
    assert_eq!(locked(&own).settings().profile.hot, [LockId(2), LockId(9)]);
    assert!(locked(&own).acquire(0, LOCK, Mode::Shared).is_some());
    assert!(locked(&second).acquire(0, LOCK, Mode::Shared).is_none(), "another thread");
    assert!(locked(&other).acquire(0, LOCK, Mode::Shared).is_none(), "another node");
    assert!(locked(&other).acquire(0, LockId(1), Mode::Shared).is_some());
    assert_eq!(stations.set(|_| {}).expect_err("too late").field, "lock service");
}
