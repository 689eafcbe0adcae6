//! A cluster of one lock: its decider, machines with clients, and the packets between them.
//!
//! Invariants: a state is a value of short names. Packets in flight are a sorted multiset, so that states that differ in nothing but the order of
//! sending are one. Time does not pass: packets are sent again when all others have arrived or are lost, or as the repetition of a packet. A
//! packet that changes nothing now or later ([`Node::ignores`]) arrives, or is lost, before anything else happens.

use super::bounds::{Action, Bounds, Flight, Violation};
use super::intern::{Map, Mix, Names, Table};
use super::node::{Access, LOCK, Node, Stage, Turn, VIEW};
use crate::decider::{Decider, Sent};
use crate::guard::Guard;
use crate::links::Packet;
use crate::packet::{LaneId, NoticeName};
use crate::recovery::{Seat, Submission, rebuild};
use crate::rules::Rules;
use crate::value::{Machine, Mode, RequestId, View};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

/// The greatest number of machines.
const MACHINES_MAX: usize = 4;
/// The greatest number of packets in flight.
const FLIGHTS_MAX: usize = 32;

/// A step, by short names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Act {
    Acquire(Machine, u8, Mode),
    Release(Machine, u8),
    GiveUp(Machine, u8),
    Deliver(u32),
    Lose(u32),
    Repeat(u32),
    Resend,
    Crash(Option<Machine>),
    Pause(Machine),
    Resume(Machine, u32),
}

/// The change of view that a crash brings.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Change {
    /// A crash may happen.
    Possible,
    /// Machines stop and submit, in any order.
    Pausing(Vec<(Machine, Submission)>),
    /// Machines resume, in any order, each with the name of its seats.
    Resuming(Vec<(Machine, u32)>),
    /// The new view has begun, or there is none.
    Over,
}

/// A state.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    decider: u32,
    nodes: [u32; MACHINES_MAX],
    change: u32,
    guard: Guard,
    requests: u8,
    losses: u8,
    repetitions: u8,
    time_outs: u8,
    machines: u8,
    /// The number of packets in flight.
    count: u8,
    flights: [u32; FLIGHTS_MAX],
}

/// The results of an event of a machine or of the decider.
struct Results {
    part: u32,
    sent: Vec<u32>,
    accesses: Vec<Access>,
    submission: Option<Submission>,
}

/// Facts about a machine.
struct NodeFacts {
    /// The steps of its clients, with what they use up.
    steps: Vec<(Act, Uses)>,
    holders: Vec<(RequestId, Mode)>,
    agent: Option<View>,
    view: View,
    /// The number of a list of questions that may be asked again.
    asked: u32,
    is_quiet: bool,
    is_clear: bool,
    is_dead: bool,
}

/// The budget that a step uses up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Uses {
    Nothing,
    Request,
    TimeOut,
}

/// Facts about a packet.
struct FlightFacts {
    /// Its destination; `None`: the decider.
    to: Option<Machine>,
    /// The machine whose state says whether it still matters.
    decides: Machine,
    view: View,
    /// Of a question.
    question: Option<(LaneId, u32)>,
    /// Of a reply.
    reply: Option<(LaneId, u32)>,
    /// Of a notice, or of its acknowledgement: the machine that sends the notice, and its name.
    name: Option<(Machine, NoticeName)>,
    is_acknowledgement: bool,
}

/// The values of a search that all threads share.
#[derive(Default)]
pub(super) struct Tables {
    nodes: Table<Node>,
    deciders: Table<Decider>,
    flights: Table<Flight>,
    changes: Table<Change>,
    seats: Table<Vec<Seat>>,
    asked: Table<Vec<(LaneId, u32)>>,
}

