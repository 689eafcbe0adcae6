//! The cluster between two polls: memory, rounds in flight, the status of each coroutine, and the
//! faults so far.
//!
//! Invariant: the machine and the coroutines hold everything on which a later step may depend. The
//! state of a coroutine is a function of the field `observed` of its group. So [`Machine::digest`]
//! identifies a state. The actors of one compute node form a group. The actors of a group share local
//! memory, so they can also observe the order of their polls.

use super::actor::{Actor, Fault, Trigger};
use super::config::{ExploreConfig, Planted, Reduction};
use super::flight::{Flights, Interest};
use super::hash::{Digest, chain, mix};
use super::memory::Memory;
use super::messages::Messages;
use super::parts::Parts;
use super::report::{Mark, Marked};
use super::sharing::Sharing;
use super::time::Time;
use super::trace::{Step, What};
use super::transition::Footprint;
use tarn_fabric::address::{NodeId, NodeSlot};
use tarn_fabric::backend::LOCAL_PARTS;
use tarn_fabric::error::FabricError;
use tarn_fabric::round::Round;

/// The status of a coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// The coroutine was never polled.
    Unstarted,
    /// The coroutine is about to begin its next transaction.
    AtGate,
    /// The coroutine waits for a round or a revocation.
    Waiting,
    /// Something new has happened for the coroutine, or the coroutine yielded.
    Ready,
    /// The coroutine yielded several times without seeing anything new.
    Idle,
    Finished,
    Dead,
}

/// The state of one coroutine.
#[derive(Clone, Debug)]
pub(crate) struct ActorState {
    pub(crate) life: usize,
    pub(crate) thread: u16,
    pub(crate) trigger: Option<Trigger>,
    pub(crate) status: Status,
    /// The number of rounds and revocations posted so far. The field `messages` counts the messages
    /// sent.
    pub(crate) rounds: u32,
    pub(crate) messages: u32,
    /// The number of transactions that began. The field `ended` counts the transactions that ended.
    pub(crate) began: u32,
    pub(crate) ended: u32,
    pub(crate) clock: u64,
    /// The number of successive polls in which the coroutine saw nothing new.
    pub(crate) idle: u32,
    /// A digest of the registered objects, as the coroutine last saw them.
    pub(crate) shares_seen: Digest,
    pub(crate) phase: &'static str,
}

/// One incarnation of a compute node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) id: NodeId,
    pub(crate) is_dead: bool,
    pub(crate) is_declared: bool,
    pub(crate) is_spared: bool,
    /// A chain of digests over everything that the coroutines of this incarnation observed.
    pub(crate) observed: Digest,
    /// The sum of digests of the landed pieces of rounds that no coroutine has fetched.
    pub(crate) landed: Digest,
    /// Set after all coroutines of this incarnation have stopped: a digest of the coroutines'
    /// remains. This digest replaces `observed` in the digest of the state.
    pub(crate) left: Option<Digest>,
    /// The actors of this incarnation, one bit per actor.
    pub(crate) actors: u64,
}

/// The events of one poll.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Polled {
    pub(crate) waits: bool,
    pub(crate) slept: bool,
    pub(crate) at_gate: bool,
    pub(crate) news: bool,
}

/// For each budget of faults, the number of faults that have already happened.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Spent {
    pub(crate) compute: u32,
    pub(crate) zombie: u32,
    pub(crate) memory: u32,
    pub(crate) lost: u32,
    pub(crate) doubled: u32,
}

/// The step that must follow a transition, because the explorer takes the two together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forced {
    /// A piece of a round of this actor. The round has this number or a higher number.
    Piece(u8, u32),
    /// The answer to an actor, which tells whether the actor's window was shorter than its lease.
    Answer(u8),
    /// The start of an actor that waited for this compute node to be lost.
    StartAfter(NodeId),
}

