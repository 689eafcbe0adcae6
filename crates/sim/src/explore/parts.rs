//! The local memory of compute nodes, part by part. The module records which parts a poll has read,
//! and which parts it has changed.
//!
//! Invariant: the explorer treats a part of local memory like a line of memory. An access to a part
//! happens within a poll and is no transition of its own.
//! - A part is private as long as only one actor touches it, or no actor changes it.
//! - Two polls are dependent if both touch a part that one of them changes.
//! - A poll that may touch a shared part is a choice of the explorer.
//!
//! An observation of a part covers only the data that the coroutine has read, not the rest of the
//! part. The reason for this rule about observations is in
//! `docs/design/0018-explorer-beside-memory.md`.

use super::config::Planted;
use super::hash::{chain, mix};
use super::machine::{Machine, Status};
use super::memory::LineId;
use super::world::World;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::backend::{LOCAL_PARTS, LocalPart};

/// The actors that have read each part in this execution, and the nodes whose local memory this poll
/// has changed.
#[derive(Default)]
pub(crate) struct Parts {
    /// For each part, the actors that have read the part, one bit per actor.
    seen_by: Vec<u64>,
    /// The compute nodes whose local memory this poll has changed, one bit per node.
    changed: u64,
}

impl Parts {
    /// Creates the parts of `compute_nodes` compute nodes.
    pub(crate) fn new(compute_nodes: usize) -> Parts {
        Parts { seen_by: vec![0; compute_nodes * usize::from(LOCAL_PARTS)], changed: 0 }
    }

    /// Forgets all reads and changes of parts.
    pub(crate) fn reset(&mut self) {
        self.seen_by.fill(0);
        self.changed = 0;
    }
}

impl Machine {
    /// Records that the coroutine in this poll has read `told` in a part, or has changed the part.
    pub(crate) fn look_at_part(&mut self, part: LocalPart, told: u64, changed: bool) {
        let Some(actor) = self.current.filter(|_| !self.is_detached) else { return };
        assert!(part.number < LOCAL_PARTS, "{part:?}: allowed are numbers below {LOCAL_PARTS}");
        let at = usize::from(part.node.0) * usize::from(LOCAL_PARTS) + usize::from(part.number);
        let line = LineId((self.memory.lines() + at) as u32);
        self.sharing.touch(line, actor, changed);
        let reduction = self.config.reduction;
        if self.sharing.is_shared(line) && !reduction.has(Planted::PartsForgotten) {
            self.footprint.line(line, changed);
        }
        if !reduction.has(Planted::ToldForgotten) {
            // Reading an unchanged part shows a coroutine nothing new. A coroutine that only reads an
            // unchanged part again makes no progress.
            let has_news = self.polled.news || changed;
            self.observe(chain(mix(at as u64, u64::from(changed)), mix(0x701d, told)));
            self.polled.news = has_news;
        }
        self.parts.seen_by[at] |= 1 << actor;
        if changed {
            self.parts.changed |= 1 << part.node.0;
            self.wake(self.parts.seen_by[at] & !(1 << actor));
        }
    }

    /// Wakes the idle actors among `actors`, because they may now observe a change.
    pub(crate) fn wake(&mut self, actors: u64) {
        for (index, state) in self.actors.iter_mut().enumerate() {
            if actors >> index & 1 == 1 && state.status == Status::Idle {
                (state.status, state.idle) = (Status::Ready, 0);
            }
        }
    }

    /// Returns whether the coroutine in this poll has reported a change in a node's local memory.
    fn says_it_changed(&self, node: NodeSlot) -> bool {
        self.parts.changed >> node.0 & 1 == 1
    }

    /// Forgets the changed parts when a poll begins.
    pub(crate) fn forget_changed_parts(&mut self) {
        self.parts.changed = 0;
    }
}

impl World {
    /// In builds with assertions, returns digests of the states that compute nodes keep in their
    /// local memory.
    pub(super) fn kept_before(&self) -> Vec<u64> {
        let kept = self.kept.borrow();
        let is_checked = cfg!(debug_assertions);
        kept.iter().filter(|_| is_checked).map(|it| (it.digest)()).collect()
    }

    /// Checks that the polled coroutine has reported each change that it made to local memory.
    pub(super) fn check_kept(&self, before: &[u64]) {
        for (kept, before) in self.kept.borrow().iter().zip(before) {
            let (node, machine) = (kept.node, self.machine.borrow());
            assert!(
                (kept.digest)() == *before || machine.says_it_changed(node),
                "a poll changed the state of compute node {} without naming the part",
                node.0
            );
        }
    }
}
