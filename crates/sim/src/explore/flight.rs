//! Rounds in flight, executed piece by piece.
//!
//! Invariant: the rules for the order of pieces are the same as in random mode (`pieces`):
//! - Within a batch verbs are executed in order, except that a WRITE without fence may overtake earlier
//!   READs and atomics of the batch.
//! - The lines of a READ or WRITE are executed in any order.
//! - A round may be posted behind an unawaited (detached or dropped) round of its connection. Each
//!   batch of the later round then waits for the unawaited round's batch at the same node.
//!
//! This module keeps an awaited round itself until the round's coroutine fetches it. The places and
//! tickets of flights are the places and tickets of a [`Slab`].

use super::hash::{Digest, chain, mix, of_bytes};
use crate::slab::{Reused, Slab};
use tarn_fabric::address::{LINE_BYTES, NodeId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{Round, Verb, VerbKind};

/// A verb that is not fully executed yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// The position of the verb in the round.
    pub(crate) verb: u16,
    pub(crate) kind: VerbKind,
    fenced: bool,
    /// For a READ or WRITE: one bit for each line that is still to be executed, counted from the verb's
    /// first line. An atomic has one bit.
    pub(crate) lines: u64,
}

/// The part of a round that is addressed to one node.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) node: NodeSlot,
    /// The verbs still to be executed, in the order in which the round lists them. The list of verbs
    /// is empty if the batch is done.
    pub(crate) pending: Vec<Pending>,
}

impl Batch {
    /// Returns the verbs that may be executed next, as positions in `pending`: the first verb, and a
    /// WRITE that may overtake other verbs.
    #[inline]
    pub(crate) fn next(&self) -> (Option<usize>, Option<usize>) {
        let list = &self.pending;
        if list.is_empty() {
            return (None, None);
        }
        let overtaken = list.iter().take_while(|it| it.kind != VerbKind::Write).count();
        let may_overtake = overtaken > 0
            && overtaken < list.len()
            && list[1..=overtaken].iter().all(|it| !it.fenced);
        (Some(0), may_overtake.then_some(overtaken))
    }
}

/// The interest that a coroutine has in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// The round's coroutine will fetch the results of the round.
    Awaited,
    /// The coroutine will not fetch the results of the round, but may ask whether the round is done.
    Detached,
    /// No coroutine is interested in the round any more.
    Abandoned,
    /// The coroutine that would fetch the results of the round has died. The results are kept for the
    /// post-mortem run of that coroutine.
    Orphaned,
}

/// A round in flight, or a revocation request in flight.
pub(crate) struct Flight {
    pub(crate) round: Round,
    batches: Vec<Batch>,
    used: usize,
    generation: u32,
    pub(crate) actor: u8,
    /// The number of this round among its actor's rounds.
    pub(crate) number: u32,
    /// The number of the connection of the actor's thread.
    pub(crate) connection: u16,
    /// The number of this round among all rounds of an execution.
    pub(crate) sequence: u32,
    pub(crate) interest: Interest,
    /// The sequence number of the last round that was posted before this round became unawaited.
    /// Later rounds of the same connection wait for this round. `None` means that a coroutine awaits
    /// this round.
    pub(crate) before: Option<u32>,
    /// The number of batches that are not done.
    pub(crate) left: u32,
    pub(crate) error: Option<FabricError>,
    /// The sum of the digests of the round's landed pieces and of the data that these pieces fetched.
    pub(crate) landed: Digest,
    /// Whether the round's coroutine waits for the round.
    pub(crate) is_waited_for: bool,
    /// Whether the round's coroutine was told that the round is not done yet.
    pub(crate) was_asked: bool,
    /// Only for a revocation request, which is not a round: the node whose access is to be revoked.
    pub(crate) revokes: Option<NodeId>,
    pub(crate) posted_step: u32,
    pub(crate) phase: &'static str,
}

impl Reused for Flight {
    fn unused() -> Flight {
        Flight {
            round: Round::new(),
            batches: Vec::new(),
            used: 0,
            generation: 0,
            actor: 0,
            number: 0,
            connection: 0,
            sequence: 0,
            interest: Interest::Abandoned,
            before: None,
            left: 0,
            error: None,
            landed: 0,
            is_waited_for: false,
            was_asked: false,
            revokes: None,
            posted_step: 0,
            phase: "",
        }
    }

