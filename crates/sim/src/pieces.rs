//! The responder's side in random mode: the weakest behaviour that the contract allows.
//!
//! Invariant:
//! - Batches are concurrent, with one exception: a batch posted behind an unawaited (detached or
//!   dropped) batch on the same connection waits for that batch.
//! - Within a batch verbs take effect in order, except that a WRITE without fence may overtake earlier
//!   READs and atomics of the batch.
//! - A READ fetches its lines one by one in any order, and a WRITE lands its lines one by one in any
//!   order. Steps of other batches may happen between two lines.
//! - The batch's completion is sent when all verbs of the batch are done.
//! - If access is revoked in the middle of a batch, some lines have landed already. The batch's lines
//!   that have not landed will never land.

use crate::effects::{execute, execute_piece, out_of_bounds, pieces};
use crate::flight::{Batch, Pending};
use crate::memory::Place;
use crate::world::{Event, World};
use tarn_fabric::round::{Verb, VerbKind};

impl World {
    /// Begins a batch that has arrived at its memory node.
    pub(crate) fn begin_pieces(&mut self, index: u32, batch_index: u32) {
        let flight = self.flights.get(index);
        let batch = *flight.batches.get(batch_index);
        let connections = &mut self.threads[flight.thread as usize].connections;
        let connection = &mut connections[usize::from(batch.node.0)].rare;
        if connection.unawaited.iter().any(|earlier| earlier.before < u64::from(batch.number)) {
            connection.held.push((index, batch_index));
            return;
        }
        let mut list = flight.take_pending(batch_index);
        let piece_bytes = self.dice.as_ref().expect("random mode has dice").piece_bytes();
        let verbs = flight.verbs().iter().enumerate();
        let mine = verbs.filter(|(_, verb)| verb.target.node() == batch.node);
        list.extend(mine.map(|(at, verb)| pending(at, verb, piece_bytes)));
        flight.pending[batch_index as usize] = list;
        self.next_piece(index, batch_index);
    }

    fn next_piece(&mut self, index: u32, batch_index: u32) {
        let to = self.flights.get(index).batches.get(batch_index).node;
        let dice = self.dice.as_mut().expect("random mode has dice");
        let wait_ps = self.costs.switch + dice.piece_ps(self.now_ps, usize::from(to.0));
        let event = Event::Piece { flight: index, batch: batch_index as u16 };
        self.queue.push(self.now_ps + wait_ps, event);
    }

    /// Executes one line of a verb, or one atomic.
    pub(crate) fn piece(&mut self, index: u32, batch_index: u32) {
        let flight = self.flights.get(index);
        let &Batch { node: to, number, .. } = flight.batches.get(batch_index);
        let thread = &self.threads[flight.thread as usize];
        let open = &thread.connections[usize::from(to.0)].rare.unawaited;
        assert!(
            open.iter().all(|it| it.before >= u64::from(number)),
            "a batch has overtaken an unawaited \
            one of its connection"
        );
        let node = thread.node;
        if let Some(error) = self.refusal(node, to) {
            return self.refuse(index, batch_index, error);
        }
        let dice = self.dice.as_mut().expect("random mode has dice");
        let flight = self.flights.get(index);
        let mut list = flight.take_pending(batch_index);
        let (verbs, data, places) = flight.parts();
        let chosen = choose(&list, verbs, |most| dice.up_to(most));
        let pending = &mut list[chosen];
        let line = dice.up_to(pending.lines.len() as u64 - 1) as usize;
        let line = pending.lines.swap_remove(line);
        let is_last = pending.lines.is_empty();
        let pending_verb = pending.verb as usize;
        let verb = &mut verbs[pending_verb];
        if is_last {
            list.remove(chosen);
        }
        let is_done = list.is_empty();
        match places[pending_verb] {
            Place::NOWHERE => {
                let error = out_of_bounds(verb);
                return self.refuse(index, batch_index, error);
            }
            place if matches!(verb.kind(), VerbKind::Read | VerbKind::Write) => {
                execute_piece(&mut self.memory, place, verb, data, (line, dice.piece_bytes()));
            }
            place => execute(&mut self.memory, place, verb, data),
        }
        let seen = verb.value ^ verb.target.address().to_word() ^ u64::from(line) << 56;
        flight.pending[batch_index as usize] = list;
        self.note(self.now_ps ^ seen.rotate_left(17));
        self.tallies.verbs += u64::from(is_last);
        if is_done {
            self.end_pieces(index, batch_index);
        } else {
            self.next_piece(index, batch_index);
        }
    }

    fn end_pieces(&mut self, index: u32, batch_index: u32) {
        self.leave_connection(index, batch_index);
        let thread = self.flights.get(index).thread;
        let node = usize::from(self.threads[thread as usize].node.slot.0);
        let dice = self.dice.as_mut().expect("random mode has dice");
        let delay_ps = dice.way_ps(self.now_ps, thread, node);
        let back_ps = self.costs.respond + self.costs.travel + self.costs.complete;
        self.answer(index, self.now_ps + delay_ps + back_ps);
    }

    /// Ends a batch that is done. If the batch was unawaited, batches that waited for this batch may
    /// begin.
    pub(crate) fn leave_connection(&mut self, index: u32, batch_index: u32) {
        if self.dice.is_none() {
            return self.count_refused(index, batch_index);
        }
        let flight = self.flights.get(index);
        let (thread, batch) = (flight.thread as usize, flight.batches.get_mut(batch_index));
        batch.is_done = true;
        let connections = &mut self.threads[thread].connections;
        let known = connections.len() - 1;
        let connection = &mut connections[usize::from(batch.node.0).min(known)];
        connection.arrived += 1;
        assert!(connection.arrived <= connection.posted, "a batch has ended twice");
        let rare = &mut connection.rare;
        let open = rare.unawaited.len();
        rare.unawaited.retain(|it| it.number != u64::from(batch.number));
        if rare.unawaited.len() < open {
            for (flight, batch) in rare.held.drain(..) {
                let event = Event::Arrive { flight, batch: batch as u16 };
                self.queue.push(self.now_ps, event);
            }
        }
    }

    /// In timed mode, counts a refused batch as arrived.
    fn count_refused(&mut self, index: u32, batch_index: u32) {
        let flight = self.flights.get(index);
        let batch = flight.batches.get(batch_index);
        let connections = &mut self.threads[flight.thread as usize].connections;
        let known = connections.len() - 1;
        connections[usize::from(batch.node.0).min(known)].arrived += 1;
    }
}

fn pending(at: usize, verb: &Verb, piece_bytes: usize) -> Pending {
    let count = match verb.kind() {
        VerbKind::Read | VerbKind::Write => pieces(verb, piece_bytes).max(1),
        _ => 1,
    };
    Pending { verb: at as u32, lines: (0..count).collect() }
}

/// Chooses the verb that is executed next. The chosen verb is the first verb, or a WRITE without fence
/// that has only READs and atomics before it. An assertion checks the choice against the contract's
/// table of orders.
fn choose(list: &[Pending], verbs: &[Verb], mut up_to: impl FnMut(u64) -> u64) -> usize {
    let verb = |at: usize| &verbs[list[at].verb as usize];
    let overtaken = (0..list.len()).take_while(|at| verb(*at).kind() != VerbKind::Write).count();
    let may_overtake = overtaken > 0
        && overtaken < list.len()
        && (1..=overtaken).all(|at| !verb(at).has(Verb::FENCED));
    if may_overtake && up_to(1) == 1 {
        assert!(verb(overtaken).kind() == VerbKind::Write, "only WRITEs overtake");
        return overtaken;
    }
    0
}
