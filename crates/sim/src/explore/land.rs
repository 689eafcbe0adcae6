//! The effects of a transition: pieces land, a node loses its access, or a node dies.
//!
//! Invariant: no code in this file polls a coroutine. The code sets the status of a coroutine to
//! `Ready` if something new has happened for the coroutine. The code that drives the machine decides
//! when this coroutine is polled.

use super::actor::Fault;
use super::config::Planted;
use super::flight::{Interest, part};
use super::hash::{chain, mix, of_bytes};
use super::machine::{Machine, Status};
use super::memory::{LINE_WORDS, Memory};
use super::messages::Message;
use super::trace::What;
use tarn_fabric::address::{LINE_BYTES, NodeId, NodeSlot};
use tarn_fabric::backend::Endpoint;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::{Round, Verb, VerbKind};

/// The time by which the clock of an actor advances when no actor can do anything except wait.
const STALL_NS: u64 = 1_000_000_000;

/// The effect of one access on memory.
struct Access {
    at: usize,
    len_bytes: usize,
    /// For an atomic: the word before the access.
    found: u64,
    changed: bool,
}

impl Machine {
    /// Executes one line of a READ or WRITE, one atomic, or a revocation.
    pub(crate) fn land(&mut self, index: u32, batch: usize, position: usize, line: u16) {
        let flight = self.flights.get_mut(index);
        let (actor, number) = (flight.actor, flight.number);
        self.footprint.round(actor, number);
        if let Some(whom) = flight.revokes {
            let at = flight.batches()[batch].node;
            flight.batch_mut(batch).pending.clear();
            self.batch_done(index);
            return self.revoke(actor, whom, at);
        }
        let pending = &mut flight.batch_mut(batch).pending;
        let verb_index = pending[position].verb;
        pending[position].lines &= !(1 << line);
        if pending[position].lines == 0 {
            pending.remove(position);
        }
        let is_done = pending.is_empty();
        self.execute_piece(index, verb_index, line);
        if is_done {
            self.batch_done(index);
        }
    }

    fn execute_piece(&mut self, index: u32, verb_index: u16, line: u16) {
        let flight = self.flights.get(index);
        if self.watches_in_vain(&flight.round.verbs()[usize::from(verb_index)]) {
            // The READ is executed because nothing else can happen, so the order of this step and the
            // next step matters.
            self.actors[usize::from(flight.actor)].clock += STALL_NS;
            if !self.config.reduction.has(Planted::StallsForgotten) {
                self.footprint.actor(u64::MAX);
            }
        }
        let reduction = self.config.reduction;
        let flight = self.flights.get_mut(index);
        let (actor, number) = (flight.actor, flight.number);
        let (posted, phase) = (flight.posted_step, flight.phase);
        let (verbs, data) = flight.round.parts_mut();
        let verb = &mut verbs[usize::from(verb_index)];
        let range = if is_transfer(verb) { part(verb, line) } else { 0..8 };
        let target = verb.target.plus(range.start);
        let place = self.memory.place(verb.target, verb.len_bytes()).expect("checked when posted");
        let words = (place + range.start) / 8..(place + range.end).div_ceil(8);
        let mut before = [0; LINE_WORDS];
        let is_traced = self.trace.is_some();
        if is_traced {
            let seen = self.memory.touched(words.start * 8, words.len() * 8);
            before[..seen.len()].copy_from_slice(seen);
        }
        let access = execute(&mut self.memory, place, verb, data, range);
        let seen = match verb.kind() {
            VerbKind::Write => mix(0, 0x771),
            VerbKind::Read if reduction.has(Planted::SeenForgotten) => 0,
            VerbKind::Read => of_bytes(&bytemuck::cast_slice(data)[read_range(verb, line)]),
            _ => mix(access.found, 0xa70),
        };
        let kind = verb.kind();
        let name = u64::from(actor) << 48 | u64::from(number) << 24 | u64::from(verb_index) << 8;
        let landed = chain(mix(name, u64::from(line)), seen);
        flight.landed = flight.landed.wrapping_add(landed);
        self.add_landed(actor, landed);
        let line = Memory::line(access.at);
        self.sharing.touch(line, actor, access.changed);
        let forgets = self.config.reduction.has(Planted::LinesForgotten);
        if self.sharing.is_shared(line) && !forgets {
            self.footprint.line(line, access.changed);
        }
        if is_traced {
            let after = self.memory.touched(words.start * 8, words.len() * 8).to_vec();
            let what = What::Landed {
                round: number,
                verb: verb_index.into(),
                kind,
                target,
                len_bytes: access.len_bytes,
                posted,
                before: before[..after.len()].to_vec(),
                after,
            };
            self.note(Some(actor), what);
            if let Some(step) = self.trace.as_mut().and_then(|trace| trace.last_mut()) {
                step.phase = phase;
            }
        }
    }

