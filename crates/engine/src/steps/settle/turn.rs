//! The turn to recover dead lives: one coroutine of a compute node has it at a time.
//!
//! Invariant: one at a time. The membership service grants a claim to a compute node, and grants it again if the same
//! node asks again. If two coroutines of a node recovered one life at once, they would undo one another's verdicts.
//!
//! A turn that ends gives the claim back, so that another node may have it. A turn whose future is dropped while it
//! writes cannot give it back. Its writes are still on their way, and would land after those of the next claimant. So
//! its node's life ends, and the next claimant revokes its access first.

use crate::site::Context;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use tarn_fabric::address::NodeId;

/// One coroutine's turn. It ends properly even if its future is dropped.
pub(crate) struct Turn<'a> {
    cx: &'a Context,
    dead: NodeId,
    writes: Cell<bool>,
}

impl<'a> Turn<'a> {
    /// Takes the turn to recover `dead`, unless another coroutine has the turn.
    pub(crate) fn take(cx: &'a Context, dead: NodeId) -> Option<Turn<'a>> {
        let turns = &cx.node.turns.0;
        let taken = turns.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        // The value is made only if the turn was taken, since dropping it ends the turn.
        taken.is_ok().then(|| Turn { cx, dead, writes: Cell::new(false) })
    }

    /// Runs `work`, which changes memory.
    pub(crate) async fn writing<T>(&self, work: impl Future<Output = T>) -> T {
        self.writes.set(true);
        let done = work.await;
        // After success or failure: nothing of a round lands after its end.
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
