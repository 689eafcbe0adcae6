//! Transactions in doubt of a database: which are open, which coordinators' numbers they need, and how they ended.
//!
//! Invariants: a transaction in doubt needs its number's log area until it is settled; until then that number is its thread's,
//! and whoever else begins under it waits. One caller at a time settles a transaction. How it ended is noted once, and that is
//! what every caller is told from then on, for the last [`VERDICTS_MAX`] transactions that were settled. Where a round may land after it
//! was dropped, only the transaction's own thread may settle it: what that thread had sent comes before what it sends now at each memory
//! node, and before nothing that others send (`Backend::abandon`). A thread that is no more will not settle anything there: then its node's
//! recovery has to. Where nothing lands later ([`tarn_fabric::backend::Caps::ends_when_dropped`]), any thread settles it.
//!
//! It is memory of the process that all compute nodes run in so far, as configurations are.

use crate::cluster::configuration::ThreadSlot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use tarn_fabric::address::{Address, NodeId};
use tarn_store::ids::{Resolution, TxnId, VERDICTS_MAX};

/// For what a number is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// Its transaction is in doubt; a thread of this node settles it, if one is named.
    Doubt(Option<NodeId>),
    /// Another thread has settled its transaction, which ended so: its own has still to give up what it holds.
    Settled(Verdict),
    /// Its transaction's last writes are on their way.
    Writes,
}

/// One transaction that needs its coordinator's number.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    number: u32,
    id: TxnId,
    need: Need,
    /// Its thread is no more.
    is_left: bool,
    /// It holds what its own thread alone can give up: locks that are no words of their own.
    is_bound: bool,
    /// LOCK words that it may have locked, whether its log names them or not.
    locks: Vec<Address>,
    /// Its thread's, if that is no more.
    seat: Option<Arc<ThreadSlot>>,
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) resolution: Resolution,
    /// An entry in a log said so; if not, it had not come to write one.
    pub(crate) was_logged: bool,
}

/// What is known of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// It is in doubt.
    Open {
        /// Its coordinator's number.
        number: u32,
        /// Its thread is no more.
        is_left: bool,
        /// Its thread has ended with locks that no other thread can release: recovery of its node releases them.
        is_lost: bool,
        /// A thread of this node is settling it.
        settled_by: Option<NodeId>,
    },
    /// How it ended.
    Settled(Verdict),
    /// It was never in doubt, or is forgotten.
    Nothing,
}

#[derive(Default, Debug)]
pub(crate) struct State {
    holds: Vec<Hold>,
    verdicts: BTreeMap<TxnId, Verdict>,
    /// Those that have one, the oldest first.
    settled: VecDeque<TxnId>,
    /// Lives that are being recovered: no other thread may begin to settle what they have in doubt.
    closed: BTreeSet<NodeId>,
}

impl State {
    pub(crate) fn doubt(&mut self, id: TxnId) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.id == id && matches!(hold.need, Need::Doubt(_)))
    }

    /// Other lives whose threads settle what this one has in doubt.
    pub(crate) fn settling(&self, life: NodeId) -> Vec<NodeId> {
        let its = self.holds.iter().filter(|hold| hold.id.node() == life);
        let by = its.filter_map(|hold| match hold.need {
            Need::Doubt(by) => by.filter(|&by| by != life),
            Need::Settled(_) | Need::Writes => None,
        });
        by.collect()
    }

    /// Notes how a transaction ended, unless that is known; how it ended.
    pub(crate) fn note(&mut self, id: TxnId, verdict: Verdict) -> Verdict {
        if let Some(known) = self.verdicts.get(&id) {
            return *known;
        }
        self.verdicts.insert(id, verdict);
        self.settled.push_back(id);
        if self.settled.len() > VERDICTS_MAX
            && let Some(oldest) = self.settled.pop_front()
        {
            self.verdicts.remove(&oldest);
        }
        verdict
    }
}

/// Of a database; see the module's text.
#[derive(Default, Debug)]
pub struct LogAreaOwners(Mutex<State>);