    /// Ends a batch of a round. Either the whole batch was executed, or the rest of the batch will
    /// never be executed.
    pub(crate) fn batch_done(&mut self, index: u32) {
        let flight = self.flights.get_mut(index);
        flight.left -= 1;
        if !flight.is_done() {
            return;
        }
        let (actor, interest) = (flight.actor, flight.interest);
        if flight.is_waited_for {
            let state = &mut self.actors[usize::from(actor)];
            // The coroutine may have asked about this round and continued to its next transaction.
            // Such a coroutine is polled before its next transaction begins.
            if matches!(state.status, Status::Waiting | Status::AtGate) {
                state.status = Status::Ready;
            }
        }
        let flight = self.flights.get(index);
        let error = flight.error.filter(|_| interest == Interest::Detached);
        if matches!(interest, Interest::Detached | Interest::Abandoned) {
            if let Some(error) = error {
                self.errors.push((self.flights.ticket(index), error));
            }
            self.flights.end(index);
        }
    }

    /// Refuses the batches of a round that cannot be executed. A batch cannot be executed if its
    /// memory node refuses the sender or does not hold the addressed bytes.
    pub(crate) fn refuse_at_once(&mut self, index: u32) {
        let node = self.life_of(self.flights.get(index).actor).id;
        for batch in 0..self.flights.get(index).batches().len() {
            let flight = self.flights.get(index);
            let at = flight.batches()[batch].node;
            let is_round = flight.revokes.is_none();
            let mut mine =
                flight.round.verbs().iter().filter(|verb| is_round && verb.target.node() == at);
            let outside = mine
                .find(|verb| self.memory.place(verb.target, verb.len_bytes()).is_none())
                .map(|verb| FabricError::OutOfBounds(verb.target));
            if let Some(error) = self.refusal(node, at).or(outside) {
                self.cut(index, batch, error);
            }
        }
    }

    /// Cuts a batch: the rest of the batch will never be executed.
    fn cut(&mut self, index: u32, batch: usize, error: FabricError) {
        let flight = self.flights.get_mut(index);
        let (actor, number, at) = (flight.actor, flight.number, flight.batches()[batch].node);
        flight.batch_mut(batch).pending.clear();
        flight.error.get_or_insert(error);
        let kind = match error {
            FabricError::NodeDown(_) => 1,
            FabricError::Fenced => 2,
            _ => 3,
        };
        let name = u64::from(actor) << 48 | u64::from(number) << 24 | u64::from(at.0);
        let landed = mix(name ^ 0xc07 << 52, kind);
        flight.landed = flight.landed.wrapping_add(landed);
        self.add_landed(actor, landed);
        self.footprint.actor(1 << actor);
        self.note(Some(actor), What::Refused { round: number, at, error });
        self.batch_done(index);
    }