    fn generation(&self) -> u32 {
        self.generation
    }

    fn set_generation(&mut self, generation: u32) {
        self.generation = generation;
    }
}

impl Flight {
    /// The round's batches.
    #[inline]
    pub(crate) fn batches(&self) -> &[Batch] {
        &self.batches[..self.used]
    }

    #[inline]
    pub(crate) fn batch_mut(&mut self, index: usize) -> &mut Batch {
        &mut self.batches[index]
    }

    fn batch_of(&mut self, node: NodeSlot) -> &mut Batch {
        let known = self.batches().iter().position(|batch| batch.node == node);
        let index = known.unwrap_or_else(|| {
            if self.used == self.batches.len() {
                self.batches.push(Batch { node, pending: Vec::new() });
            }
            self.batches[self.used].node = node;
            self.batches[self.used].pending.clear();
            self.used += 1;
            self.used - 1
        });
        &mut self.batches[index]
    }

    /// Sorts the verbs of the flight's round by node.
    pub(crate) fn plan(&mut self) {
        self.used = 0;
        for at in 0..self.round.verbs().len() {
            let verb = self.round.verbs()[at];
            let pending = Pending {
                verb: at as u16,
                kind: verb.kind(),
                fenced: verb.has(Verb::FENCED),
                lines: lines_of(&verb),
            };
            self.batch_of(verb.target.node()).pending.push(pending);
        }
        self.left = self.used as u32;
    }

    /// Turns the flight into a request to one memory node to revoke the access of `whom`.
    pub(crate) fn plan_revocation(&mut self, whom: NodeId, at: NodeSlot) {
        (self.used, self.revokes) = (0, Some(whom));
        let pending = Pending { verb: 0, kind: VerbKind::FetchAndAdd, fenced: false, lines: 1 };
        self.batch_of(at).pending.push(pending);
        self.left = 1;
    }

    /// Returns the digest chained with the verbs that are still to be executed. If no actor will
    /// fetch the round's results, an actor can observe no more of the round than these verbs. `holds`
    /// is the number of rounds in flight that wait for this round. The waiting rounds are the most
    /// recent rounds of the connection, so their number identifies them.
    pub(crate) fn add_pending(&self, mut digest: Digest, holds: usize) -> Digest {
        for batch in self.batches().iter().filter(|batch| !batch.pending.is_empty()) {
            let holds = holds as u64;
            let place = u64::from(self.connection) << 32 | u64::from(batch.node.0) << 8 | holds;
            digest = chain(digest, mix(place, u64::from(self.actor)));
            if let Some(whom) = self.revokes {
                let life = u64::from(whom.slot.0) << 32 | u64::from(whom.incarnation.0);
                digest = chain(digest, mix(life, 0x4e7));
                continue;
            }
            for pending in &batch.pending {
                let verb = &self.round.verbs()[usize::from(pending.verb)];
                let name = verb.target.address().to_word() ^ u64::from(pending.fenced) << 63;
                digest = chain(digest, mix(name, pending.lines));
                digest = chain(digest, self.operands(verb));
            }
        }
        digest
    }

    /// Returns the digest of a verb's operands.
    fn operands(&self, verb: &Verb) -> Digest {
        let kind = verb.kind();
        let own = mix(verb.expected, verb.value ^ (kind as u64) << 56);
        match kind {
            VerbKind::Read => mix(verb.len_bytes() as u64, 0x4ead),
            VerbKind::Write => of_bytes(self.round.bytes(verb.buffer(), verb.len_bytes())),
            VerbKind::MaskedCompareAndSwap => {
                chain(own, of_bytes(self.round.bytes(verb.buffer(), 16)))
            }
            VerbKind::CompareAndSwap | VerbKind::FetchAndAdd => own,
        }
    }

    /// Returns whether all batches of the round are done.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Returns whether a later round of the same connection waits for the batches of this round.
    fn holds(&self, later: &Flight) -> bool {
        self.before.is_some_and(|before| before < later.sequence)
            && self.connection == later.connection
            && self.revokes.is_none()
    }