/// The state of the explored cluster between two polls.
pub(crate) struct Machine {
    pub(crate) config: ExploreConfig,
    pub(crate) memory: Memory,
    pub(crate) sharing: Sharing,
    pub(crate) flights: Flights,
    pub(crate) messages: Messages,
    pub(crate) parts: Parts,
    pub(crate) time: Time,
    pub(crate) actors: Vec<ActorState>,
    pub(crate) lives: Vec<Life>,
    pub(crate) is_down: Vec<bool>,
    pub(crate) fenced: Vec<(NodeId, NodeSlot)>,
    pub(crate) spent: Spent,
    pub(crate) faults: Vec<Fault>,
    pub(crate) marks: Vec<Marked>,
    /// The threads that joined, both of ports and of actors.
    pub(crate) threads: Vec<(NodeId, u16)>,
    /// The detached rounds that ended in an error, with their errors.
    pub(crate) errors: Vec<(u64, FabricError)>,
    /// Two sums of digests. The first sum records for each beginning of a transaction which
    /// transactions had ended before. The second sum records the revoked accesses.
    pub(crate) order: Digest,
    pub(crate) revoked: Digest,
    /// The actor whose coroutine is being polled.
    pub(crate) current: Option<u8>,
    /// Whether this poll is a start, so that the actor may begin its first transaction immediately.
    pub(crate) gate_open: bool,
    pub(crate) polled: Polled,
    pub(crate) sequence: u32,
    /// The clock that ports read while the cluster is at rest.
    pub(crate) rest_clock: u64,
    /// A clock for stamps. The clock is strictly monotone over the whole execution.
    pub(crate) stamps: u64,
    /// The number of transitions so far.
    pub(crate) steps: u32,
    pub(crate) footprint: Footprint,
    /// Whether coroutines run, or are dropped, only for the state that they keep themselves. While
    /// this field is set, no verb of a coroutine reaches the cluster, and each round ends in
    /// `Fenced`.
    pub(crate) is_detached: bool,
    /// Whether the judge is reading memory.
    pub(crate) is_judging: bool,
    /// If this field is set, only this step may be chosen next.
    pub(crate) forced: Option<Forced>,
    pub(crate) trace: Option<Vec<Step>>,
}

impl Machine {
    pub(crate) fn new(config: &ExploreConfig) -> Machine {
        let nodes = (config.memory_nodes, config.spares);
        let memory = Memory::new(nodes, config.replicas, config.group_bytes);
        Machine {
            sharing: Sharing::new(memory.lines(), config.compute_nodes * usize::from(LOCAL_PARTS)),
            parts: Parts::new(config.compute_nodes),
            memory,
            config: config.clone(),
            flights: Flights::default(),
            messages: Messages::default(),
            time: Time::default(),
            actors: Vec::new(),
            lives: Vec::new(),
            is_down: vec![false; config.memory_nodes + config.spares],
            fenced: Vec::new(),
            spent: Spent::default(),
            faults: Vec::new(),
            marks: Vec::new(),
            threads: Vec::new(),
            errors: Vec::new(),
            order: 0,
            revoked: 0,
            current: None,
            gate_open: false,
            polled: Polled::default(),
            sequence: 0,
            stamps: 0,
            rest_clock: 0,
            steps: 0,
            footprint: Footprint::NONE,
            is_detached: false,
            is_judging: false,
            forced: None,
            trace: None,
        }
    }

    /// Restores the loaded memory and removes all actors.
    pub(crate) fn reset(&mut self) {
        self.memory.restore();
        self.flights.clear();
        self.messages.clear();
        self.parts.reset();
        self.time.reset(match self.config.reduction {
            Reduction::Planted(planted) => Some(planted),
            _ => None,
        });
        self.actors.clear();
        self.lives.clear();
        self.is_down.fill(false);
        self.fenced.clear();
        self.faults.clear();
        self.marks.clear();
        self.threads.clear();
        self.errors.clear();
        (self.order, self.revoked) = (0, 0);
        (self.spent, self.footprint) = (Spent::default(), Footprint::NONE);
        (self.current, self.forced) = (None, None);
        (self.sequence, self.stamps, self.steps) = (0, 0, 0);
        (self.is_detached, self.is_judging) = (false, false);
        if let Some(trace) = &mut self.trace {
            trace.clear();
        }
    }

    /// Adds an actor.
    pub(crate) fn admit(&mut self, actor: &Actor) {
        assert!(self.actors.len() < 64, "an exploration has at most 64 actors");
        let known = self.lives.iter().position(|life| life.id == actor.node);
        let life = known.unwrap_or_else(|| {
            self.lives.push(Life {
                id: actor.node,
                is_dead: false,
                is_declared: false,
                is_spared: false,
                observed: 0,
                landed: 0,
                left: None,
                actors: 0,
            });
            self.lives.len() - 1
        });
        self.lives[life].actors |= 1 << self.actors.len();
        self.time.admit();
        self.lives[life].is_spared |= actor.is_spared;
        self.actors.push(ActorState {
            life,
            thread: actor.thread,
            trigger: actor.trigger,
            status: Status::Unstarted,
            rounds: 0,
            messages: 0,
            began: 0,
            ended: 0,
            clock: 0,
            idle: 0,
            shares_seen: 0,
            phase: "",
        });
    }

    /// Returns the number of a thread's connection.
    pub(crate) fn join(&mut self, node: NodeId, thread: u16) -> u16 {
        let known = self.threads.iter().position(|it| *it == (node, thread));
        known.unwrap_or_else(|| {
            self.threads.push((node, thread));
            self.threads.len() - 1
        }) as u16
    }