/// One thread's view of all states: it knows the results of events that it has met before.
pub(super) struct World<'a> {
    bounds: &'a Bounds,
    nodes: Names<'a, Node, NodeFacts>,
    deciders: Names<'a, Decider, (View, bool)>,
    flights: Names<'a, Flight, FlightFacts>,
    changes: Names<'a, Change, ()>,
    seats: Names<'a, Vec<Seat>, ()>,
    asked: Names<'a, Vec<(LaneId, u32)>, ()>,
    /// Deciders without the answers that no machine can ask for again.
    pruned: Map<(u32, [u32; MACHINES_MAX]), u32>,
    turns: Map<(u32, Act), Rc<Results>>,
    decisions: Map<(u32, u32), Rc<Results>>,
    ignored: Map<(u32, u32), bool>,
}

impl State {
    /// Its hash.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = Mix::default();
        let pair = |one: u32, other: u32| u64::from(one) << 32 | u64::from(other);
        hasher.write_u64(pair(self.decider, self.change));
        self.nodes.chunks(2).for_each(|of| hasher.write_u64(pair(of[0], of[1])));
        let budget = [self.requests, self.losses, self.repetitions, self.time_outs];
        hasher.write_u64(pair(u32::from_le_bytes(budget), u32::from(self.count)));
        self.flights().chunks(2).for_each(|of| {
            hasher.write_u64(pair(of[0], of.get(1).copied().unwrap_or(u32::MAX)));
        });
        self.guard.hash(&mut hasher);
        hasher.finish()
    }

    fn flights(&self) -> &[u32] {
        &self.flights[..usize::from(self.count)]
    }

    fn nodes(&self) -> &[u32] {
        &self.nodes[..usize::from(self.machines)]
    }

    fn node(&self, machine: Machine) -> u32 {
        self.nodes[usize::from(machine.0) - 1]
    }

    fn machines(&self) -> impl Iterator<Item = Machine> + use<> {
        (1..=u16::from(self.machines)).map(Machine)
    }

    fn remove(&mut self, flight: u32) {
        let at = self.flights().iter().position(|it| *it == flight).expect("a packet in flight");
        self.flights.copy_within(at + 1..usize::from(self.count), at);
        self.count -= 1;
    }

    fn send(&mut self, sent: &[u32]) {
        for flight in sent {
            let (at, end) =
                (self.flights().partition_point(|it| it < flight), usize::from(self.count));
            assert!(end < FLIGHTS_MAX, "too many packets are in flight for the search");
            self.flights.copy_within(at..end, at + 1);
            self.flights[at] = *flight;
            self.count += 1;
        }
    }
}

