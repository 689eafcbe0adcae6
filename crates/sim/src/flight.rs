//! Rounds in flight.
//!
//! Invariant: for an awaited round, this module keeps the round itself and not a copy. The round's
//! coroutine cannot touch the round before the round is done, and holds an idle round until then. So a
//! READ writes its data directly into the buffer from which the coroutine reads it. A detached or
//! dropped round returns to its owner immediately. The module then copies the verbs that are still to
//! be executed. The places and tickets of flights are the places and tickets of a [`Slab`].

use crate::costs::{Costs, Requests};
use crate::effects::Placement;
use crate::memory::{Memory, Place};
use crate::prefetch::{prefetch, prefetch_range};
use crate::slab::{self, Reused, Slab};
use tarn_fabric::address::{LINE_BYTES, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{Round, Verb, VerbKind};

/// The verbs of one round for one node. Two values of this type fill one cache line of the machine that
/// runs the simulation.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Batch {
    /// The batch's verbs among the first 64 verbs of the flight, one bit per verb.
    pub(crate) mask: u64,
    /// The number of the batch on its connection, counted from 1. A run ends long before a connection
    /// has posted 2^32 batches.
    pub(crate) number: u32,
    pub(crate) verbs: u32,
    /// The number of the batch's verbs that are WRITEs.
    pub(crate) writes: u32,
    /// The number of the batch's WRITEs whose bytes the NIC fetches by a separate DMA.
    pub(crate) fetched: u32,
    /// The number of bytes that the batch's requests have on the wire.
    pub(crate) request_bytes: u32,
    pub(crate) node: NodeSlot,
    /// Only in random mode: whether all verbs of the batch have landed, or the remaining verbs will
    /// never land.
    pub(crate) is_done: bool,
    /// The number of doorbells with which the requester posts the batch, without the first one.
    pub(crate) more_rings: u8,
}

const _: () = assert!(size_of::<Batch>() == 32);

impl Batch {
    fn none(node: NodeSlot) -> Batch {
        Batch {
            mask: 0,
            number: 0,
            verbs: 0,
            writes: 0,
            fetched: 0,
            request_bytes: 0,
            node,
            is_done: false,
            more_rings: 0,
        }
    }

    /// The work requests that the batch gives to the requester's NIC.
    #[inline(always)]
    pub(crate) fn requests(&self) -> Requests {
        Requests {
            verbs: self.verbs.into(),
            writes: self.writes.into(),
            fetched: self.fetched.into(),
        }
    }

    /// Iterates over the positions of the batch's verbs in order. Each call of `next` returns one
    /// position.
    #[inline(always)]
    pub(crate) fn mine(&self) -> Mine {
        Mine { mask: self.mask, node: self.node, next: MASKED }
    }
}

/// The batch's mask finds its verbs among the first `MASKED` verbs of a flight. Later verbs are found
/// by a search.
const MASKED: usize = 64;

/// The iterator that [`Batch::mine`] returns.
pub(crate) struct Mine {
    mask: u64,
    node: NodeSlot,
    next: usize,
}

impl Mine {
    /// Returns the position of the batch's next verb. The argument `verbs` has all verbs of the flight.
    #[inline(always)]
    pub(crate) fn next(&mut self, verbs: &[Verb]) -> Option<usize> {
        if self.mask != 0 {
            let index = self.mask.trailing_zeros() as usize;
            self.mask &= self.mask - 1;
            return Some(index);
        }
        if verbs.len() > MASKED { self.search(verbs) } else { None }
    }

    #[cold]
    fn search(&mut self, verbs: &[Verb]) -> Option<usize> {
        let rest = verbs.get(self.next..)?;
        let found = self.next + rest.iter().position(|verb| verb.target.node() == self.node)?;
        self.next = found + 1;
        Some(found)
    }
}

/// A verb that is not fully executed yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// The position of the pending verb among the flight's verbs.
    pub(crate) verb: u32,
    /// For a READ or WRITE: the lines still to be executed, counted from the verb's first line. An
    /// atomic has one line.
    pub(crate) lines: Vec<u16>,
}

/// The interest that a coroutine has in a flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// A coroutine will fetch the results of the flight.
    Awaited,
    /// No coroutine will fetch the results of the flight, but a coroutine may ask whether the flight is
    /// done.
    Detached,
    /// No coroutine is interested in the flight any more.
    Abandoned,
}

