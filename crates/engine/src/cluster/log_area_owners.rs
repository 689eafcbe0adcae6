//! A database's transactions in doubt: which of them are unresolved, which coordinators' numbers they need, and how
//! they ended.
//!
//! Invariants: a transaction in doubt needs the log area of its coordinator's number until it is settled. Until then
//! the number belongs to the transaction's thread. Any other coordinator that begins under the number waits. One
//! caller at a time settles a transaction. The first recorded outcome is final, and every caller gets that outcome.
//! The outcomes of the last [`VERDICTS_MAX`] settled transactions are kept.
//!
//! On some backends a verb may still take effect after its round was dropped. On these backends only the
//! transaction's own thread may settle the transaction. At each memory node, the verbs that this thread sent earlier
//! run before the verbs that it sends now. The verbs are not ordered with the verbs of other threads
//! (`Backend::abandon`). On such a backend a thread that has ended cannot settle anything, so the recovery of its
//! node must settle the thread's transactions. On other backends no verb takes effect after its round was dropped
//! ([`tarn_fabric::backend::Caps::ends_when_dropped`]). On such backends any thread may settle the transaction.
//!
//! At present this state, like configurations, is memory of the one process in which all compute nodes run.

use crate::cluster::configuration::ThreadSlot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use tarn_fabric::address::{Address, NodeId};
use tarn_store::ids::{Resolution, TxnId, VERDICTS_MAX};

/// The reason why a transaction needs its coordinator's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    /// The transaction is in doubt. If this value contains a node, a thread of that node is settling the transaction.
    Doubt(Option<NodeId>),
    /// Another thread has settled the transaction with this outcome. The transaction's own thread has not yet
    /// released the transaction's locks.
    Settled(Verdict),
    /// The transaction's last writes have not ended yet.
    Writes,
}

/// A transaction that needs its coordinator's number, and the reason.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    number: u32,
    id: TxnId,
    need: Need,
    /// Whether the transaction's thread has ended.
    is_left: bool,
    /// Whether the transaction holds locks that only its own thread can release, because the transaction did not take
    /// these locks by a CAS of a LOCK word.
    is_bound: bool,
    /// The LOCK words that the transaction may have locked, whether its log names them or not.
    locks: Vec<Address>,
    /// The slot of the transaction's thread, if that thread has ended.
    thread_slot: Option<Arc<ThreadSlot>>,
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) resolution: Resolution,
    /// Whether a log entry of the transaction stated the outcome. If not, the transaction had not yet written a log
    /// entry.
    pub(crate) was_logged: bool,
}

/// The known state of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// The transaction is in doubt.
    Open {
        /// The number of the transaction's coordinator.
        number: u32,
        /// Whether the transaction's thread has ended.
        is_left: bool,
        /// Whether the transaction's thread has ended and no other thread can release the transaction's locks. The
        /// recovery of the thread's node then releases these locks.
        is_lost: bool,
        /// The node whose thread is settling the transaction, if there is one.
        settled_by: Option<NodeId>,
    },
    /// The transaction is settled, and ended with this outcome.
    Settled(Verdict),
    /// The transaction was never in doubt, or its outcome is no longer kept.
    Nothing,
}

#[derive(Default, Debug)]
pub(crate) struct State {
    holds: Vec<Hold>,
    verdicts: BTreeMap<TxnId, Verdict>,
    /// The transactions that have a verdict, the oldest first.
    settled: VecDeque<TxnId>,
    /// The incarnations that are being recovered. Threads of other incarnations can no longer begin to settle
    /// transactions in doubt of these incarnations.
    closed: BTreeSet<NodeId>,
}

impl State {
    pub(crate) fn doubt(&mut self, id: TxnId) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.id == id && matches!(hold.need, Need::Doubt(_)))
    }

    /// The other incarnations whose threads are settling this incarnation's transactions in doubt.
    pub(crate) fn settling(&self, life: NodeId) -> Vec<NodeId> {
        let its = self.holds.iter().filter(|hold| hold.id.node() == life);
        let by = its.filter_map(|hold| match hold.need {
            Need::Doubt(by) => by.filter(|&by| by != life),
            Need::Settled(_) | Need::Writes => None,
        });
        by.collect()
    }

    /// Records how a transaction ended, unless its outcome is known already. Returns the outcome that is known now.
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

