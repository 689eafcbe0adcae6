//! Facts about sharing, learned from executions:
//! - which actors touch or change each line, and each part of local memory; which lines the judge
//!   reads;
//! - which actors change registered objects, and which see them;
//! - which compute nodes may have their access revoked while they go on.
//!
//! Invariant: the sets only grow, over all executions. If they grow during an exploration, its results
//! are not reliable, and it begins anew (`docs/design/0011-explorer.md`).

use super::memory::LineId;
use tarn_fabric::address::NodeId;

/// The actors that touched a line, a bit each.
#[derive(Clone, Copy, Default)]
struct Use {
    readers: u64,
    writers: u64,
}

/// See the module's documentation.
pub(crate) struct Sharing {
    uses: Vec<Use>,
    shared: Vec<bool>,
    /// Lines at which the order of one actor's own accesses is open.
    disputed: Vec<bool>,
    judged: Vec<bool>,
    count: u64,
    revoked_alive: Vec<NodeId>,
    /// Lines from this number on are parts of local memory.
    first_part: usize,
    /// The parts of local memory that an actor has touched.
    parts: Vec<LineId>,
    /// For each registered object: the actors that have changed it, and those that see it.
    objects: Vec<(u64, u64)>,
    /// The actors that open windows; below, those that begin waits, a bit each.
    windows: u64,
    waits: u64,
    /// A planted mistake: nothing is learned.
    pub(crate) is_frozen: bool,
    /// Whether datagrams are sent.
    pub(crate) has_messages: bool,
    /// Whether a coroutine asks if a detached round is done.
    pub(crate) has_asks: bool,
    /// Whether something was learned since this was last set to false.
    pub(crate) has_grown: bool,
}

impl Sharing {
    /// Creates the sets; nothing is shared yet.
    pub(crate) fn new(first_part: usize, parts: usize) -> Sharing {
        let lines = first_part + parts;
        Sharing {
            uses: vec![Use::default(); lines],
            shared: vec![false; lines],
            disputed: vec![false; lines],
            judged: vec![false; lines],
            first_part,
            parts: Vec::new(),
            count: 0,
            revoked_alive: Vec::new(),
            objects: Vec::new(),
            windows: 0,
            waits: 0,
            is_frozen: false,
            has_messages: false,
            has_asks: false,
            has_grown: false,
        }
    }

    /// An actor touched a line; `changed` says whether it changed the line.
    #[inline]
    pub(crate) fn touch(&mut self, line: LineId, actor: u8, changed: bool) {
        let (index, bit) = (line.0 as usize, 1 << actor);
        let it = &mut self.uses[index];
        let known = if changed { &mut it.writers } else { &mut it.readers };
        if *known & bit != 0 || self.is_frozen {
            return;
        }
        *known |= bit;
        let all = it.readers | it.writers;
        if index >= self.first_part && !self.parts.contains(&line) {
            self.parts.push(line);
        }
        if it.writers != 0 && !all.is_power_of_two() {
            self.has_grown = true;
            self.share(line);
        }
    }

    fn share(&mut self, line: LineId) {
        let shared = &mut self.shared[line.0 as usize];
        self.count += u64::from(!*shared);
        *shared = true;
    }

    /// The order of an actor's own accesses to a line is open.
    pub(crate) fn dispute(&mut self, line: LineId) {
        let disputed = &mut self.disputed[line.0 as usize];
        if !*disputed && !self.is_frozen {
            (*disputed, self.has_grown) = (true, true);
            self.share(line);
        }
    }

    /// Whether the order of an access to a line may matter. `others` are the actors, apart from the
    /// accessing one, that may still touch anything.
    #[inline]
    pub(crate) fn is_disputed(&self, line: LineId, may_change: bool, others: u64) -> bool {
        let index = line.0 as usize;
        let Use { readers, writers } = self.uses[index];
        let all = if may_change { readers | writers } else { writers };
        self.disputed[index] || self.shared[index] && all & others != 0
    }

    /// The poll of an actor changed an object that the actors in `audience` see.
    pub(crate) fn change_object(&mut self, object: usize, actor: u8, audience: u64) {
        if self.is_frozen {
            return;
        }
        if self.objects.len() <= object {
            self.objects.resize(object + 1, (0, 0));
        }
        let (changers, seers) = &mut self.objects[object];
        let before = (*changers, *seers);
        (*changers, *seers) = (*changers | 1 << actor, *seers | audience);
        self.has_grown |= before != (*changers, *seers);
    }

    /// Whether no other actor changes an object that `these` see, and no other sees an object that
    /// `these` change.
    pub(crate) fn is_apart(&self, these: u64, others: u64) -> bool {
        self.objects.iter().all(|(changers, seers)| {
            (changers & others == 0 || seers & these == 0)
                && (changers & these == 0 || seers & others == 0)
        })
    }

    /// Whether the actor touches no part of local memory that one of the others changes, and changes
    /// none that one of them touches.
    pub(crate) fn is_apart_in_parts(&self, actor: u8, others: u64) -> bool {
        let meets = |part: &LineId| {
            let Use { readers, writers } = self.uses[part.0 as usize];
            let changes = writers >> actor & 1 == 1;
            (changes || readers >> actor & 1 == 1) && self.is_disputed(*part, changes, others)
        };
        !self.parts.iter().any(meets)
    }

    /// An actor opens a window.
    pub(crate) fn open_window(&mut self, actor: u8) {
        let is_new = self.windows >> actor & 1 == 0 && !self.is_frozen;
        self.windows |= u64::from(is_new) << actor;
        self.has_grown |= is_new && self.waits & !(1 << actor) != 0;
    }

    /// An actor begins a wait.
    pub(crate) fn begin_wait(&mut self, actor: u8) {
        let is_new = self.waits >> actor & 1 == 0 && !self.is_frozen;
        self.waits |= u64::from(is_new) << actor;
        self.has_grown |= is_new && self.windows & !(1 << actor) != 0;
    }

    /// Whether any of these actors begins waits.
    pub(crate) fn begins_waits(&self, actors: u64) -> bool {
        self.waits & actors != 0
    }

    /// A datagram is sent: from now on datagrams count.
    pub(crate) fn message(&mut self) {
        self.has_grown |= !self.has_messages && !self.is_frozen;
        self.has_messages |= !self.is_frozen;
    }

    /// A coroutine asks whether a detached round is done.
    pub(crate) fn ask(&mut self) {
        self.has_grown |= !self.has_asks && !self.is_frozen;
        self.has_asks |= !self.is_frozen;
    }

    /// A coroutine asked to revoke the access of a compute node that may still go on.
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

    /// Number of lines that are shared.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
