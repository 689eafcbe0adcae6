//! Rounds on their way.
//!
//! Invariant: a round that somebody awaits is here itself, not a copy: its coroutine cannot touch it
//! before it is done, and holds an idle one in its place until then. So a READ lands where it will be
//! looked at. A round that is given up, or that nobody awaits, goes back to its owner at once; what is
//! still to be done of it is copied. Places and tickets are a [`Slab`]'s.

use crate::costs::Costs;
use crate::effects::Placement;
use crate::memory::{Memory, Place};
use crate::prefetch::{prefetch, prefetch_range};
use crate::slab::{Reused, Slab};
use tarn_fabric::address::NodeSlot;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{Round, Verb};

/// What one round asks of one node: two of them are a line.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Batch {
    /// Its number on its connection, from 1.
    pub(crate) number: u64,
    /// Which of the flight's first 64 verbs are its own.
    pub(crate) mask: u64,
    pub(crate) verbs: u32,
    /// Of these, WRITEs whose bytes the NIC fetches by itself.
    pub(crate) fetched: u32,
    /// Bytes of its requests on the wire.
    pub(crate) request_bytes: u32,
    pub(crate) node: NodeSlot,
    /// Random mode: all of it has landed, or never will.
    pub(crate) is_done: bool,
}

const _: () = assert!(size_of::<Batch>() == 32);

impl Batch {
    fn none(node: NodeSlot) -> Batch {
        Batch { number: 0, mask: 0, verbs: 0, fetched: 0, request_bytes: 0, node, is_done: false }
    }

    /// The positions of its verbs in order, one a call.
    #[inline(always)]
    pub(crate) fn mine(&self) -> Mine {
        Mine { mask: self.mask, node: self.node, next: MASKED }
    }
}

/// So many verbs of a flight are found by a batch's mask; later ones are looked for.
const MASKED: usize = 64;

/// See [`Batch::mine`].
pub(crate) struct Mine {
    mask: u64,
    node: NodeSlot,
    next: usize,
}

impl Mine {
    /// The next position, `verbs` being all of the flight.
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

/// A verb of which something is still to be done.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// Position among the flight's verbs.
    pub(crate) verb: u32,
    /// READ, WRITE: the lines to do, counted from the verb's first. Atomics: one.
    pub(crate) lines: Vec<u16>,
}

/// Who is interested in a flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interest {
    /// Somebody will fetch its results.
    Awaited,
    /// Nobody will, but somebody may ask whether it is done.
    Detached,
    /// Nobody any more.
    Abandoned,
}

/// Batches that a flight holds in itself; those of more nodes are on the heap.
const FEW: usize = 4;

/// A round's batches, in the order in which their nodes are first asked.
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

    /// How many there are.
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

    /// The batch of `node`, a new one if there is none.
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

/// A round on its way.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Flight {
    pub(crate) batches: Batches,
    generation: u32,
    /// When the last answer so far is seen.
    pub(crate) done_ps: u64,
    pub(crate) thread: u32,
    pub(crate) unanswered: u32,
    /// Which coroutine is to be polled when it is done.
    pub(crate) waiter: Option<u32>,
    pub(crate) interest: Interest,
    pub(crate) is_done: bool,
    /// Where each verb's bytes lie.
    places: Vec<Place>,
    /// The round that was posted, or a copy of it; else an idle one.
    round: RoundBox,
    pub(crate) error: Option<FabricError>,
    /// Random mode: of each batch what is still to be done, in the order in which it was asked for.
    pub(crate) pending: Vec<Vec<Pending>>,
}