/// The number of batches that a flight stores inline. Further batches are on the heap.
const FEW: usize = 4;

/// A round's batches, in the order in which the round first names their nodes.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Batches {
    few: [Batch; FEW],
    more: Vec<Batch>,
    len: u32,
}

impl Batches {
    fn new() -> Batches {
        Batches { few: [Batch::none(NodeSlot(0)); FEW], len: 0, more: Vec::new() }
    }

    /// The number of batches.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> &Batch {
        let index = index as usize;
        if index < FEW { &self.few[index] } else { &self.more[index - FEW] }
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Batch {
        let index = index as usize;
        if index < FEW { &mut self.few[index] } else { &mut self.more[index - FEW] }
    }

    #[inline(always)]
    fn clear(&mut self) {
        self.len = 0;
        if !self.more.is_empty() {
            self.more.clear();
        }
    }

    /// Returns the batch of `node`. If the round has no batch for this node yet, the function adds one.
    #[inline(always)]
    fn of(&mut self, node: NodeSlot) -> &mut Batch {
        let len = self.len as usize;
        for at in 0..FEW {
            if at == len {
                self.len += 1;
                self.few[at] = Batch::none(node);
            }
            if self.few[at].node == node {
                return &mut self.few[at];
            }
        }
        self.of_many(node)
    }

    /// Like `of`, for a node whose batch is not among the first few.
    #[cold]
    fn of_many(&mut self, node: NodeSlot) -> &mut Batch {
        let known = self.more.iter().position(|batch| batch.node == node);
        let at = known.unwrap_or_else(|| {
            self.more.push(Batch::none(node));
            self.len += 1;
            self.more.len() - 1
        });
        &mut self.more[at]
    }
}

/// A round in flight.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Flight {
    pub(crate) batches: Batches,
    generation: u32,
    /// The time at which the processor sees the last one of the answers so far.
    pub(crate) done_ps: u64,
    pub(crate) thread: u32,
    pub(crate) unanswered: u32,
    /// The coroutine that the scheduler polls when the flight is done.
    pub(crate) waiter: Option<u32>,
    pub(crate) interest: Interest,
    pub(crate) is_done: bool,
    /// The place of each verb's bytes in simulated memory.
    places: Vec<Place>,
    /// The round that was posted, or a copy of that round. An unused flight holds an idle round.
    round: RoundBox,
    pub(crate) error: Option<FabricError>,
    /// Only in random mode: for each batch the verbs still to be executed, in the order of the round.
    pub(crate) pending: Vec<Vec<Pending>>,
}

/// The number of bytes in the part of a flight that every round uses. Only random mode uses the rest.
const HOT_BYTES: usize = std::mem::offset_of!(Flight, pending);

/// A round that can be printed for debugging.
struct RoundBox(Round);

impl std::fmt::Debug for RoundBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.verbs().fmt(f)
    }
}

impl Reused for Flight {
    fn unused() -> Flight {
        Flight {
            done_ps: 0,
            generation: 0,
            thread: 0,
            unanswered: 0,
            waiter: None,
            interest: Interest::Abandoned,
            is_done: false,
            batches: Batches::new(),
            places: Vec::new(),
            error: None,
            round: RoundBox(Round::new()),
            pending: Vec::new(),
        }
    }

    #[inline(always)]
    fn generation(&self) -> u32 {
        self.generation
    }

    #[inline(always)]
    fn set_generation(&mut self, generation: u32) {
        self.generation = generation;
    }
}

impl Flight {
    /// Returns the ticket that the owner of the round keeps, if the flight's place is `index`.
    #[inline(always)]
    pub(crate) fn ticket(&self, index: u32) -> u64 {
        slab::ticket(self, index)
    }

    /// The flight's verbs.
    #[inline(always)]
    pub(crate) fn verbs(&self) -> &[Verb] {
        self.round.0.verbs()
    }

