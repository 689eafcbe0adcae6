//! Whose turn it is, of a compute node's coroutines, to recover the dead.
//!
//! Invariant: one at a time. The membership service grants a claim to a compute node, and grants it again
//! when the same one asks; two coroutines of it that recover one life at once would undo one another's
//! verdicts. A turn that ends gives the claim back, so that another node may have it. One whose future is
//! dropped while it writes cannot: what it wrote is still on its way, and would come after what the next
//! one writes. Then its node's life ends, and whoever comes next revokes its access first.

use crate::site::Context;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use tarn_fabric::address::NodeId;

/// One coroutine's turn, also if it is dropped.
pub(crate) struct Turn<'a> {
    cx: &'a Context,
    dead: NodeId,
    writes: Cell<bool>,
}

impl<'a> Turn<'a> {
    /// Takes the turn to recover `dead`, if nobody has it.
    pub(crate) fn take(cx: &'a Context, dead: NodeId) -> Option<Turn<'a>> {
        let turns = &cx.node.turns.0;
        let taken = turns.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        // Made only if it is taken: a turn that is dropped ends.
        taken.is_ok().then(|| Turn { cx, dead, writes: Cell::new(false) })
    }

    /// Does something that changes memory.
    pub(crate) async fn writing<T>(&self, work: impl Future<Output = T>) -> T {
        self.writes.set(true);
        let done = work.await;
        // Well or not: nothing of a round comes after its end.
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
