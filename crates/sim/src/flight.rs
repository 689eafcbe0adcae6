//! Rounds in flight.
//!
//! Invariant: an awaited round itself is kept here, not a copy. Its coroutine cannot touch it before it
//! is done, and holds an idle round in its place until then. So a READ brings its data to where the
//! coroutine reads it. A detached or dropped round goes back to its owner at once, and the verbs that
//! are still to be executed are copied. Places and tickets are a [`Slab`]'s.

use crate::costs::Costs;
use crate::effects::Placement;
use crate::memory::{Memory, Place};
use crate::prefetch::{prefetch, prefetch_range};
use crate::slab::{Reused, Slab};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{Round, Verb};

/// The verbs of one round for one node. Two batches fill a line of this machine.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Batch {
    /// The number of the batch on its connection, from 1.
    pub(crate) number: u64,
    /// The batch's verbs among the flight's first 64, a bit each.
    pub(crate) mask: u64,
    pub(crate) verbs: u32,
    /// Of these, WRITEs whose bytes the NIC fetches by a DMA of its own.
    pub(crate) fetched: u32,
    /// Bytes of its requests on the wire.
    pub(crate) request_bytes: u32,
    pub(crate) node: NodeSlot,
    /// Random mode: all verbs have landed, or the rest never will.
    pub(crate) is_done: bool,
}

const _: () = assert!(size_of::<Batch>() == 32);

impl Batch {
    fn none(node: NodeSlot) -> Batch {
        Batch { number: 0, mask: 0, verbs: 0, fetched: 0, request_bytes: 0, node, is_done: false }
    }

    /// Iterates over the positions of its verbs in order, one a call.
    #[inline(always)]
    pub(crate) fn mine(&self) -> Mine {
        Mine { mask: self.mask, node: self.node, next: MASKED }
    }
}

/// The first this many verbs of a flight are found by a batch's mask; later ones by a search.
const MASKED: usize = 64;

/// See [`Batch::mine`].
pub(crate) struct Mine {
    mask: u64,
    node: NodeSlot,
    next: usize,
}

impl Mine {
    /// The next position; `verbs` are all verbs of the flight.
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
    /// Position among the flight's verbs.
    pub(crate) verb: u32,
    /// READ, WRITE: the lines still to be executed, counted from the verb's first. Atomics: one.
    pub(crate) lines: Vec<u16>,
}

/// The interest that a coroutine has in a flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// A coroutine will fetch its results.
    Awaited,
    /// No coroutine will fetch its results, but one may ask whether it is done.
    Detached,
    /// No coroutine is interested in it any more.
    Abandoned,
}

/// Number of batches that a flight holds in itself; further ones are on the heap.
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

    /// Number of batches.
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

    /// Returns the batch of `node`; adds one if there is none.
    #[inline(always)]
    fn of(&mut self, node: NodeSlot) -> &mut Batch {
        let len = self.len;
        let known = (0..len).find(|index| self.get(*index).node == node);
        let index = known.unwrap_or_else(|| {
            let batch = Batch::none(node);
            match self.few.get_mut(len as usize) {
                Some(place) => *place = batch,
                None => self.more.push(batch),
            }
            self.len = len + 1;
            len
        });
        self.get_mut(index)
    }
}

/// A round in flight.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Flight {
    pub(crate) batches: Batches,
    generation: u32,
    /// The time at which the last answer so far is seen.
    pub(crate) done_ps: u64,
    pub(crate) thread: u32,
    pub(crate) unanswered: u32,
    /// The coroutine to be polled when the flight is done.
    pub(crate) waiter: Option<u32>,
    pub(crate) interest: Interest,
    pub(crate) is_done: bool,
    /// The place of each verb's bytes.
    places: Vec<Place>,
    /// The round that was posted, or a copy of it; else an idle one.
    round: RoundBox,
    pub(crate) error: Option<FabricError>,
    /// Random mode: for each batch the verbs still to be executed, in the order of the round.
    pub(crate) pending: Vec<Vec<Pending>>,
}

/// Size of the part of a flight that every round uses.
const HOT_BYTES: usize = std::mem::offset_of!(Flight, pending);

