//! Which lines more than one actor touches, one of them changing it; which the judge looks at; who may
//! be revoked while it goes on.
//!
//! Invariant: the sets only grow, over all executions. While they grow the exploration that used them
//! is not to be relied on: it begins anew (`docs/design/0011-explorer.md`).

use super::memory::LineId;
use tarn_fabric::address::NodeId;

/// Who touched a line.
#[derive(Clone, Copy, Default)]
struct Use {
    readers: u64,
    writers: u64,
}

/// See the module's text.
pub(crate) struct Sharing {
    uses: Vec<Use>,
    shared: Vec<bool>,
    judged: Vec<bool>,
    count: u64,
    revoked_alive: Vec<NodeId>,
    /// A planted mistake: nothing is learned.
    pub(crate) is_frozen: bool,
    /// Datagrams are sent.
    pub(crate) has_messages: bool,
    /// Somebody asks whether a round that nobody awaits is done.
    pub(crate) has_asks: bool,
    /// Something was learned since this was last set to false.
    pub(crate) has_grown: bool,
}

impl Sharing {
    /// Nothing is shared.
    pub(crate) fn new(lines: usize) -> Sharing {
        Sharing {
            uses: vec![Use::default(); lines],
            shared: vec![false; lines],
            judged: vec![false; lines],
            count: 0,
            revoked_alive: Vec::new(),
            is_frozen: false,
            has_messages: false,
            has_asks: false,
            has_grown: false,
        }
    }

    /// An actor touched a line, and changed it or not.
    #[inline]
    pub(crate) fn touch(&mut self, line: LineId, actor: u8, changed: bool) {
        let (index, bit) = (line.0 as usize, 1 << actor);
        let it = &mut self.uses[index];
        if changed {
            it.writers |= bit;
        } else {
            it.readers |= bit;
        }
        let all = it.readers | it.writers;
        if it.writers != 0 && !all.is_power_of_two() {
            self.share(line);
        }
    }

    /// The order of accesses to a line is open.
    pub(crate) fn share(&mut self, line: LineId) {
        let index = line.0 as usize;
        if !self.shared[index] && !self.is_frozen {
            (self.shared[index], self.has_grown) = (true, true);
            self.count += 1;
        }
    }

    /// Datagrams are sent from now on.
    pub(crate) fn message(&mut self) {
        self.has_grown |= !self.has_messages && !self.is_frozen;
        self.has_messages |= !self.is_frozen;
    }

    /// Somebody asks whether a round that nobody awaits is done.
    pub(crate) fn ask(&mut self) {
        self.has_grown |= !self.has_asks && !self.is_frozen;
        self.has_asks |= !self.is_frozen;
    }

    /// The revocation of a compute node was asked for that may still go on.
    pub(crate) fn revoke_alive(&mut self, node: NodeId) {
        if !self.is_frozen && !self.revoked_alive.contains(&node) {
            self.revoked_alive.push(node);
            self.has_grown = true;
        }
    }

    /// Whether a compute node that goes on may be told that it has lost its access.
    pub(crate) fn is_revoked_alive(&self, node: NodeId) -> bool {
        self.revoked_alive.contains(&node)
    }

    /// The judge looked at a line.
    #[inline]
    pub(crate) fn judge(&mut self, line: LineId) {
        let judged = &mut self.judged[line.0 as usize];
        if self.is_frozen {
            return;
        }
        self.has_grown |= !*judged;
        *judged = true;
    }

    #[inline]
    pub(crate) fn is_shared(&self, line: LineId) -> bool {
        self.shared[line.0 as usize]
    }

    #[inline]
    pub(crate) fn is_judged(&self, line: LineId) -> bool {
        self.judged[line.0 as usize]
    }

    /// Lines that are shared.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
