//! Facts about sharing that the explorer learns from executions:
//! - which actors touch or change each line and each part of local memory, and which lines the judge
//!   reads;
//! - which actors change registered objects, and which actors observe registered objects;
//! - which compute nodes may lose their access while they continue to run.
//!
//! Invariant: over all executions the sets of shared lines, parts and objects only grow. If a set
//! grows during an exploration, the results of the exploration are not reliable, and the exploration
//! restarts (`docs/design/0011-explorer.md`).

use super::memory::LineId;
use tarn_fabric::address::NodeId;

/// The actors that touched a line, one bit per actor.
#[derive(Clone, Copy, Default)]
struct Use {
    readers: u64,
    writers: u64,
}

/// The facts about sharing that the explorer has learned.
pub(crate) struct Sharing {
    uses: Vec<Use>,
    shared: Vec<bool>,
    /// The lines that may see the accesses of one actor in several orders.
    disputed: Vec<bool>,
    judged: Vec<bool>,
    count: u64,
    revoked_alive: Vec<NodeId>,
    /// Line numbers from this number on mean parts of local memory instead of lines of memory.
    first_part: usize,
    /// The parts of local memory that an actor has touched.
    parts: Vec<LineId>,
    /// For each registered object: the actors that have changed it, and the actors that observe it.
    objects: Vec<(u64, u64)>,
    /// The actors that open windows, one bit per actor. The field `waits` holds the actors that begin
    /// waits.
    windows: u64,
    waits: u64,
    /// A planted mistake: if this field is set, the explorer learns nothing about sharing.
    pub(crate) is_frozen: bool,
    /// Whether the program sends datagrams.
    pub(crate) has_messages: bool,
    /// Whether any coroutine asks if a detached round is done.
    pub(crate) has_asks: bool,
    /// Whether any set has grown since this field was last set to false.
    pub(crate) has_grown: bool,
}

impl Sharing {
    /// Creates the sets. At first no line, part or object is shared.
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

    /// Records that an actor touched a line. `changed` says whether the actor changed the line.
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

    /// Records that a line may see the accesses of one actor in several orders.
    pub(crate) fn dispute(&mut self, line: LineId) {
        let disputed = &mut self.disputed[line.0 as usize];
        if !*disputed && !self.is_frozen {
            (*disputed, self.has_grown) = (true, true);
            self.share(line);
        }
    }

    /// Returns whether the order of an access to a line may matter. `others` are the other actors
    /// that may still access memory.
    #[inline]
    pub(crate) fn is_disputed(&self, line: LineId, may_change: bool, others: u64) -> bool {
        let index = line.0 as usize;
        let Use { readers, writers } = self.uses[index];
        let all = if may_change { readers | writers } else { writers };
        self.disputed[index] || self.shared[index] && all & others != 0
    }

    /// Records that the poll of an actor changed an object that the actors in `audience` observe.
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

    /// Returns whether the actors `these` are independent of the other actors. Independent means that
    /// no other actor changes an object that `these` observe. Independent also means that no other
    /// actor observes an object that `these` change.
    pub(crate) fn is_apart(&self, these: u64, others: u64) -> bool {
        self.objects.iter().all(|(changers, seers)| {
            (changers & others == 0 || seers & these == 0)
                && (changers & these == 0 || seers & others == 0)
        })
    }

    /// Returns whether the actor is independent of the other actors in local memory. An independent
    /// actor touches no part that another actor changes, and changes no part that another actor
    /// touches.
    pub(crate) fn is_apart_in_parts(&self, actor: u8, others: u64) -> bool {
        let meets = |part: &LineId| {
            let Use { readers, writers } = self.uses[part.0 as usize];
            let changes = writers >> actor & 1 == 1;
            (changes || readers >> actor & 1 == 1) && self.is_disputed(*part, changes, others)
        };
        !self.parts.iter().any(meets)
    }

    /// Records that an actor opens a window.
    pub(crate) fn open_window(&mut self, actor: u8) {
        let is_new = self.windows >> actor & 1 == 0 && !self.is_frozen;
        self.windows |= u64::from(is_new) << actor;
        self.has_grown |= is_new && self.waits & !(1 << actor) != 0;
    }

    /// Records that an actor begins a wait.
    pub(crate) fn begin_wait(&mut self, actor: u8) {
        let is_new = self.waits >> actor & 1 == 0 && !self.is_frozen;
        self.waits |= u64::from(is_new) << actor;
        self.has_grown |= is_new && self.windows & !(1 << actor) != 0;
    }

    /// Returns whether any actor of the set `actors` begins waits.
    pub(crate) fn begins_waits(&self, actors: u64) -> bool {
        self.waits & actors != 0
    }

    /// Records that the program sends a datagram.
    pub(crate) fn message(&mut self) {
        self.has_grown |= !self.has_messages && !self.is_frozen;
        self.has_messages |= !self.is_frozen;
    }

    /// Records that a coroutine asks whether a detached round is done.
    pub(crate) fn ask(&mut self) {
        self.has_grown |= !self.has_asks && !self.is_frozen;
        self.has_asks |= !self.is_frozen;
    }

    /// Records that a coroutine requested to revoke the access of a compute node that may still
    /// continue to run.
    pub(crate) fn revoke_alive(&mut self, node: NodeId) {
        if !self.is_frozen && !self.revoked_alive.contains(&node) {
            self.revoked_alive.push(node);
            self.has_grown = true;
        }
    }

    /// Returns whether a compute node that continues to run may learn that it has lost its access.
    pub(crate) fn is_revoked_alive(&self, node: NodeId) -> bool {
        self.revoked_alive.contains(&node)
    }

    /// Records that the judge has read a line.
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

    /// Returns the number of lines that are shared.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}