impl<'a> World<'a> {
    pub(super) fn new(bounds: &'a Bounds, tables: &'a Tables) -> World<'a> {
        let node = |node: &Node| NodeFacts {
            steps: node.actions(bounds),
            holders: node.holders().collect(),
            agent: node.agent(),
            view: node.view(),
            asked: Names::new(&tables.asked, |_| ()).id(node.asked()),
            is_quiet: node.is_quiet(),
            is_clear: node.is_clear(),
            is_dead: node.is_dead(),
        };
        let decider = |decider: &Decider| {
            let is_free = decider.entry(LOCK).is_none_or(|entry| entry.held.is_none());
            (decider.view(), is_free)
        };
        World {
            bounds,
            nodes: Names::new(&tables.nodes, node),
            deciders: Names::new(&tables.deciders, decider),
            flights: Names::new(&tables.flights, FlightFacts::of),
            changes: Names::new(&tables.changes, |_| ()),
            seats: Names::new(&tables.seats, |_| ()),
            asked: Names::new(&tables.asked, |_| ()),
            pruned: Map::default(),
            turns: Map::default(),
            decisions: Map::default(),
            ignored: Map::default(),
        }
    }

    /// The state in which nothing has happened.
    pub(super) fn first(&mut self) -> State {
        let bounds = self.bounds;
        let machines = bounds.clients.iter().copied().max().unwrap_or(1).max(bounds.machines);
        let mut nodes = [0; MACHINES_MAX];
        for machine in 1..=machines {
            nodes[usize::from(machine) - 1] = self.nodes.id(Node::new(bounds, machine));
        }
        let change = if bounds.crashes { Change::Possible } else { Change::Over };
        State {
            decider: self.deciders.id(Decider::new(bounds.setup(), VIEW, 1)),
            nodes,
            change: self.changes.id(change),
            guard: Guard::default(),
            requests: bounds.requests,
            losses: bounds.losses,
            repetitions: bounds.repetitions,
            time_outs: bounds.time_outs,
            machines: machines as u8,
            count: 0,
            flights: [0; FLIGHTS_MAX],
        }
    }

    /// The packet that is to arrive before anything else happens.
    fn ignored(&mut self, state: &State) -> Option<u32> {
        if self.bounds.rules != Rules::ALL {
            return None;
        }
        state.flights().iter().copied().find(|flight| self.ignores(state, *flight))
    }

    /// Puts all possible steps into `acts`; of steps that commute with all others, one.
    pub(super) fn acts(&mut self, state: &State, acts: &mut Vec<Act>) {
        if let Some(flight) = self.ignored(state) {
            acts.push(Act::Deliver(flight));
            // A loss matters if something is sent again because of it.
            if let Some((sender, name)) = self.flights.facts(flight).name
                && state.losses > 0
                && self.nodes.value(state.node(sender)).awaits(name)
            {
                acts.push(Act::Lose(flight));
            }
            return;
        }
        for node in state.nodes() {
            acts.extend(self.nodes.facts(*node).steps.iter().filter_map(|(act, uses)| {
                let may = match uses {
                    Uses::Nothing => true,
                    Uses::Request => state.requests > 0,
                    Uses::TimeOut => state.time_outs > 0,
                };
                may.then_some(*act)
            }));
        }
        self.change_acts(state, acts);
        let mut before = None;
        for flight in state.flights() {
            if before.replace(*flight) == Some(*flight) {
                continue;
            }
            acts.push(Act::Deliver(*flight));
            if state.repetitions > 0 {
                acts.push(Act::Repeat(*flight));
            }
        }
        if state.count <= state.losses && !self.is_quiet(state) {
            acts.push(Act::Resend);
        }
    }

    fn ignores(&mut self, state: &State, flight: u32) -> bool {
        let facts = self.flights.facts(flight);
        let (decides, view, is_question) = (facts.decides, facts.view, facts.question.is_some());
        let node = state.node(decides);
        if is_question {
            let current = self.deciders.facts(state.decider).0;
            if view < current {
                return true;
            }
            // A decider that is to be replaced answers still, and its copies count at machines that have not stopped yet.
            let facts = self.nodes.facts(node);
            if facts.view != current || facts.is_dead {
                return false;
            }
        }
        if let Some(known) = self.ignored.get(&(node, flight)) {
            return *known;
        }
        let bounds = self.bounds;
        let packet = Arc::clone(self.flights.value(flight));
        let ignores = self.nodes.value(node).ignores(bounds, &packet);
        self.ignored.insert((node, flight), ignores);
        ignores
    }

    /// The steps of a crash and of the recovery from it.
    fn change_acts(&mut self, state: &State, acts: &mut Vec<Act>) {
        let change = Arc::clone(self.changes.value(state.change));
        match &*change {
            Change::Possible => {
                acts.push(Act::Crash(None));
                acts.extend(state.machines().map(|machine| Act::Crash(Some(machine))));
            }
            Change::Pausing(submitted) => {
                for machine in state.machines() {
                    let is_dead = self.nodes.facts(state.node(machine)).is_dead;
                    if !is_dead && submitted.iter().all(|(other, _)| *other != machine) {
                        acts.push(Act::Pause(machine));
                    }
                }
            }
            Change::Resuming(seats) => {
                acts.extend(seats.iter().map(|(machine, seats)| Act::Resume(*machine, *seats)));
            }
            Change::Over => {}
        }
    }

    /// A machine has submitted. The last submission begins the new view.
    fn submitted(&mut self, state: &mut State, machine: Machine, submission: Submission) {
        let mut change = Change::clone(self.changes.value(state.change));
        let Change::Pausing(submitted) = &mut change else { return };
        submitted.push((machine, submission));
        submitted.sort_unstable();
        let lives = state.nodes().iter().filter(|node| !self.nodes.facts(**node).is_dead).count();
        if submitted.len() == lives {
            let rebuilt = rebuild(self.bounds.policy, submitted);
            let setup = self.bounds.setup();
            let decider = Decider::rebuilt(setup, VIEW.next(), 1, &rebuilt.entries);
            state.decider = self.deciders.id(decider);
            let seats = rebuilt.seats.into_iter();
            let seats = seats.map(|(machine, seats)| (machine, self.seats.id(seats)));
            change = Change::Resuming(seats.collect());
        }
        state.change = self.changes.id(change);
    }

    /// Whether the second arrival of a packet would change nothing: then the state adds nothing to those without the repetition.
    pub(super) fn is_vain(&mut self, state: &State, act: Act) -> bool {
        let Act::Repeat(flight) = act else { return false };
        if self.bounds.rules != Rules::ALL {
            return false;
        }
        let facts = self.flights.facts(flight);
        // An acknowledgement takes out a notice by its name, which never comes again.
        if facts.is_acknowledgement {
            return true;
        }
        // An answer comes once more where the question does: the first of two equal answers is the one that counts.
        if let Some(asked) = facts.question {
            let answers =
                |it: &u32| self.flights.facts(*it).reply.is_some_and(|reply| reply == asked);
            if state.flights().iter().any(answers) {
                return true;
            }
        }
        self.ignores(state, flight)
    }

    fn is_quiet(&mut self, state: &State) -> bool {
        state.nodes().iter().all(|node| self.nodes.facts(*node).is_quiet)
    }

    /// The step that leads on without new requests, losses or repetitions; `None` at the end.
    ///
    /// # Errors
    /// A request waits, and nothing can happen any more.
    pub(super) fn drain(&mut self, state: &State) -> Result<Option<Act>, Violation> {
        if let Some(flight) = self.ignored(state) {
            return Ok(Some(Act::Deliver(flight)));
        }
        if !matches!(**self.changes.value(state.change), Change::Possible | Change::Over) {
            let mut acts = Vec::new();
            self.change_acts(state, &mut acts);
            if let Some(act) = acts.pop() {
                return Ok(Some(act));
            }
        }
        if let Some(flight) = state.flights().first() {
            return Ok(Some(Act::Deliver(*flight)));
        }
        for node in state.nodes() {
            let steps = &self.nodes.facts(*node).steps;
            if let Some((act, _)) = steps.iter().find(|(_, uses)| *uses == Uses::Nothing) {
                return Ok(Some(*act));
            }
        }
        if !self.is_quiet(state) {
            return Ok(Some(Act::Resend));
        }
        let is_free = self.deciders.facts(state.decider).1;
        let is_clear = state.nodes().iter().all(|node| self.nodes.facts(*node).is_clear);
        if is_free && is_clear { Ok(None) } else { Err(Violation::Stuck) }
    }

    /// Takes a step.
    ///
    /// # Errors
    /// The state that it leads to must never be.
    pub(super) fn take(&mut self, state: &mut State, act: Act) -> Result<(), Violation> {
        self.step(state, act)?;
        if self.bounds.rules == Rules::ALL {
            self.prune(state);
        }
        Ok(())
    }

    /// Forgets the decider's answers that no machine can ask for again.
    fn prune(&mut self, state: &mut State) {
        let mut asked = [0; MACHINES_MAX];
        for (asked, node) in asked.iter_mut().zip(state.nodes()) {
            *asked = self.nodes.facts(*node).asked;
        }
        let key = (state.decider, asked);
        if let Some(pruned) = self.pruned.get(&key) {
            state.decider = *pruned;
            return;
        }
        let mut kept = Vec::new();
        for asked in &asked[..state.nodes().len()] {
            kept.extend_from_slice(self.asked.value(*asked));
        }
        let mut decider = Decider::clone(self.deciders.value(state.decider));
        decider.forget(|lane, number| kept.contains(&(lane, number)));
        let pruned = self.deciders.id(decider);
        self.pruned.insert(key, pruned);
        state.decider = pruned;
    }

    fn step(&mut self, state: &mut State, act: Act) -> Result<(), Violation> {
        let machine = match act {
            Act::Acquire(machine, ..) => {
                state.requests -= 1;
                machine
            }
            Act::GiveUp(machine, _) => {
                state.time_outs -= 1;
                machine
            }
            Act::Release(machine, _) | Act::Pause(machine) => machine,
            Act::Crash(dead) => {
                if let Some(dead) = dead {
                    let mut node = Node::clone(self.nodes.value(state.node(dead)));
                    node.die();
                    state.nodes[usize::from(dead.0) - 1] = self.nodes.id(node);
                }
                state.change = self.changes.id(Change::Pausing(Vec::new()));
                return Ok(());
            }
            Act::Resume(machine, _) => {
                let mut change = Change::clone(self.changes.value(state.change));
                if let Change::Resuming(seats) = &mut change {
                    seats.retain(|(other, _)| *other != machine);
                    let change = if seats.is_empty() { Change::Over } else { change };
                    state.change = self.changes.id(change);
                }
                machine
            }
            Act::Lose(flight) => {
                state.losses -= 1;
                state.remove(flight);
                return Ok(());
            }
            Act::Deliver(flight) | Act::Repeat(flight) => {
                match act {
                    Act::Repeat(_) => state.repetitions -= 1,
                    _ => state.remove(flight),
                }
                match self.flights.facts(flight).to {
                    Some(machine) => machine,
                    None => {
                        self.decide(state, flight);
                        return Ok(());
                    }
                }
            }
            Act::Resend => {
                // A packet that is lost is one that has not arrived by now.
                state.losses -= state.count;
                state.count = 0;
                for machine in state.machines() {
                    self.turn(state, machine, act)?;
                }
                return Ok(());
            }
        };
        self.turn(state, machine, act)
    }

    fn decide(&mut self, state: &mut State, flight: u32) {
        let key = (state.decider, flight);
        let results = match self.decisions.get(&key) {
            Some(known) => Rc::clone(known),
            None => {
                let mut decider = Decider::clone(self.deciders.value(state.decider));
                let mut sent = Vec::new();
                if let Flight::Packet(Packet::Question(question)) = &**self.flights.value(flight) {
                    // A question that is dropped is sent again.
                    _ = decider.receive(question, &mut |it| sent.push(flight_of(it)));
                }
                let sent = sent.into_iter().map(|it| self.flights.id(it)).collect();
                let part = self.deciders.id(decider);
                let results = Results { part, sent, accesses: Vec::new(), submission: None };
                let results = Rc::new(results);
                self.decisions.insert(key, Rc::clone(&results));
                results
            }
        };
        state.decider = results.part;
        state.send(&results.sent);
    }

    fn turn(&mut self, state: &mut State, machine: Machine, act: Act) -> Result<(), Violation> {
        let node = state.node(machine);
        let act = if let Act::Repeat(flight) = act { Act::Deliver(flight) } else { act };
        let results = match self.turns.get(&(node, act)) {
            Some(known) => Rc::clone(known),
            None => {
                let action = self.action(act);
                let turn = self.nodes.value(node).turn(self.bounds, &action);
                let Turn { node: next, sent, accesses, submission } = turn;
                let sent = sent.into_iter().map(|it| self.flights.id(it)).collect();
                let part = self.nodes.id(next);
                let results = Rc::new(Results { part, sent, accesses, submission });
                self.turns.insert((node, act), Rc::clone(&results));
                results
            }
        };
        state.nodes[usize::from(machine.0) - 1] = results.part;
        state.send(&results.sent);
        if let Some(submission) = &results.submission {
            self.submitted(state, machine, submission.clone());
        }
        for access in &results.accesses {
            let passes = match access.mode {
                Mode::Shared => state.guard.reads(access.token),
                Mode::Exclusive => state.guard.writes(access.token),
            };
            if !passes {
                return Err(Violation::TokenRefused(access.request));
            }
        }
        self.check(state)
    }

    /// The step as a reader sees it.
    pub(super) fn action(&mut self, act: Act) -> Action {
        let flight = |world: &mut Self, id| Flight::clone(world.flights.value(id));
        match act {
            Act::Acquire(machine, client, mode) => {
                Action::Acquire { machine, client: usize::from(client), mode }
            }
            Act::Release(machine, client) => {
                Action::Release { machine, client: usize::from(client) }
            }
            Act::GiveUp(machine, client) => Action::GiveUp { machine, client: usize::from(client) },
            Act::Deliver(id) => Action::Deliver(flight(self, id)),
            Act::Lose(id) => Action::Lose(flight(self, id)),
            Act::Repeat(id) => Action::Repeat(flight(self, id)),
            Act::Resend => Action::Resend,
            Act::Crash(dead) => Action::Crash(dead),
            Act::Pause(machine) => Action::Pause(machine, VIEW.next()),
            Act::Resume(machine, seats) => {
                Action::Resume(machine, Vec::clone(self.seats.value(seats)))
            }
        }
    }

    /// Checks that an exclusive holder is alone, and that a view has one agent.
    fn check(&mut self, state: &State) -> Result<(), Violation> {
        let (mut holder, mut agents): (Option<(RequestId, Mode)>, Option<View>) = (None, None);
        for node in state.nodes() {
            let facts = self.nodes.facts(*node);
            for &(request, mode) in &facts.holders {
                match holder.replace((request, mode)) {
                    Some((other, before))
                        if Mode::Exclusive == mode || before == Mode::Exclusive =>
                    {
                        return Err(Violation::NotAlone(other, request));
                    }
                    _ => {}
                }
            }
            // An agent of an older view is gone before its machine submits.
            if let Some(view) = facts.agent
                && agents.replace(view) == Some(view)
            {
                return Err(Violation::TwoAgents);
            }
        }
        Ok(())
    }
}