    /// The flight's verbs, the data into which their `buffer` points, and their places in simulated
    /// memory.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut [Verb], &mut [u64], &[Place]) {
        let (verbs, data) = self.round.0.parts_mut();
        (verbs, data, &self.places)
    }

    /// Sorts the round's verbs into batches, one for each node, and finds their places.
    #[inline(always)]
    fn plan(&mut self, costs: &Costs, placement: Placement, memory: &Memory) {
        let verbs = self.round.0.verbs();
        let batches = &mut self.batches;
        batches.clear();
        self.places.clear();
        let mut bit = 1u64;
        self.places.extend(verbs.iter().map(|verb| {
            let batch = batches.of(verb.target.node());
            batch.verbs += 1;
            batch.mask |= bit;
            // After 64 shifts the value of `bit` is 0, so the verbs after the first 64 verbs set no
            // bit.
            bit <<= 1;
            batch.writes += u32::from(verb.kind_number() == VerbKind::Write as usize);
            batch.fetched += u32::from(costs.is_fetched(verb));
            batch.request_bytes += costs.request_bytes(verb) as u32;
            let place = placement.place(memory, verb);
            memory.prefetch_entry(place);
            place
        }));
        self.unanswered = batches.len;
        if self.round.0.rings_each() {
            self.count_rings();
        }
    }

    /// Counts the doorbells of a requester that rings for each verb that has not joined an earlier one. A READ joins
    /// an atomic or READ directly before it if both begin in the same line, as the lock and the READ of one record do.
    #[cold]
    fn count_rings(&mut self) {
        let Flight { batches, round, .. } = self;
        let verbs = round.0.verbs();
        let line = |verb: &Verb| {
            (verb.target.node(), verb.target.address().offset_bytes() / LINE_BYTES as u64)
        };
        for (at, verb) in verbs.iter().enumerate() {
            let follows = verb.is(VerbKind::Read)
                && at.checked_sub(1).is_some_and(|before| {
                    !verbs[before].is(VerbKind::Write) && line(&verbs[before]) == line(verb)
                });
            if !(follows || verb.has(Verb::JOINED)) {
                let batch = batches.of(verb.target.node());
                batch.more_rings = batch.more_rings.saturating_add(1);
            }
        }
        for index in 0..batches.len {
            let batch = batches.get_mut(index);
            batch.more_rings = batch.more_rings.saturating_sub(1);
        }
    }

    /// Returns the number of completions that the requester's processor finds: one for each doorbell.
    #[inline(always)]
    pub(crate) fn completions(&self) -> u64 {
        let batches = u64::from(self.batches.len);
        match self.round.0.rings_each() {
            false => batches,
            true => batches + self.more_completions(),
        }
    }

    #[cold]
    fn more_completions(&self) -> u64 {
        (0..self.batches.len).map(|at| u64::from(self.batches.get(at).more_rings)).sum()
    }

    /// Gives the round back to its owner, with its results.
    #[inline]
    pub(crate) fn hand_over(&mut self, round: &mut Round) {
        std::mem::swap(&mut self.round.0, round);
    }

    /// Gives the round back to its owner before the round is done.
    pub(crate) fn give_up(&mut self, round: &mut Round) {
        std::mem::swap(&mut self.round.0, round);
        if !self.is_done {
            self.round.0.copy_from(round);
        }
        (self.interest, self.waiter) = (Interest::Abandoned, None);
    }

    /// Takes away the places of all verbs, so that verbs that have not landed will never land.
    pub(crate) fn forget_places(&mut self) {
        self.places.fill(Place::NOWHERE);
    }

    /// Takes a batch's verbs that are still to be executed. The caller must put these verbs back.
    pub(crate) fn take_pending(&mut self, batch: u32) -> Vec<Pending> {
        if self.pending.len() <= batch as usize {
            self.pending.resize_with(batch as usize + 1, Vec::new);
        }
        std::mem::take(&mut self.pending[batch as usize])
    }

    /// Counts one more batch as answered. The processor sees the answer at `at_ps`. When the last batch
    /// is answered, the function returns the time at which the processor has seen all answers.
    #[inline(always)]
    pub(crate) fn answered(&mut self, at_ps: u64) -> Option<u64> {
        self.done_ps = self.done_ps.max(at_ps);
        self.unanswered -= 1;
        (self.unanswered == 0).then_some(self.done_ps)
    }

    pub(crate) fn fail(&mut self, error: FabricError) {
        self.error.get_or_insert(error);
    }
}

/// All rounds in flight.
#[derive(Default, Debug)]
pub(crate) struct Flights {
    all: Slab<Flight>,
}