    #[inline]
    pub(crate) fn life_of(&self, actor: u8) -> &Life {
        &self.lives[self.actors[usize::from(actor)].life]
    }

    /// Records that the coroutine in this poll observed something.
    pub(crate) fn observe(&mut self, what: Digest) {
        let Some(actor) = self.current else { return };
        self.polled.news = true;
        let life = self.actors[usize::from(actor)].life;
        let observed = &mut self.lives[life].observed;
        *observed = chain(*observed, what.wrapping_add(mix(u64::from(actor), 0x0b5)));
    }

    /// Records that a transaction of the coroutine in this poll begins or ends.
    pub(crate) fn mark(&mut self, mark: Mark) {
        let Some(actor) = self.current else { return };
        if self.is_detached {
            return;
        }
        let index = usize::from(actor);
        let forgets = self.config.reduction.has(Planted::OrderForgotten);
        let state = &mut self.actors[index];
        match mark {
            Mark::Began if forgets => state.began += 1,
            Mark::Ended if forgets => state.ended += 1,
            Mark::Began => {
                state.began += 1;
                let name = u64::from(actor) << 32 | u64::from(state.began);
                self.footprint.began = true;
                let others = self.actors.iter().enumerate().filter(|(other, _)| *other != index);
                let after = others.fold(mix(name, 0xbe9), |sum, (other, state)| {
                    let counted = (other as u64) << 32 | u64::from(state.ended);
                    chain(sum, mix(name, counted))
                });
                self.order = self.order.wrapping_add(after);
            }
            Mark::Ended => {
                state.ended += 1;
                self.footprint.ended = true;
            }
        }
        self.marks.push(Marked { actor: index, mark });
        self.note(Some(actor), if mark == Mark::Began { What::Began } else { What::Ended });
    }

    /// Sends a round of the coroutine in this poll. Returns the ticket of the round.
    pub(crate) fn post(&mut self, connection: u16, round: &mut Round, interest: Interest) -> u64 {
        let index = self.begin_flight(connection, interest);
        let ticket = self.flights.ticket(index);
        let flight = self.flights.get_mut(index);
        if interest == Interest::Awaited {
            std::mem::swap(&mut flight.round, round);
        } else {
            flight.round.copy_from(round);
        }
        flight.plan();
        let (actor, number) = (flight.actor, flight.number);
        let verbs = flight.round.verbs().len() as u32;
        let detached = interest == Interest::Detached;
        self.note(Some(actor), What::Posted { round: number, verbs, detached });
        self.mark_own(index);
        self.refuse_at_once(index);
        ticket
    }

    /// Sends a revocation request. Returns the ticket of the request.
    pub(crate) fn ask_to_revoke(&mut self, connection: u16, whom: NodeId, at: NodeSlot) -> u64 {
        let index = self.begin_flight(connection, Interest::Detached);
        let ticket = self.flights.ticket(index);
        let flight = self.flights.get_mut(index);
        flight.plan_revocation(whom, at);
        let actor = flight.actor;
        if !self.lives.iter().any(|life| life.id == whom && life.is_dead) {
            self.sharing.revoke_alive(whom);
        }
        self.note(Some(actor), What::RevokeAsked { whom, at });
        self.refuse_at_once(index);
        ticket
    }

    fn begin_flight(&mut self, connection: u16, interest: Interest) -> u32 {
        let actor = self.current.expect("a coroutine is being polled");
        let index = self.flights.begin();
        let state = &mut self.actors[usize::from(actor)];
        state.rounds += 1;
        self.sequence += 1;
        let flight = self.flights.get_mut(index);
        (flight.actor, flight.number, flight.phase) = (actor, state.rounds, state.phase);
        (flight.connection, flight.interest) = (connection, interest);
        (flight.sequence, flight.posted_step) = (self.sequence, self.steps);
        flight.before = (interest == Interest::Detached).then_some(self.sequence);
        index
    }

    /// Returns the error with which a memory node refuses a compute node's verbs, if the memory node
    /// refuses them.
    pub(crate) fn refusal(&self, node: NodeId, at: NodeSlot) -> Option<FabricError> {
        if self.is_down.get(usize::from(at.0)).copied().unwrap_or(true) {
            return Some(FabricError::NodeDown(at));
        }
        self.fenced.contains(&(node, at)).then_some(FabricError::Fenced)
    }

    /// Records an event if the caller wants a trace.
    #[inline]
    pub(crate) fn note(&mut self, actor: Option<u8>, what: What) {
        let Some(trace) = &mut self.trace else { return };
        let phase = actor.map_or("", |actor| self.actors[usize::from(actor)].phase);
        trace.push(Step { number: self.steps, actor: actor.map(usize::from), phase, what });
    }
}