impl FlightFacts {
    fn of(flight: &Flight) -> FlightFacts {
        let (question, reply) = match flight {
            Flight::Packet(Packet::Question(it)) => (Some((it.lane, it.number)), None),
            Flight::Reply(it) => (None, Some((it.lane, it.number))),
            Flight::Packet(_) => (None, None),
        };
        FlightFacts {
            to: flight.to(),
            decides: flight.decides(),
            view: flight.view(),
            question,
            reply,
            name: match flight {
                Flight::Packet(Packet::Notice { notice, .. }) => {
                    Some((notice.sender(), notice.name()))
                }
                Flight::Packet(Packet::Acknowledgement { to, name, .. }) => Some((*to, *name)),
                Flight::Packet(Packet::Question(_)) | Flight::Reply(_) => None,
            },
            is_acknowledgement: matches!(flight, Flight::Packet(Packet::Acknowledgement { .. })),
        }
    }
}

fn flight_of(sent: Sent) -> Flight {
    match sent {
        Sent::Reply(reply) => Flight::Reply(reply),
        Sent::Notice { to, view, lock, notice } => {
            Flight::Packet(Packet::Notice { to, view, lock, notice })
        }
    }
}

impl Node {
    /// The steps of its clients, with what they use up.
    fn actions(&self, bounds: &Bounds) -> Vec<(Act, Uses)> {
        let machine = self.machine();
        let mut steps = Vec::new();
        for (client, state, is_alike) in self.clients(bounds) {
            match state {
                Stage::Idle if !is_alike => {
                    for mode in [Mode::Shared, Mode::Exclusive] {
                        steps.push((Act::Acquire(machine, client, mode), Uses::Request));
                    }
                }
                Stage::Idle => {}
                Stage::Waits => {
                    steps.push((Act::GiveUp(machine, client), Uses::TimeOut));
                }
                Stage::Holds => {
                    steps.push((Act::Release(machine, client), Uses::Nothing));
                }
            }
        }
        steps
    }
}