impl Flights {
    /// Takes a place for `round`. The place holds an awaited round itself, or a copy of a round that is
    /// not awaited.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        round: &mut Round,
        thread: u32,
        waiter: Option<u32>,
        interest: Interest,
        (costs, placement, memory): (&Costs, Placement, &Memory),
    ) -> u32 {
        let index = self.all.take();
        let flight = self.all.get_mut(index);
        if interest == Interest::Awaited {
            std::mem::swap(&mut flight.round.0, round);
        } else {
            flight.round.0.copy_from(round);
        }
        flight.plan(costs, placement, memory);
        (flight.thread, flight.waiter, flight.interest) = (thread, waiter, interest);
        (flight.done_ps, flight.is_done, flight.error) = (0, false, None);
        index
    }

    #[inline(always)]
    pub(crate) fn get(&mut self, index: u32) -> &mut Flight {
        self.all.get_mut(index)
    }

    /// Prefetches the flight itself into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        prefetch_range(std::ptr::from_ref(self.all.get(index)).cast(), HOT_BYTES);
    }

    /// Prefetches the flight's verbs, up to the number of verbs that most rounds have. The flight
    /// itself should be in the cache before this call. Returns the coroutine that waits for the flight.
    #[inline(always)]
    pub(crate) fn prefetch_verbs(&self, index: u32) -> Option<u32> {
        let flight = self.all.get(index);
        prefetch_range(flight.verbs().as_ptr().cast(), 8 * size_of::<Verb>());
        flight.waiter
    }

    /// Prefetches the memory for the results of the flight's READs. The flight's verbs should be in the
    /// cache before this call. The results of other verbs are not needed. Nevertheless the function
    /// prefetches the results of all verbs, because distinguishing the verbs would take longer.
    #[inline(always)]
    pub(crate) fn prefetch_results(&mut self, index: u32) {
        let (verbs, data, _) = self.all.get_mut(index).parts();
        for verb in verbs {
            prefetch(data, verb.buffer().0 as usize / 8);
        }
    }

    /// Prefetches the lines of simulated memory that the flight's verbs will use.
    #[inline(always)]
    pub(crate) fn prefetch_lines(&self, index: u32, memory: &Memory) {
        let Some(flight) = self.all.look(index) else { return };
        flight.places.iter().for_each(|place| memory.prefetch_lines(*place));
    }

    /// Returns the ticket that the owner of a round keeps.
    #[inline]
    pub(crate) fn ticket(&self, index: u32) -> u64 {
        self.all.ticket(index)
    }

    /// Returns the place that a ticket names, unless another flight has used the place since.
    #[inline]
    pub(crate) fn find(&self, ticket: u64) -> Option<u32> {
        self.all.find(ticket)
    }

    /// Returns the tickets of a thread's detached rounds that are in flight.
    pub(crate) fn detached_of(&self, thread: u32) -> Vec<u64> {
        self.all.tickets(|flight| {
            flight.thread == thread && flight.interest == Interest::Detached && !flight.is_done
        })
    }

    /// Returns the number of a thread's dropped rounds that are in flight.
    pub(crate) fn dropped_of(&self, thread: u32) -> usize {
        let is_it = |flight: &Flight| {
            flight.thread == thread && flight.interest == Interest::Abandoned && !flight.is_done
        };
        self.all.tickets(is_it).len()
    }

    /// Ends the flight and gives its place back.
    #[inline]
    pub(crate) fn end(&mut self, index: u32) {
        debug_assert!(self.all.get(index).is_done);
        self.all.give_back(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_fabric::address::{Address, GroupId};

    #[test]
    fn a_requester_that_rings_each_verb_rings_once_for_a_lock_and_its_read() {
        let (one, other) = (NodeSlot(0), NodeSlot(1));
        let at = |line: u64, node| Address::new(GroupId(0), line * 64).at(node);
        let mut flight = Flight::unused();
        let round = &mut flight.round.0;
        round.ring_each(true);
        round.cas(at(1, one), 0, 7);
        round.read(at(1, one), 64);
        round.read(at(2, one), 64);
        round.cas(at(3, other), 0, 7);
        let log = round.reserve(64);
        round.write(at(4, one), log, 64);
        round.write(at(4, other), log, 64);
        round.join_doorbells(5);
        let ends: Vec<NodeSlot> = round.verbs().iter().map(|verb| verb.target.node()).collect();
        ends.into_iter().for_each(|node| flight.batches.of(node).verbs += 1);
        flight.count_rings();
        let more = |index| flight.batches.get(index).more_rings;
        assert_eq!(
            (more(0), more(1)),
            (2, 0),
            "lock and READ, READ, log; lock with a joined WRITE"
        );
        assert_eq!(flight.completions(), 2 + 2);
    }
}