    /// Cuts all batches at a node that belong to actors for which `is_hit` holds. A coroutine that
    /// waits only for cut batches continues.
    fn cut_all(&mut self, at: NodeSlot, error: FabricError, is_hit: impl Fn(&Machine, u8) -> bool) {
        let mut next = 0;
        while let Some(&index) = self.flights.live.get(next) {
            let flight = self.flights.get(index);
            let hit = flight
                .batches()
                .iter()
                .position(|batch| batch.node == at && !batch.pending.is_empty());
            match hit.filter(|_| is_hit(self, flight.actor)) {
                // Cutting a batch may end its flight, and an ended flight leaves the list.
                Some(batch) => self.cut(index, batch, error),
                None => next += 1,
            }
        }
    }

    /// Revokes the access of `whom` at `at`: from now on the memory node `at` executes no verb of
    /// `whom`.
    fn revoke(&mut self, by: u8, whom: NodeId, at: NodeSlot) {
        self.note(Some(by), What::Revoked { whom, at });
        self.footprint.actor(0);
        if let Some(life) = self.lives.iter().find(|life| life.id == whom) {
            self.footprint.actor(life.actors);
        }
        if self.fenced.contains(&(whom, at)) {
            return;
        }
        self.fenced.push((whom, at));
        let life = u64::from(whom.slot.0) << 32 | u64::from(whom.incarnation.0);
        self.revoked = self.revoked.wrapping_add(mix(life, u64::from(at.0)));
        self.cut_all(at, FabricError::Fenced, |machine, actor| machine.life_of(actor).id == whom);
    }

    /// Lets a compute node die. The coroutines of the dead node do not fetch the results of the
    /// rounds that they await.
    pub(crate) fn die(&mut self, life: usize) {
        self.spent.compute += 1;
        self.lives[life].is_dead = true;
        self.broke(Fault::Died(self.lives[life].id));
        let actors = self.lives[life].actors;
        self.footprint.actor(actors);
        for (index, actor) in self.actors.iter_mut().enumerate() {
            if actors >> index & 1 == 1 && actor.status != Status::Finished {
                actor.status = Status::Dead;
                self.time.leave(index as u8);
            }
        }
        for at in 0..self.flights.live.len() {
            let flight = self.flights.get_mut(self.flights.live[at]);
            if actors >> flight.actor & 1 == 1 && flight.interest == Interest::Awaited {
                (flight.interest, flight.is_waited_for) = (Interest::Orphaned, false);
            }
        }
    }

    /// Declares a compute node dead. The node continues to run.
    pub(crate) fn declare(&mut self, life: usize) {
        self.spent.zombie += 1;
        self.lives[life].is_declared = true;
        self.broke(Fault::DeclaredDead(self.lives[life].id));
        self.footprint.actor(self.lives[life].actors);
    }

    /// Lets a memory node die.
    pub(crate) fn memory_dies(&mut self, node: NodeSlot) {
        self.spent.memory += 1;
        self.is_down[usize::from(node.0)] = true;
        self.broke(Fault::MemoryDied(node));
        self.footprint.global = true;
        self.cut_all(node, FabricError::NodeDown(node), |_, _| true);
    }

    fn broke(&mut self, fault: Fault) {
        self.footprint.fault = true;
        self.faults.push(fault);
        self.note(None, What::Broke(fault));
    }

    /// Lets a datagram arrive. If the datagram was doubled, the function sends it once more.
    pub(crate) fn deliver(&mut self, index: usize) {
        let Message { actor, number, to, .. } = self.messages.sent[index];
        self.message_moves(actor, to);
        self.messages.deliver(index);
        self.note(Some(actor), What::MessageDelivered { message: number, to });
        for state in &mut self.actors {
            let is_there = self.lives[state.life].id.slot == to.node && state.thread == to.thread;
            if is_there && state.status == Status::Idle {
                (state.status, state.idle) = (Status::Ready, 0);
            } else if is_there {
                state.idle = 0;
            }
        }
    }

