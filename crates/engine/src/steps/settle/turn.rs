//! A turn is the right to recover dead incarnations of nodes. Only one coroutine of a compute node has the turn at a
//! time.
//!
//! Invariant: only one coroutine of a node recovers at a time. The membership service grants a claim to a compute
//! node, and grants it again if the same node requests it again. If two coroutines of a node recovered one
//! incarnation at the same time, each coroutine would undo the verdicts of the other.
//!
//! At the end of its turn, a coroutine gives the claim back to the membership service, so that another node can
//! recover. If a coroutine drops the future of a turn while the turn writes, the claim must not be given back. The
//! reason is that the writes of the dropped turn are still on their way, and could land after the writes of the next
//! claimant. So the node of such a coroutine is expelled, and the next claimant first revokes that node's access to
//! memory.

use crate::site::Context;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use tarn_fabric::address::NodeId;

/// One coroutine's right to recover a dead incarnation. The turn also ends correctly if its future is dropped.
pub(crate) struct Turn<'a> {
    cx: &'a Context,
    dead: NodeId,
    writes: Cell<bool>,
}

impl<'a> Turn<'a> {
    /// Takes the turn to recover `dead`, unless another coroutine of this node has the turn.
    pub(crate) fn take(cx: &'a Context, dead: NodeId) -> Option<Turn<'a>> {
        let turns = &cx.node.turns.0;
        let taken = turns.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        // The value of type [`Turn`] may be made only if the turn was taken, because the drop of this value ends the
        // turn.
        taken.is_ok().then(|| Turn { cx, dead, writes: Cell::new(false) })
    }

    /// Runs `work`, which writes to memory. Until `work` ends, a drop of the turn expels this node.
    pub(crate) async fn writing<T>(&self, work: impl Future<Output = T>) -> T {
        self.writes.set(true);
        let done = work.await;
        // The flag `writes` can be cleared after success and after failure of `work`, because no verb of a round
        // lands after the round has ended.
        self.writes.set(false);
        done
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let (membership, me) = (&self.cx.database().membership, self.cx.node.id);
        match self.writes.get() {
            true => _ = membership.expel(me),
            false => membership.give_back(self.dead, me),
        }
        self.cx.node.turns.0.store(false, Ordering::Release);
    }
}
