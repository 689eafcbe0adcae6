//! Which compute node recovers dead incarnations, and which sweep of their remaining locks must be made.
//!
//! Invariants: on each compute node one coroutine recovers at a time. One sweep handles all incarnations that were
//! recovered before it began, and the whole cluster runs one sweep at a time. A sweep begins only when no incarnation
//! waits for its recovery. If a sweeper dies, or its future is dropped, the sweep is incomplete. An incomplete sweep
//! must be made again, and any node may make it.

use crate::cluster::membership::{Membership, Standing};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard};
use tarn_fabric::address::NodeId;
use tarn_store::ids::ViewNumber;

/// Whether one of a compute node's coroutines is recovering.
#[derive(Default, Debug)]
pub struct Turns(pub(crate) AtomicBool);

/// The state of the cluster's sweeps. At present, this state is memory of one process, like configurations.
#[derive(Default, Debug)]
pub struct Sweeps(Mutex<State>);

#[derive(Default, Debug)]
struct State {
    /// The view after the last recovery of an incarnation.
    wanted: Option<ViewNumber>,
    /// The view in which the last completed sweep began.
    covered: Option<ViewNumber>,
    /// The node that makes the current sweep, and the number of that sweep.
    by: Option<(NodeId, u64)>,
    /// The number of sweeps that have begun.
    passes: u64,
}

/// The right to make a sweep, which lasts until this value is dropped.
pub(crate) struct Claimed<'a> {
    sweeps: &'a Sweeps,
    number: u64,
    began_in: ViewNumber,
}

impl Sweeps {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Records that an incarnation was recovered, in this view or in an earlier view.
    pub(crate) fn want(&self, view: ViewNumber) {
        let mut state = self.state();
        state.wanted = state.wanted.max(Some(view));
    }

    /// Whether locks may remain of incarnations that were recovered after the last completed sweep had begun.
    pub fn is_due(&self) -> bool {
        let state = self.state();
        state.wanted > state.covered
    }

    pub(crate) fn claim(&self, me: NodeId, membership: &dyn Membership) -> Option<Claimed<'_>> {
        if !self.is_due() || !membership.unrecovered().is_empty() {
            return None;
        }
        let mut state = self.state();
        let is_over = |(node, _): (NodeId, u64)| membership.standing(node) == Standing::Recovered;
        if !state.by.is_none_or(is_over) {
            return None;
        }
        state.passes += 1;
        let number = state.passes;
        state.by = Some((me, number));
        Some(Claimed { sweeps: self, number, began_in: membership.view() })
    }
}

impl Claimed<'_> {
    /// Records that the sweep of this claim is complete.
    pub(crate) fn end(self) {
        let mut state = self.sweeps.state();
        state.covered = state.covered.max(Some(self.began_in));
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let mut state = self.sweeps.state();
        if state.by.is_some_and(|(_, number)| number == self.number) {
            state.by = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::membership::EmbeddedMembership;
    use tarn_fabric::address::NodeSlot;

    #[test]
    fn one_recovery_pass_at_a_time_serves_all_dead_nodes() {
        let membership = EmbeddedMembership::new(3);
        let [one, two, three] =
            [0, 1, 2].map(|slot| membership.join(NodeSlot(slot)).expect("a life"));
        let sweeps = Sweeps::default();
        assert!(sweeps.claim(one, &membership).is_none(), "nobody died");
        let recover = |dead: NodeId, by| {
            membership.claim_recovery(dead, by);
            assert!(membership.recovered(dead, by));
            sweeps.want(membership.view());
        };
        membership.expel(three);
        membership.expel(two);
        recover(three, one);
        assert!(sweeps.claim(one, &membership).is_none(), "another waits for its recovery");
        recover(two, one);
        let claimed = sweeps.claim(one, &membership).expect("due");
        assert!(sweeps.claim(one, &membership).is_none(), "one at a time");
        drop(claimed);
        let claimed = sweeps.claim(one, &membership).expect("left half done");
        claimed.end();
        assert!(!sweeps.is_due(), "one pass for both");
    }

    #[test]
    fn any_node_takes_over_the_pass_of_a_dead_sweeper() {
        let membership = EmbeddedMembership::new(2);
        let [one, two] = [0, 1].map(|slot| membership.join(NodeSlot(slot)).expect("a life"));
        let sweeps = Sweeps::default();
        sweeps.want(membership.view());
        let of_the_dead = sweeps.claim(two, &membership).expect("due");
        membership.expel(two);
        membership.claim_recovery(two, one);
        assert!(membership.recovered(two, one));
        sweeps.want(membership.view());
        let claimed = sweeps.claim(one, &membership).expect("the sweeper is dead");
        // The sweep does not belong to the dead node any more, so dropping the dead node's claim has no effect.
        drop(of_the_dead);
        assert!(sweeps.claim(one, &membership).is_none());
        claimed.end();
        assert!(!sweeps.is_due());
    }
}