    pub(crate) fn lose(&mut self, index: usize) {
        let Message { actor, to, .. } = self.messages.sent.remove(index);
        self.spent.lost += 1;
        self.message_moves(actor, to);
        self.broke(Fault::MessageLost(to.node));
    }

    pub(crate) fn double(&mut self, index: usize) {
        let Message { actor, to, .. } = self.messages.sent[index];
        self.spent.doubled += 1;
        self.messages.sent[index].is_doubled = true;
        self.message_moves(actor, to);
        self.broke(Fault::MessageDoubled(to.node));
        self.deliver(index);
    }

    fn message_moves(&mut self, sender: u8, to: Endpoint) {
        let at = self.lives.iter().filter(|life| life.id.slot == to.node);
        let actors = at.fold(1 << sender, |bits, life| bits | life.actors);
        self.footprint.actor(actors);
    }

    /// Executes a whole round immediately. The explorer uses this function while a model loads,
    /// builds or judges.
    pub(crate) fn execute_at_rest(
        &mut self,
        node: NodeId,
        round: &mut Round,
    ) -> Result<(), FabricError> {
        let (verbs, data) = round.parts_mut();
        for verb in verbs {
            if let Some(error) = self.refusal(node, verb.target.node()) {
                return Err(error);
            }
            let len_bytes = verb.len_bytes();
            let place = self.memory.place(verb.target, len_bytes);
            let place = place.ok_or(FabricError::OutOfBounds(verb.target))?;
            if self.is_judging && len_bytes > 0 {
                for at in (place / LINE_BYTES..=(place + len_bytes - 1) / LINE_BYTES).rev() {
                    self.sharing.judge(Memory::line(at * LINE_BYTES));
                }
            }
            execute(&mut self.memory, place, verb, data, 0..len_bytes);
        }
        Ok(())
    }
}

fn is_transfer(verb: &Verb) -> bool {
    matches!(verb.kind(), VerbKind::Read | VerbKind::Write)
}

fn read_range(verb: &Verb, line: u16) -> std::ops::Range<usize> {
    let (range, at) = (part(verb, line), verb.buffer().0 as usize);
    at + range.start..at + range.end
}

/// Executes an atomic, or a part of a READ or WRITE. `place` is the place of the verb's first byte.
fn execute(
    memory: &mut Memory,
    place: usize,
    verb: &mut Verb,
    data: &mut [u64],
    range: std::ops::Range<usize>,
) -> Access {
    let (at, len_bytes) = (place + range.start, range.len());
    let mut access = Access { at, len_bytes, found: 0, changed: false };
    let buffer = verb.buffer().0 as usize;
    match verb.kind() {
        VerbKind::Read => {
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(data);
            memory.read(at, &mut bytes[buffer + range.start..buffer + range.end]);
        }
        VerbKind::Write => {
            let bytes: &[u8] = bytemuck::cast_slice(data);
            access.changed = memory.write(at, &bytes[buffer + range.start..buffer + range.end]);
        }
        kind => {
            access.found = memory.word(at);
            if let Some(new) = atomic(kind, verb, data, access.found) {
                access.changed = memory.set_word(at, new);
            }
            verb.value = access.found;
        }
    }
    access
}

/// Returns the value that an atomic writes if the word holds `found`. Returns `None` if the atomic
/// writes nothing.
fn atomic(kind: VerbKind, verb: &Verb, data: &[u64], found: u64) -> Option<u64> {
    let masks = verb.buffer().0 as usize / 8;
    let (compare, swap) = match kind {
        VerbKind::FetchAndAdd => return Some(found.wrapping_add(verb.expected)),
        VerbKind::MaskedCompareAndSwap => (data[masks], data[masks + 1]),
        _ => (u64::MAX, u64::MAX),
    };
    let is_equal = found & compare == verb.expected & compare;
    is_equal.then_some((found & !swap) | (verb.value & swap))
}
