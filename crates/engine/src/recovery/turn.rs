//! Whose turn it is, of a compute node's coroutines, to recover the dead.
//!
//! Invariant: one at a time. The membership service grants a claim to a compute node, and grants it again
//! when the same one asks; two coroutines of it that recover one life at once would undo one another's
//! verdicts. A turn whose future is dropped leaves rounds on their way: only the same thread, whose later
//! rounds come after them, may take the next.

use crate::context::Context;
use std::sync::atomic::{AtomicU32, Ordering};

/// Of a compute node: which thread recovers, or left off in the middle. 0: none.
#[derive(Default, Debug)]
pub struct Turns(AtomicU32);

/// One coroutine's turn, also if it is dropped.
pub(super) struct Turn<'a> {
    cx: &'a Context,
}

impl<'a> Turn<'a> {
    /// Takes the turn, if nobody has it.
    pub(super) fn take(cx: &'a Context) -> Option<Turn<'a>> {
        let mine = u32::from(cx.port.endpoint().thread) + 1;
        let turns = &cx.node.turns.0;
        let taken = turns.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Acquire);
        let is_mine = taken.is_ok() || taken == Err(mine);
        // Made only if it is taken: a turn that is dropped ends.
        (is_mine && !cx.recovering.replace(true)).then(|| Turn { cx })
    }

    /// All of its rounds have come back.
    pub(super) fn end(self) {
        self.cx.node.turns.0.store(0, Ordering::Release);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.cx.recovering.set(false);
    }
}