impl LogAreaOwners {
    pub(crate) fn change<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        how(&mut self.0.lock().expect("no panic under this lock"))
    }

    /// Whether a transaction needs this number's log area: nobody else should be given it.
    pub fn is_held(&self, number: u32) -> bool {
        self.change(|state| state.holds.iter().any(|hold| hold.number == number))
    }

    /// Transactions in doubt.
    pub fn in_doubt(&self) -> Vec<TxnId> {
        let is_open = |hold: &&Hold| matches!(hold.need, Need::Doubt(_));
        self.change(|state| state.holds.iter().filter(is_open).map(|hold| hold.id).collect())
    }

    /// A transaction is in doubt.
    pub(crate) fn doubt(&self, number: u32, id: TxnId, locks: Vec<Address>, is_bound: bool) {
        let need = Need::Doubt(None);
        let hold = Hold { number, id, need, is_left: false, is_bound, locks, seat: None };
        self.change(|state| {
            state.holds.retain(|other| other.id != id);
            state.holds.push(hold);
        });
    }

    /// A transaction's last writes are on their way.
    pub(crate) fn hold_writes(&self, number: u32, id: TxnId) {
        let (need, locks) = (Need::Writes, Vec::new());
        let hold = Hold { number, id, need, is_left: false, is_bound: false, locks, seat: None };
        self.change(|state| state.holds.push(hold));
    }

    /// They have landed.
    pub(crate) fn release_writes(&self, id: TxnId) {
        self.change(|state| state.holds.retain(|it| it.id != id || it.need != Need::Writes));
    }

    /// What is known of a transaction.
    pub(crate) fn known(&self, id: TxnId) -> Known {
        self.change(|state| {
            if let Some(verdict) = state.verdicts.get(&id) {
                return Known::Settled(*verdict);
            }
            match state.holds.iter().find(|hold| hold.id == id && hold.need != Need::Writes) {
                Some(hold) => match hold.need {
                    Need::Doubt(settled_by) => Known::Open {
                        number: hold.number,
                        is_left: hold.is_left,
                        is_lost: hold.is_left && hold.is_bound,
                        settled_by,
                    },
                    Need::Settled(verdict) => Known::Settled(verdict),
                    Need::Writes => unreachable!("it is passed over"),
                },
                None => Known::Nothing,
            }
        })
    }

    /// A thread of `by` settles it from now on, if no other does, and its life is not being recovered; `is_over` says of a node that
    /// it will not go on.
    pub(crate) fn claim(&self, id: TxnId, by: NodeId, is_over: impl Fn(NodeId) -> bool) -> bool {
        self.change(|state| {
            let is_closed = by != id.node() && state.closed.contains(&id.node());
            match state.doubt(id) {
                Some(Hold { need: Need::Doubt(settled_by), .. })
                    if !is_closed && settled_by.is_none_or(&is_over) =>
                {
                    *settled_by = Some(by);
                    true
                }
                _ => false,
            }
        })
    }

    pub(crate) fn unclaim(&self, id: TxnId, by: NodeId) {
        self.change(|state| {
            if let Some(Hold { need: Need::Doubt(settled_by), .. }) = state.doubt(id)
                && *settled_by == Some(by)
            {
                *settled_by = None;
            }
        });
    }

    /// Closes a life for recovery: threads of other lives can no longer claim its transactions in doubt. Returns the other lives
    /// that hold such a claim now.
    pub(crate) fn close(&self, life: NodeId) -> Vec<NodeId> {
        self.change(|state| {
            state.closed.insert(life);
            state.settling(life)
        })
    }

    /// Whether a life is being recovered.
    pub(crate) fn is_closed(&self, life: NodeId) -> bool {
        self.change(|state| state.closed.contains(&life))
    }

    /// It is settled: how, and the seat of a thread that is no more, if nothing else of that thread is in doubt. `by_its_own`: nothing of
    /// it is left. Else its thread has still to give up what it holds, unless that is no more; if nobody else can, recovery will.
    pub(crate) fn settle(
        &self,
        id: TxnId,
        verdict: Verdict,
        by_its_own: bool,
    ) -> (Verdict, Option<Arc<ThreadSlot>>) {
        self.change(|state| {
            let verdict = state.note(id, verdict);
            let at = state.holds.iter().position(|it| it.id == id && it.need != Need::Writes);
            let Some(at) = at else { return (verdict, None) };
            let hold = &mut state.holds[at];
            if !by_its_own && (!hold.is_left || hold.is_bound) {
                hold.need = Need::Settled(verdict);
                return (verdict, None);
            }
            let seat = state.holds.swap_remove(at).seat;
            let is_free = |seat: &Arc<ThreadSlot>| {
                let is_its = |it: &Arc<ThreadSlot>| Arc::ptr_eq(it, seat);
                !state.holds.iter().any(|hold| hold.seat.as_ref().is_some_and(is_its))
            };
            (verdict, seat.filter(is_free))
        })
    }

    /// Notes how a transaction ended that was not in doubt, or is forgotten; how it ended.
    pub(crate) fn note(&self, id: TxnId, verdict: Verdict) -> Verdict {
        self.change(|state| state.note(id, verdict))
    }

    /// Its own thread needs the number no more.
    pub(crate) fn drop_doubt(&self, id: TxnId) {
        self.change(|state| state.holds.retain(|it| it.id != id || it.need == Need::Writes));
    }

    /// Its own thread has given up what a transaction held that another thread has settled.
    pub(crate) fn forget(&self, id: TxnId) {
        self.change(|state| {
            state.holds.retain(|it| it.id != id || !matches!(it.need, Need::Settled(_)))
        });
    }

    /// The thread of all of these is no more: one moment, since the last of them that is settled frees the seat.
    pub(crate) fn leave(&self, ids: &[TxnId], seat: &Arc<ThreadSlot>) {
        self.change(|state| {
            for hold in state.holds.iter_mut().filter(|hold| ids.contains(&hold.id)) {
                (hold.is_left, hold.seat) = (true, Some(Arc::clone(seat)));
            }
        });
    }

    /// A life is recovered, with these of its transactions: all others of it that were in doubt have written nothing.
    pub(crate) fn bury(&self, life: NodeId, found: &[(TxnId, Resolution)]) {
        self.change(|state| {
            state.closed.remove(&life);
            for &(id, resolution) in found {
                state.note(id, Verdict { resolution, was_logged: true });
            }
            for hold in std::mem::take(&mut state.holds) {
                if hold.id.node() != life {
                    state.holds.push(hold);
                } else if matches!(hold.need, Need::Doubt(_)) {
                    let resolution = Resolution::Aborted;
                    state.note(hold.id, Verdict { resolution, was_logged: false });
                }
            }
        });
    }

    /// LOCK words that it may have locked.
    pub(crate) fn locks(&self, id: TxnId) -> Vec<Address> {
        self.change(|state| state.doubt(id).map(|hold| hold.locks.clone()).unwrap_or_default())
    }

    /// The first that is in doubt, and that nobody settles, of those that `is_meant` says; under which number.
    pub(crate) fn first_open(&self, is_meant: impl Fn(TxnId, u32) -> bool) -> Option<(TxnId, u32)> {
        let is_it = |it: &&Hold| it.need == Need::Doubt(None) && is_meant(it.id, it.number);
        self.change(|state| state.holds.iter().find(is_it).map(|hold| (hold.id, hold.number)))
    }

    /// The first of a thread that is no more, likewise, if others can give up all that it holds.
    pub(crate) fn first_abandoned(&self, is_meant: impl Fn(TxnId) -> bool) -> Option<(TxnId, u32)> {
        let is_left = |it: &Hold| it.is_left && !it.is_bound && is_meant(it.id);
        let is_it = |it: &&Hold| it.need == Need::Doubt(None) && is_left(it);
        self.change(|state| state.holds.iter().find(is_it).map(|hold| (hold.id, hold.number)))
    }

    /// One that needs a number, of those that `is_meant` says, and whether its thread is no more.
    pub(crate) fn holder(
        &self,
        number: u32,
        is_meant: impl Fn(TxnId) -> bool,
    ) -> Option<(TxnId, bool)> {
        let is_it = |hold: &&Hold| hold.number == number && is_meant(hold.id);
        self.change(|state| state.holds.iter().find(is_it).map(|hold| (hold.id, hold.is_left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::configuration::Configurations;
    use crate::requests::lock_set_tests::nodes;
    use crate::services::Transport;
    use crate::session::settle::Claim;
    use tarn_fabric::address::{Incarnation, NodeSlot};
    use tarn_store::ids::OwnerTag;
    use tarn_store::placement::replica_groups::ReplicaGroups;

    fn id(slot: u16, count: u64) -> TxnId {
        let node = NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) };
        OwnerTag::new(node, 0, count)
    }

    const COMMITTED: Verdict = Verdict { resolution: Resolution::Committed, was_logged: true };
    const ABORTED: Verdict = Verdict { resolution: Resolution::Aborted, was_logged: false };

    #[test]
    fn the_first_verdict_stands_and_so_many_are_kept() {
        let numbers = LogAreaOwners::default();
        assert_eq!(numbers.note(id(1, 0), COMMITTED), COMMITTED);
        assert_eq!(numbers.note(id(1, 0), ABORTED), COMMITTED);
        for count in 1..VERDICTS_MAX as u64 {
            numbers.note(id(1, count), ABORTED);
        }
        assert_eq!(numbers.known(id(1, 0)), Known::Settled(COMMITTED));
        numbers.note(id(2, 0), ABORTED);
        assert_eq!(numbers.known(id(1, 0)), Known::Nothing, "it is forgotten, not answered");
        assert_eq!(numbers.known(id(1, 1)), Known::Settled(ABORTED));
        assert_eq!(numbers.change(|state| (state.verdicts.len(), state.settled.len())), {
            (VERDICTS_MAX, VERDICTS_MAX)
        });
    }

    #[test]
    fn one_settles_at_a_time_and_the_number_is_held_until_its_thread_knows() {
        let numbers = LogAreaOwners::default();
        let (me, other) = (id(1, 0).node(), id(2, 0).node());
        numbers.doubt(7, id(1, 5), vec![], false);
        assert!(numbers.claim(id(1, 5), me, |_| false));
        assert!(!numbers.claim(id(1, 5), other, |_| false), "one at a time");
        assert!(numbers.claim(id(1, 5), other, |node| node == me), "but the dead do not go on");
        numbers.unclaim(id(1, 5), me);
        assert_eq!(numbers.first_open(|_, _| true), None);
        assert!(matches!(numbers.settle(id(1, 5), COMMITTED, false), (COMMITTED, None)));
        assert_eq!(numbers.known(id(1, 5)), Known::Settled(COMMITTED));
        assert!(numbers.is_held(7), "its thread has locks of it");
        numbers.forget(id(1, 5));
        assert!(!numbers.is_held(7));
    }

    #[test]
    fn who_is_refused_a_claim_takes_none_away() {
        let nodes = nodes(1, Transport::Own);
        let id = OwnerTag::new(nodes[0].node.id, 0, 5);
        nodes[0].database().numbers.doubt(1, id, vec![], false);
        let first = Claim::take(&nodes[0], id);
        assert!(first.is_some());
        assert!(Claim::take(&nodes[0], id).is_none());
        assert!(Claim::take(&nodes[0], id).is_none(), "the first is still at it");
        drop(first);
        assert!(Claim::take(&nodes[0], id).is_some());
    }

    #[test]
    fn while_a_life_is_recovered_nobody_else_begins_to_settle_for_it() {
        let numbers = LogAreaOwners::default();
        let (dead, other) = (id(1, 0).node(), id(2, 0).node());
        numbers.doubt(7, id(1, 5), vec![], false);
        numbers.doubt(8, id(1, 6), vec![], false);
        assert!(numbers.claim(id(1, 5), other, |_| false));
        assert_eq!(numbers.close(dead), [other], "who is at it is waited for");
        assert!(!numbers.claim(id(1, 6), other, |_| false));
        assert!(numbers.claim(id(1, 6), dead, |_| false), "its own access is gone in any case");
        numbers.unclaim(id(1, 5), other);
        assert_eq!(numbers.close(dead), []);
        assert!(numbers.is_closed(dead));
        numbers.bury(dead, &[(id(1, 5), Resolution::Committed)]);
        numbers.doubt(9, id(1, 7), vec![], false);
        assert!(!numbers.is_closed(dead) && numbers.claim(id(1, 7), other, |_| false));
    }

    #[test]
    fn what_only_its_thread_can_give_up_is_left_to_recovery() {
        let numbers = LogAreaOwners::default();
        let configurations = Configurations::new(ReplicaGroups::new(vec![vec![NodeSlot(0)]]));
        let other = id(2, 0).node();
        numbers.doubt(7, id(1, 5), vec![], true);
        numbers.doubt(8, id(1, 6), vec![], false);
        assert!(numbers.claim(id(1, 5), other, |_| false), "while its thread is there");
        let seat = configurations.register(id(1, 0).node());
        numbers.leave(&[id(1, 5), id(1, 6)], &seat);
        assert_eq!(numbers.first_abandoned(|_| true), Some((id(1, 6), 8)));
        assert!(matches!(numbers.settle(id(1, 6), ABORTED, false), (ABORTED, None)));
        assert!(matches!(numbers.settle(id(1, 5), COMMITTED, false), (COMMITTED, None)));
        assert!(numbers.is_held(7) && !numbers.is_held(8));
        assert_eq!(numbers.known(id(1, 5)), Known::Settled(COMMITTED));
        numbers.bury(id(1, 0).node(), &[]);
        assert!(!numbers.is_held(7));
    }

    #[test]
    fn a_recovered_life_leaves_no_doubt() {
        let numbers = LogAreaOwners::default();
        let life = id(1, 0).node();
        numbers.doubt(7, id(1, 5), vec![], false);
        numbers.doubt(8, id(1, 6), vec![], false);
        numbers.hold_writes(9, id(1, 7));
        numbers.doubt(10, id(2, 1), vec![], false);
        numbers.bury(life, &[(id(1, 5), Resolution::Committed)]);
        assert_eq!(numbers.known(id(1, 5)), Known::Settled(COMMITTED));
        assert_eq!(numbers.known(id(1, 6)), Known::Settled(ABORTED));
        assert_eq!(numbers.known(id(1, 7)), Known::Nothing);
        assert_eq!(numbers.in_doubt(), [id(2, 1)]);
        assert!(numbers.is_held(10) && !(7..10).any(|number| numbers.is_held(number)));
    }
}