/// So much of a flight is used by every round.
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
    /// Its verbs.
    #[inline(always)]
    pub(crate) fn verbs(&self) -> &[Verb] {
        self.round.0.verbs()
    }

    /// Its verbs, what their `buffer` points into, and where in the simulated memory they go.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut [Verb], &mut [u64], &[Place]) {
        let (verbs, data) = self.round.0.parts_mut();
        (verbs, data, &self.places)
    }

    /// Counts what the round asks of each node, and finds the places that it names.
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
            // After 64 verbs there is none left.
            bit <<= 1;
            batch.fetched += u32::from(costs.is_fetched(verb));
            batch.request_bytes += costs.request_bytes(verb) as u32;
            let place = placement.place(memory, verb);
            memory.prefetch_entry(place);
            place
        }));
        self.unanswered = batches.len;
    }

    /// Gives the round that was posted back to its owner, with its results.
    #[inline]
    pub(crate) fn hand_over(&mut self, round: &mut Round) {
        std::mem::swap(&mut self.round.0, round);
    }

    /// The owner wants the round back before it is done.
    pub(crate) fn give_up(&mut self, round: &mut Round) {
        std::mem::swap(&mut self.round.0, round);
        if !self.is_done {
            self.round.0.copy_from(round);
        }
        (self.interest, self.waiter) = (Interest::Abandoned, None);
    }

    /// Whatever of it has not landed never will: it has nowhere to go.
    pub(crate) fn forget_places(&mut self) {
        self.places.fill(Place::NOWHERE);
    }

    /// What is still to be done of a batch, to be put back.
    pub(crate) fn take_pending(&mut self, batch: u32) -> Vec<Pending> {
        if self.pending.len() <= batch as usize {
            self.pending.resize_with(batch as usize + 1, Vec::new);
        }
        std::mem::take(&mut self.pending[batch as usize])
    }

    /// One more batch is answered, seen at `at_ps`; when all of them are, if it was the last.
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

/// All rounds on their way.
#[derive(Default, Debug)]
pub(crate) struct Flights {
    all: Slab<Flight>,
}

impl Flights {
    /// A place for `round`: for itself, if it is awaited, and else for a copy.
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

    /// Brings the flight itself.
    #[inline(always)]
    pub(crate) fn prefetch(&self, index: u32) {
        prefetch_range(std::ptr::from_ref(self.all.get(index)).cast(), HOT_BYTES);
    }

    /// Brings its verbs, as many as a round mostly has; the flight itself should be there by now. Which
    /// coroutine waits for it.
    #[inline(always)]
    pub(crate) fn prefetch_verbs(&self, index: u32) -> Option<u32> {
        let flight = self.all.get(index);
        prefetch_range(flight.verbs().as_ptr().cast(), 8 * size_of::<Verb>());
        flight.waiter
    }

    /// Brings what its READs have brought; its verbs should be there by now. That of the other verbs is
    /// not asked for, but to tell them apart takes longer than to bring it.
    #[inline(always)]
    pub(crate) fn prefetch_results(&mut self, index: u32) {
        let (verbs, data, _) = self.all.get_mut(index).parts();
        for verb in verbs {
            prefetch(data, verb.buffer().0 as usize / 8);
        }
    }

    /// Brings the lines of simulated memory that its verbs will use.
    #[inline(always)]
    pub(crate) fn prefetch_lines(&self, index: u32, memory: &Memory) {
        let Some(flight) = self.all.look(index) else { return };
        flight.places.iter().for_each(|place| memory.prefetch_lines(*place));
    }

    /// What a round's owner remembers.
    #[inline]
    pub(crate) fn ticket(&self, index: u32) -> u64 {
        self.all.ticket(index)
    }

    /// The place of a ticket, unless it is another's by now.
    #[inline]
    pub(crate) fn find(&self, ticket: u64) -> Option<u32> {
        self.all.find(ticket)
    }

    /// Rounds of a thread that are on their way and that nobody waits for.
    pub(crate) fn detached_of(&self, thread: u32) -> Vec<u64> {
        self.all.tickets(|flight| {
            flight.thread == thread && flight.interest == Interest::Detached && !flight.is_done
        })
    }

    /// How many rounds of a thread are on their way that were dropped.
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
