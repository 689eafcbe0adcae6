//! Transitions that may happen next, and the rule that says whether the order of two transitions
//! matters.
//!
//! Invariant: a transition's name depends only on the past of its actor, never on the steps of other
//! actors. So the name means the same transition on all paths. [`Footprint::meets`] may return true
//! although the order of two transitions does not matter. [`Footprint::meets`] never returns false if
//! the two transitions could lead to another state in the other order.

use super::memory::LineId;
use super::time::{TimeFootprint, TimeStep};

/// One step of an execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Transition {
    /// An actor is polled for the first time, or continues with its next transaction.
    Start { actor: u8 },
    /// An actor for which something new has happened is polled.
    Poll { actor: u8 },
    /// A line or an atomic of a round is executed, or a revocation takes effect.
    Piece { actor: u8, round: u32, verb: u16, line: u16 },
    /// A window opens or closes, or a wait begins or ends.
    Time { actor: u8, step: TimeStep },
    /// A compute node dies.
    Die { node: u8 },
    /// A compute node is declared dead.
    Declare { node: u8 },
    /// A memory node dies.
    MemoryDies { node: u8 },
    /// A datagram arrives.
    Deliver { actor: u8, message: u32 },
    /// A datagram is lost.
    Lose { actor: u8, message: u32 },
    /// A datagram arrives, and will arrive a second time.
    Double { actor: u8, message: u32 },
}

impl Transition {
    /// Returns the actor of the transition, if the transition has one.
    pub(crate) fn actor(self) -> Option<usize> {
        match self {
            Transition::Start { actor }
            | Transition::Poll { actor }
            | Transition::Piece { actor, .. }
            | Transition::Time { actor, .. }
            | Transition::Deliver { actor, .. }
            | Transition::Lose { actor, .. }
            | Transition::Double { actor, .. } => Some(usize::from(actor)),
            _ => None,
        }
    }

    /// Returns whether the transition is a fault.
    pub(crate) fn is_fault(self) -> bool {
        use Transition::{Declare, Die, Double, Lose, MemoryDies};
        matches!(
            self,
            Die { .. } | Declare { .. } | MemoryDies { .. } | Lose { .. } | Double { .. }
        )
    }
}

/// The largest number of lines and parts of local memory in a footprint. A footprint with more lines
/// and parts than this number meets every other footprint.
const LINES: usize = 12;

/// The lines, actors and events that a transition touched, together with all steps that immediately
/// followed from the transition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    /// The actors that posted, landed, saw or lost something, one bit per actor.
    pub(crate) actors: u64,
    /// The touched lines. Each element is a line number, shifted left by one, and its lowest bit says
    /// whether the line was changed.
    lines: [u32; LINES],
    line_count: u8,
    /// The round (actor and number) of which the transition landed a piece, if the transition had no
    /// other effect.
    round: Option<(u8, u32)>,
    rounds: u8,
    /// The steps of windows and waits that the transition took.
    pub(crate) time: TimeFootprint,
    /// Whether a coroutine was polled.
    pub(crate) polled: bool,
    /// Whether a registered object changed.
    pub(crate) shares_changed: bool,
    /// Whether a transaction began. The field `ended` says whether a transaction ended.
    pub(crate) began: bool,
    pub(crate) ended: bool,
    /// Whether the transition uses a budget of faults.
    pub(crate) fault: bool,
    /// Whether the footprint meets every other footprint.
    pub(crate) global: bool,
}

impl Footprint {
    /// The footprint of a transition that touched nothing.
    pub(crate) const NONE: Footprint = Footprint {
        actors: 0,
        lines: [0; LINES],
        line_count: 0,
        round: None,
        rounds: 0,
        time: TimeFootprint::NONE,
        polled: false,
        shares_changed: false,
        began: false,
        ended: false,
        fault: false,
        global: false,
    };

    /// Records an access to a line that other actors may touch.
    #[inline]
    pub(crate) fn line(&mut self, line: LineId, changed: bool) {
        let known = &mut self.lines[..usize::from(self.line_count)];
        if let Some(known) = known.iter_mut().find(|known| **known >> 1 == line.0) {
            *known |= u32::from(changed);
            return;
        }
        match self.lines.get_mut(usize::from(self.line_count)) {
            Some(place) => {
                *place = line.0 << 1 | u32::from(changed);
                self.line_count += 1;
            }
            None => self.global = true,
        }
    }

    /// Records that a piece of a round landed.
    #[inline]
    pub(crate) fn round(&mut self, actor: u8, round: u32) {
        self.actors |= 1 << actor;
        if self.round != Some((actor, round)) {
            self.rounds = self.rounds.saturating_add(1);
            self.round = Some((actor, round));
        }
    }

    /// Records that the transition touched these actors by an effect other than a piece of one round.
    #[inline]
    pub(crate) fn actor(&mut self, actors: u64) {
        self.actors |= actors;
        self.rounds = 2;
    }

    /// Adds everything that `other` touched.
    pub(crate) fn join(&mut self, other: &Footprint) {
        for &line in &other.lines[..usize::from(other.line_count)] {
            self.line(LineId(line >> 1), line & 1 == 1);
        }
        self.actors |= other.actors;
        self.rounds = 2;
        self.time.join(other.time);
        self.polled |= other.polled;
        self.shares_changed |= other.shares_changed;
        self.began |= other.began;
        self.ended |= other.ended;
        self.fault |= other.fault;
        self.global |= other.global;
    }

    /// Returns whether both transitions landed pieces of the same round, and of no other round.
    fn is_sibling(&self, other: &Footprint) -> bool {
        self.rounds == 1 && other.rounds == 1 && self.round == other.round
    }

    /// Returns whether the order of two transitions with these footprints may matter.
    pub(crate) fn meets(&self, other: &Footprint) -> bool {
        let lines = |it: &Footprint| it.lines;
        let (mine, theirs) = (lines(self), lines(other));
        let collide = |a: u32, b: u32| a >> 1 == b >> 1 && (a | b) & 1 == 1;
        self.global
            || other.global
            || self.fault && other.fault
            || self.began && other.ended
            || self.ended && other.began
            || self.time.meets(other.time)
            || self.shares_changed && other.polled
            || self.polled && other.shares_changed
            || self.actors & other.actors != 0 && !self.is_sibling(other)
            || mine[..usize::from(self.line_count)]
                .iter()
                .any(|a| theirs[..usize::from(other.line_count)].iter().any(|b| collide(*a, *b)))
    }

    /// Returns the footprint that this transition may have after `other`, which this transition does
    /// not meet. The last piece of a round lets the round's actor continue. A piece that was not the
    /// round's last piece may become the last piece after `other`.
    #[must_use]
    pub(crate) fn after(mut self, other: &Footprint, has_shares: bool) -> Footprint {
        if self.actors & other.actors != 0 && !self.polled {
            (self.polled, self.began, self.ended) = (true, true, true);
            self.time = TimeFootprint::ALL;
            self.shares_changed |= has_shares;
        }
        self
    }
}
