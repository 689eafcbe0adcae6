//! Local memory of compute nodes, part by part: what a poll looked at in it, and what it changed.
//!
//! Invariant: a part is a line that costs nothing and is accessed within a poll: it is private as long as one
//! actor alone touches it or nobody changes it, two polls are dependent if they meet in a part that one of
//! them changes, and an actor of which a poll may touch a shared part is polled by choice. What was
//! observed is what was told, and not what else lies there. The argument is in
//! `docs/design/0018-explorer-beside-memory.md`.

use super::config::Planted;
use super::hash::{chain, mix};
use super::machine::{Machine, Status};
use super::memory::LineId;
use super::world::World;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::backend::{LOCAL_PARTS, LocalPart};

/// Who has looked at which part in this execution, and whose memory this poll has changed.
#[derive(Default)]
pub(crate) struct Parts {
    /// By part: actors, a bit each.
    seen_by: Vec<u64>,
    /// Compute nodes, a bit each.
    changed: u64,
}

impl Parts {
    /// Of so many compute nodes.
    pub(crate) fn new(compute_nodes: usize) -> Parts {
        Parts { seen_by: vec![0; compute_nodes * usize::from(LOCAL_PARTS)], changed: 0 }
    }

    /// Nobody has looked at anything.
    pub(crate) fn reset(&mut self) {
        self.seen_by.fill(0);
        self.changed = 0;
    }
}

impl Machine {
    /// The coroutine that is being polled looked at a part, and was told so much; or changed it.
    pub(crate) fn look_at_part(&mut self, part: LocalPart, told: u64, changed: bool) {
        let Some(actor) = self.current.filter(|_| !self.is_detached) else { return };
        assert!(part.number < LOCAL_PARTS, "{part:?}: parts below {LOCAL_PARTS}");
        let at = usize::from(part.node.0) * usize::from(LOCAL_PARTS) + usize::from(part.number);
        let line = LineId((self.memory.lines() + at) as u32);
        self.sharing.touch(line, actor, changed);
        let reduction = self.config.reduction;
        if self.sharing.is_shared(line) && !reduction.has(Planted::PartsForgotten) {
            self.footprint.line(line, changed);
        }
        if !reduction.has(Planted::ToldForgotten) {
            // No news: who looks again and again at what does not change waits for nothing else.
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

    /// There may be something new for these actors.
    pub(crate) fn wake(&mut self, actors: u64) {
        for (index, state) in self.actors.iter_mut().enumerate() {
            if actors >> index & 1 == 1 && state.status == Status::Idle {
                (state.status, state.idle) = (Status::Ready, 0);
            }
        }
    }

    /// Whether this poll said that it changed something in a node's memory.
    fn says_it_changed(&self, node: NodeSlot) -> bool {
        self.parts.changed >> node.0 & 1 == 1
    }

    /// A poll begins.
    pub(crate) fn forget_changed_parts(&mut self) {
        self.parts.changed = 0;
    }
}

impl World {
    /// Digests of what compute nodes keep, in builds with assertions.
    pub(super) fn kept_before(&self) -> Vec<u64> {
        let kept = self.kept.borrow();
        let is_checked = cfg!(debug_assertions);
        kept.iter().filter(|_| is_checked).map(|it| (it.digest)()).collect()
    }

    /// What a poll has changed it has said.
    pub(super) fn check_kept(&self, before: &[u64]) {
        for (kept, before) in self.kept.borrow().iter().zip(before) {
            let (node, machine) = (kept.node, self.machine.borrow());
            assert!(
                (kept.digest)() == *before || machine.says_it_changed(node),
                "a poll changed what compute node {} keeps, and named no part of it",
                node.0
            );
        }
    }
}