    /// Gives the round back to its owner before the round is done. At the time of this call, rounds
    /// up to number `sequence` have been posted. The function copies the verbs that are still to be
    /// executed.
    pub(crate) fn give_up(&mut self, round: &mut Round, sequence: u32) {
        std::mem::swap(&mut self.round, round);
        if !self.is_done() {
            self.round.copy_from(round);
        }
        (self.interest, self.is_waited_for) = (Interest::Abandoned, false);
        self.before = Some(sequence);
    }
}

fn lines_of(verb: &Verb) -> u64 {
    if !matches!(verb.kind(), VerbKind::Read | VerbKind::Write) {
        return 1;
    }
    let into = verb.target.address().offset_bytes() as usize % LINE_BYTES;
    let lines = (into + verb.len_bytes()).div_ceil(LINE_BYTES).max(1);
    assert!(lines <= 64, "{verb:?}: explored READs and WRITEs have at most 64 lines");
    u64::MAX >> (64 - lines)
}

/// Returns which bytes of a READ or WRITE lie in one of its lines. The bytes are counted from the
/// verb's first byte.
pub(crate) fn part(verb: &Verb, line: u16) -> std::ops::Range<usize> {
    let into = verb.target.address().offset_bytes() as usize % LINE_BYTES;
    let from = (usize::from(line) * LINE_BYTES).saturating_sub(into);
    from..((usize::from(line) + 1) * LINE_BYTES - into).min(verb.len_bytes())
}

/// All rounds in flight.
#[derive(Default)]
pub(crate) struct Flights {
    all: Slab<Flight>,
    /// The places of the rounds in flight, in the order in which the rounds were posted.
    pub(crate) live: Vec<u32>,
}

impl Flights {
    /// Takes a free place for a flight. The caller must fill the place.
    pub(crate) fn begin(&mut self) -> u32 {
        let index = self.all.take();
        let flight = self.all.get_mut(index);
        (flight.error, flight.landed, flight.revokes) = (None, 0, None);
        (flight.is_waited_for, flight.was_asked) = (false, false);
        self.live.push(index);
        index
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Flight {
        self.all.get(index)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Flight {
        self.all.get_mut(index)
    }

    /// Returns the ticket that the owner of a round keeps.
    pub(crate) fn ticket(&self, index: u32) -> u64 {
        self.all.ticket(index)
    }

    /// Returns the place that a ticket names, unless another flight has used the place since.
    #[inline]
    pub(crate) fn find(&self, ticket: u64) -> Option<u32> {
        self.all.find(ticket)
    }

    /// Returns the place of the round number `number` of `actor`.
    #[inline]
    pub(crate) fn named(&self, actor: u8, number: u32) -> Option<u32> {
        let is_it = |index: &&u32| {
            let flight = self.all.get(**index);
            flight.number == number && flight.actor == actor
        };
        self.live.iter().find(is_it).copied()
    }

    /// Returns the actors that have verbs still to be executed, one bit per actor.
    pub(crate) fn actors(&self) -> u64 {
        let flights = self.live.iter().map(|index| self.all.get(*index));
        flights.filter(|it| !it.is_done()).fold(0, |actors, it| actors | 1 << it.actor)
    }

    /// Ends a flight and gives its place back.
    pub(crate) fn end(&mut self, index: u32) {
        self.live.retain(|live| *live != index);
        self.all.give_back(index);
    }

    /// Ends all flights and gives their places back.
    pub(crate) fn clear(&mut self) {
        while let Some(index) = self.live.pop() {
            self.all.give_back(index);
        }
    }

    /// Returns whether a batch waits for an earlier unawaited batch of its connection at the same node.
    pub(crate) fn is_held(&self, flight: &Flight, node: NodeSlot) -> bool {
        self.live.iter().map(|index| self.all.get(*index)).any(|earlier| {
            earlier.holds(flight)
                && earlier.batches().iter().any(|it| it.node == node && !it.pending.is_empty())
        })
    }

    /// Returns whether an actor waits for a round that is not done.
    pub(crate) fn is_anything_waited_for(&self, actor: Option<u8>) -> bool {
        let mut flights = self.live.iter().map(|index| self.all.get(*index));
        flights.any(|it| Some(it.actor) == actor && it.is_waited_for && !it.is_done())
    }

    /// Returns the number of rounds that wait for this round.
    pub(crate) fn held_by(&self, flight: &Flight) -> usize {
        self.live.iter().filter(|index| flight.holds(self.all.get(**index))).count()
    }
}