/// The owners of a database's log areas; see the module's text.
#[derive(Default, Debug)]
pub struct LogAreaOwners(Mutex<State>);

impl LogAreaOwners {
    pub(crate) fn change<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        how(&mut self.0.lock().expect("no panic under this lock"))
    }

    /// Whether a transaction needs the log area of this coordinator number. If so, a caller should not give the
    /// number to another coordinator.
    pub fn is_held(&self, number: u32) -> bool {
        self.change(|state| state.holds.iter().any(|hold| hold.number == number))
    }

    /// The transactions in doubt.
    pub fn in_doubt(&self) -> Vec<TxnId> {
        let is_open = |hold: &&Hold| matches!(hold.need, Need::Doubt(_));
        self.change(|state| state.holds.iter().filter(is_open).map(|hold| hold.id).collect())
    }

    /// Records that a transaction is in doubt.
    pub(crate) fn doubt(&self, number: u32, id: TxnId, locks: Vec<Address>, is_bound: bool) {
        let need = Need::Doubt(None);
        let hold = Hold { number, id, need, is_left: false, is_bound, locks, thread_slot: None };
        self.change(|state| {
            state.holds.retain(|other| other.id != id);
            state.holds.push(hold);
        });
    }

    /// Records that a transaction's last writes have not ended yet.
    pub(crate) fn hold_writes(&self, number: u32, id: TxnId) {
        let (need, locks) = (Need::Writes, Vec::new());
        let hold =
            Hold { number, id, need, is_left: false, is_bound: false, locks, thread_slot: None };
        self.change(|state| state.holds.push(hold));
    }

    /// Records that a transaction's last writes have ended.
    pub(crate) fn release_writes(&self, id: TxnId) {
        self.change(|state| state.holds.retain(|it| it.id != id || it.need != Need::Writes));
    }

    /// The known state of a transaction.
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
                    Need::Writes => unreachable!("holds for last writes are filtered out above"),
                },
                None => Known::Nothing,
            }
        })
    }

    /// Claims the right to settle a transaction, for a thread of `by`. Returns false if another node has the claim,
    /// or if the incarnation of the transaction is being recovered. `is_over` tells whether a node's claim has
    /// lapsed.
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

    /// Closes an incarnation for recovery: threads of other incarnations can no longer claim its transactions in
    /// doubt. Returns the other incarnations that have a claim to such a transaction now.
    pub(crate) fn close(&self, life: NodeId) -> Vec<NodeId> {
        self.change(|state| {
            state.closed.insert(life);
            state.settling(life)
        })
    }

    /// Whether an incarnation is being recovered.
    pub(crate) fn is_closed(&self, life: NodeId) -> bool {
        self.change(|state| state.closed.contains(&life))
    }

    /// Records that a transaction is settled. Returns how the transaction ended. The function also returns the slot
    /// of the transaction's thread, if the thread has ended and has no other transaction in doubt. If `by_its_own` is
    /// true, the transaction needs its coordinator's number no longer. If `by_its_own` is false, the transaction's
    /// own thread must still release the transaction's locks. If that thread has ended and no other thread could
    /// release the locks, recovery releases them.
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
            let thread_slot = state.holds.swap_remove(at).thread_slot;
            let is_free = |thread_slot: &Arc<ThreadSlot>| {
                let is_its = |it: &Arc<ThreadSlot>| Arc::ptr_eq(it, thread_slot);
                !state.holds.iter().any(|hold| hold.thread_slot.as_ref().is_some_and(is_its))
            };
            (verdict, thread_slot.filter(is_free))
        })
    }

    /// Records the outcome of a transaction that was not in doubt, or that is no longer listed. Returns the outcome
    /// that is known now.
    pub(crate) fn note(&self, id: TxnId, verdict: Verdict) -> Verdict {
        self.change(|state| state.note(id, verdict))
    }

    /// Records that the transaction's own thread no longer needs the coordinator number.
    pub(crate) fn drop_doubt(&self, id: TxnId) {
        self.change(|state| state.holds.retain(|it| it.id != id || it.need == Need::Writes));
    }

    /// Records that the transaction's own thread has released the transaction's locks. Another thread had settled the
    /// transaction.
    pub(crate) fn forget(&self, id: TxnId) {
        self.change(|state| {
            state.holds.retain(|it| it.id != id || !matches!(it.need, Need::Settled(_)))
        });
    }

    /// Records that the thread of all these transactions has ended. All these transactions change in one step,
    /// because the transaction that is settled last frees the thread's slot.
    pub(crate) fn leave(&self, ids: &[TxnId], thread_slot: &Arc<ThreadSlot>) {
        self.change(|state| {
            for hold in state.holds.iter_mut().filter(|hold| ids.contains(&hold.id)) {
                (hold.is_left, hold.thread_slot) = (true, Some(Arc::clone(thread_slot)));
            }
        });
    }

    /// Records that an incarnation is recovered. `found` lists the incarnation's transactions that have an outcome.
    /// All other transactions in doubt of the incarnation have written nothing.
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

    /// The LOCK words that the transaction may have locked.
    pub(crate) fn locks(&self, id: TxnId) -> Vec<Address> {
        self.change(|state| state.doubt(id).map(|hold| hold.locks.clone()).unwrap_or_default())
    }

    /// The first transaction in doubt that no thread is settling and that `is_meant` accepts. The function also
    /// returns the number of its coordinator.
    pub(crate) fn first_open(&self, is_meant: impl Fn(TxnId, u32) -> bool) -> Option<(TxnId, u32)> {
        let is_it = |it: &&Hold| it.need == Need::Doubt(None) && is_meant(it.id, it.number);
        self.change(|state| state.holds.iter().find(is_it).map(|hold| (hold.id, hold.number)))
    }

    /// The first transaction in doubt that `is_meant` accepts, whose thread has ended, and whose locks any other
    /// thread can release. The function also returns the number of its coordinator.
    pub(crate) fn first_abandoned(&self, is_meant: impl Fn(TxnId) -> bool) -> Option<(TxnId, u32)> {
        let is_left = |it: &Hold| it.is_left && !it.is_bound && is_meant(it.id);
        let is_it = |it: &&Hold| it.need == Need::Doubt(None) && is_left(it);
        self.change(|state| state.holds.iter().find(is_it).map(|hold| (hold.id, hold.number)))
    }

    /// A transaction that needs this coordinator number and that `is_meant` accepts, and whether its thread has
    /// ended.
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
    fn the_first_verdict_stands_and_a_limited_number_is_kept() {
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
    fn one_thread_settles_at_a_time_and_the_number_is_held_until_its_own_thread_knows() {
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
    fn a_refused_claim_removes_no_other_claim() {
        let nodes = nodes(1, Transport::Own);
        let id = OwnerTag::new(nodes[0].node.id, 0, 5);
        nodes[0].database().log_area_owners.doubt(1, id, vec![], false);
        let first = Claim::take(&nodes[0], id);
        assert!(first.is_some());
        assert!(Claim::take(&nodes[0], id).is_none());
        assert!(Claim::take(&nodes[0], id).is_none(), "the first is still at it");
        drop(first);
        assert!(Claim::take(&nodes[0], id).is_some());
    }

    #[test]
    fn during_recovery_of_a_life_no_thread_begins_to_settle_for_it() {
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
    fn locks_that_only_an_ended_thread_knew_are_left_to_recovery() {
        let numbers = LogAreaOwners::default();
        let configurations = Configurations::new(ReplicaGroups::new(vec![vec![NodeSlot(0)]]));
        let other = id(2, 0).node();
        numbers.doubt(7, id(1, 5), vec![], true);
        numbers.doubt(8, id(1, 6), vec![], false);
        assert!(numbers.claim(id(1, 5), other, |_| false), "while its thread is there");
        let thread_slot = configurations.register(id(1, 0).node());
        numbers.leave(&[id(1, 5), id(1, 6)], &thread_slot);
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