/// A round that can be printed.
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
            // After 64 verbs no bit is left.
            bit <<= 1;
            batch.fetched += u32::from(costs.is_fetched(verb));
            batch.request_bytes += costs.request_bytes(verb) as u32;
            let place = placement.place(memory, verb);
            memory.prefetch_entry(place);
            place
        }));
        self.unanswered = batches.len;
    }

    /// Gives the round back to its owner, with its results.
    #[inline]
    pub(crate) fn hand_over(&mut self, round: &mut Round) {
        std::mem::swap(&mut self.round.0, round);
    }

    /// Gives the round back to its owner before it is done.
    pub(crate) fn give_up(&mut self, round: &mut Round) {
        std::mem::swap(&mut self.round.0, round);
        if !self.is_done {
            self.round.0.copy_from(round);
        }
        (self.interest, self.waiter) = (Interest::Abandoned, None);
    }

    /// Takes away the places: verbs that have not landed never will.
    pub(crate) fn forget_places(&mut self) {
        self.places.fill(Place::NOWHERE);
    }

    /// Takes a batch's verbs that are still to be executed. The caller puts them back.
    pub(crate) fn take_pending(&mut self, batch: u32) -> Vec<Pending> {
        if self.pending.len() <= batch as usize {
            self.pending.resize_with(batch as usize + 1, Vec::new);
        }
        std::mem::take(&mut self.pending[batch as usize])
    }

    /// One more batch is answered, and the answer is seen at `at_ps`. If it was the last, returns when
    /// all of them are seen.
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
    /// Takes a place for `round`. An awaited round itself is kept, otherwise a copy.
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

    /// Prefetches the flight itself.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        prefetch_range(std::ptr::from_ref(self.all.get(index)).cast(), HOT_BYTES);
    }

    /// Prefetches the flight's verbs, as many as most rounds have. The flight itself should be in the
    /// cache by now. Returns the coroutine that waits for it.
    #[inline(always)]
    pub(crate) fn prefetch_verbs(&self, index: u32) -> Option<u32> {
        let flight = self.all.get(index);
        prefetch_range(flight.verbs().as_ptr().cast(), 8 * size_of::<Verb>());
        flight.waiter
    }

    /// Prefetches the results of its READs; its verbs should be in the cache by now. The results of
    /// other verbs are not needed, but telling them apart takes longer than prefetching them.
    #[inline(always)]
    pub(crate) fn prefetch_results(&mut self, index: u32) {
        let (verbs, data, _) = self.all.get_mut(index).parts();
        for verb in verbs {
            prefetch(data, verb.buffer().0 as usize / 8);
        }
    }

    /// Prefetches the lines of simulated memory that its verbs will use.
    #[inline(always)]
    pub(crate) fn prefetch_lines(&self, index: u32, memory: &Memory) {
        let Some(flight) = self.all.look(index) else { return };
        flight.places.iter().for_each(|place| memory.prefetch_lines(*place));
    }

    /// Returns the ticket that a round's owner keeps.
    #[inline]
    pub(crate) fn ticket(&self, index: u32) -> u64 {
        self.all.ticket(index)
    }

    /// Returns the place of a ticket, unless the place has been reused since.
    #[inline]
    pub(crate) fn find(&self, ticket: u64) -> Option<u32> {
        self.all.find(ticket)
    }

    /// A thread's detached rounds that are in flight.
    pub(crate) fn detached_of(&self, thread: u32) -> Vec<u64> {
        self.all.tickets(|flight| {
            flight.thread == thread && flight.interest == Interest::Detached && !flight.is_done
        })
    }

    /// How many dropped rounds of a thread are in flight.
    pub(crate) fn dropped_of(&self, thread: u32) -> usize {
        let is_it = |flight: &Flight| {
            flight.thread == thread && flight.interest == Interest::Abandoned && !flight.is_done
        };
        self.all.tickets(is_it).len()
    }

    /// Gives the place back.
    #[inline]
    pub(crate) fn end(&mut self, index: u32) {
        debug_assert!(self.all.get(index).is_done);
        self.all.give_back(index);
    }
}
