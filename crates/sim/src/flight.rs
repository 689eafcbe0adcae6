//! Rounds on their way: copies of their verbs and bytes, kept until the last answer is fetched.
//!
//! Invariant: a flight's place is given to another round only when every batch has been answered and
//! nobody will ask for the result; a ticket holds the place and its generation, so that an old ticket
//! never names a new flight. Places keep their room: nothing is allocated in steady state.

use crate::prefetch::prefetch_all;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{BufferOffset, Round, Verb, VerbKind};

/// What one round asks of one node.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) node: NodeSlot,
    pub(crate) verbs: u32,
    /// Its number on its connection, from 1.
    pub(crate) number: u64,
    /// Random mode: what is still to be done, in the order in which it was asked for.
    pub(crate) pending: Vec<Pending>,
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

/// A round on its way.
#[derive(Debug)]
pub(crate) struct Flight {
    generation: u32,
    pub(crate) thread: u32,
    /// Which coroutine is to be polled when it is done.
    pub(crate) waiter: Option<u32>,
    pub(crate) interest: Interest,
    /// As posted, but for `buffer`, which is a position in `data`.
    pub(crate) verbs: Vec<Verb>,
    /// Bytes of READs and WRITEs and masks of masked CAS, each from a word on.
    pub(crate) data: Vec<u64>,
    pub(crate) batches: Vec<Batch>,
    pub(crate) unanswered: u32,
    /// When the last answer so far is seen.
    pub(crate) done_ps: u64,
    pub(crate) is_done: bool,
    pub(crate) error: Option<FabricError>,
}

impl Flight {
    fn new() -> Flight {
        Flight {
            generation: 0,
            thread: 0,
            waiter: None,
            interest: Interest::Abandoned,
            verbs: Vec::new(),
            data: Vec::new(),
            batches: Vec::new(),
            unanswered: 0,
            done_ps: 0,
            is_done: false,
            error: None,
        }
    }

    /// Copies what the round asks for.
    fn load(&mut self, round: &Round) {
        self.verbs.clear();
        self.data.clear();
        self.batches.clear();
        for verb in round.verbs() {
            let at = self.data.len();
            let copy = verb.moved_to(BufferOffset((at * 8) as u32));
            let len = payload_bytes(verb);
            self.data.resize(at + len.div_ceil(8), 0);
            if verb.kind() != VerbKind::Read && len > 0 {
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.data[at..]);
                bytes[..len].copy_from_slice(round.bytes(verb.buffer(), len));
            }
            self.verbs.push(copy);
            let node = verb.target.node();
            match self.batches.iter_mut().find(|batch| batch.node == node) {
                Some(batch) => batch.verbs += 1,
                None => self.batches.push(Batch { node, verbs: 1, number: 0, pending: Vec::new() }),
            }
        }
        self.unanswered = self.batches.len() as u32;
    }

    /// Copies the results into the round that was posted.
    pub(crate) fn hand_over(&self, round: &mut Round) {
        for (index, verb) in self.verbs.iter().enumerate() {
            match verb.kind() {
                VerbKind::Read => {
                    let (at, len) = (verb.buffer().0 as usize, verb.len_bytes());
                    let to = round.verbs()[index].buffer();
                    let bytes: &[u8] = bytemuck::cast_slice(&self.data);
                    round.bytes_mut(to, len).copy_from_slice(&bytes[at..at + len]);
                }
                VerbKind::Write => {}
                _ => round.parts_mut().0[index].value = verb.value,
            }
        }
    }

    pub(crate) fn fail(&mut self, error: FabricError) {
        self.error.get_or_insert(error);
    }
}

fn payload_bytes(verb: &Verb) -> usize {
    match verb.kind() {
        VerbKind::Read | VerbKind::Write => verb.len_bytes(),
        VerbKind::MaskedCompareAndSwap => 16,
        _ => 0,
    }
}

/// All rounds on their way.
#[derive(Default, Debug)]
pub(crate) struct Flights {
    all: Vec<Flight>,
    free: Vec<u32>,
}

impl Flights {
    /// A place for `round`.
    pub(crate) fn begin(
        &mut self,
        round: &Round,
        thread: u32,
        waiter: Option<u32>,
        interest: Interest,
    ) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.all.push(Flight::new());
            self.all.len() as u32 - 1
        });
        let flight = &mut self.all[index as usize];
        flight.load(round);
        (flight.thread, flight.waiter, flight.interest) = (thread, waiter, interest);
        (flight.done_ps, flight.is_done, flight.error) = (0, false, None);
        index
    }

    #[inline]
    pub(crate) fn get(&mut self, index: u32) -> &mut Flight {
        &mut self.all[index as usize]
    }

    /// Brings the flight itself.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        let flight: &[Flight] = &self.all[index as usize..][..1];
        prefetch_all(flight);
    }

    /// Brings what it holds; the flight itself should be there by now.
    #[inline]
    pub(crate) fn prefetch_contents(&self, index: u32) {
        let flight = &self.all[index as usize];
        prefetch_all(&flight.verbs);
        prefetch_all(&flight.data[..flight.data.len().min(64)]);
        prefetch_all(&flight.batches);
    }

    /// What a round's owner remembers.
    pub(crate) fn ticket(&self, index: u32) -> u64 {
        u64::from(self.all[index as usize].generation) << 32 | u64::from(index)
    }

    /// The place of a ticket, unless it is another's by now.
    pub(crate) fn find(&self, ticket: u64) -> Option<u32> {
        let (index, generation) = (ticket as u32, (ticket >> 32) as u32);
        let flight = self.all.get(index as usize)?;
        (flight.generation == generation).then_some(index)
    }

    /// Gives the place back.
    pub(crate) fn end(&mut self, index: u32) {
        let flight = &mut self.all[index as usize];
        debug_assert!(flight.is_done);
        flight.generation = flight.generation.wrapping_add(1);
        self.free.push(index);
    }
}
