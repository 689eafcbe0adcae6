//! A simulated fabric with the weakest behaviour that the contract allows. This fabric runs in one thread and has its
//! own time.
//!
//! Invariant: a run depends only on its seed. The verbs of every round travel to each memory node in a separate
//! stream. Streams progress in any order, one line at a time. Within a stream, READs fetch their lines in any order,
//! and WRITEs store their lines in any order. Each verb comes after the previous verb, but an unfenced WRITE may
//! overtake a READ or atomic just before it. Verbs of a dropped round may still be executed.
//!
//! Two kinds of failure are possible. A memory node dies, and its streams end in an error. Or a compute node loses
//! its access. When its access ends, any prefix of each of its streams has been executed. With `torn_writes`, the
//! last verb may have reached only some of its lines. The contents of memory survive, and the order within a stream
//! still holds.
//!
//! This fabric exists in addition to the simulator because tests control its steps. Tests hold back one node's verbs
//! and execute them later, or cut and drop work between any two lines. Tests also make one clock uncertain, and let
//! later rounds overtake a dropped round. The simulator's random mode draws such moments from a seed, so a test
//! cannot choose its own moment. The explorer tries every order of a few transactions, but its indexes do not grow
//! and its time does not pass.

mod backend;

use super::Shape;
use backend::WeakBackend;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Waiting, Poll, Waker};
use tarn_engine::services::ServiceOptions;
use tarn_engine::session::coordinator::Retry;
use tarn_engine::site::{ComputeNode, Context, Database};
use tarn_fabric::address::{Address, GroupId, NodeId, NodeSlot};
use tarn_fabric::error::FabricError;
use tarn_fabric::port::Port;
use tarn_fabric::rng::{Rng, seeded};
use tarn_fabric::round::{Round, Verb, VerbKind};
use tarn_store::ids::OwnerTag;

use rand::RngExt as _;

/// The retry rule of the coordinators. A pause lasts some steps of the fabric.
pub const RETRY: Retry = Retry {
    deadline: None,
    pause_first_ns: 10,
    pause_max_ns: 300,
    tries_max: 0,
    patient_tries: 64,
};

/// A verb that was posted and is not completely executed.
struct Flight {
    ticket: u64,
    index: usize,
    verb: Verb,
    /// For a READ, the bytes that it has fetched. For a WRITE, the bytes that it will store.
    bytes: Vec<u8>,
    /// The parts of a READ or WRITE that are not executed yet, as (from, to), each within one line.
    parts: Vec<(usize, usize)>,
    /// The earliest time at which the verb may begin.
    not_before: u64,
}

/// A round of verbs that a thread has posted.
#[derive(Default)]
struct Ticket {
    by: Option<NodeId>,
    left: usize,
    results: Vec<(usize, u64, Vec<u8>)>,
    error: Option<FabricError>,
}

struct World {
    now: u64,
    rng: Rng,
    memory: BTreeMap<(NodeSlot, u16), Vec<u8>>,
    streams: BTreeMap<(NodeId, u16, NodeSlot), VecDeque<Flight>>,
    tickets: BTreeMap<u64, Ticket>,
    posted: u64,
    down: BTreeSet<NodeSlot>,
    fenced: BTreeSet<(NodeId, NodeSlot)>,
    /// The revocations in flight. Each revocation has the time of its arrival, a compute node, a memory node, and the
    /// ticket that waits.
    revocations: Vec<(u64, NodeId, NodeSlot, u64)>,
    memory_nodes: u16,
    /// The pairs of compute node and memory node for which the test holds verbs in flight. If the access of such a
    /// node is cut off, none of these verbs is ever executed.
    held: BTreeSet<(NodeId, NodeSlot)>,
    /// One of `slow_one_in` flights is slow, on average. 0: no flight is slow.
    slow_one_in: u32,
    /// Whether a round that fails at one memory node also fails at all nodes that it has not reached. If this is
    /// false, the round continues at the other nodes.
    stops_at_the_dead: bool,
    /// Whether a bug is planted: the rest of a dropped round is executed at any time, in a separate stream.
    dropped_pass: bool,
    /// For each node, how far the true time may lie before and after its clock's reading. If a node is not listed, it
    /// knows the true time exactly.
    clock_bounds: BTreeMap<NodeSlot, (u64, u64)>,
}

/// A cluster whose nodes communicate by the weak fabric.
#[derive(Clone)]
pub struct WeakFabric {
    world: Rc<RefCell<World>>,
    pub database: Arc<Database>,
}

impl WeakFabric {
    pub fn new(shape: &Shape, seed: u64) -> WeakFabric {
        WeakFabric::with_spares(shape, seed, 0)
    }

    /// Creates the fabric with `spares` additional empty memory nodes.
    pub fn with_spares(shape: &Shape, seed: u64, spares: u16) -> WeakFabric {
        let database = shape.database();
        let bytes = database.catalog.group_bytes() as usize;
        let mut memory = BTreeMap::new();
        for group in 0..database.groups().count() as u16 {
            let start = Address::new(GroupId(group), 0);
            for target in database.groups().all(start) {
                memory.insert((target.node(), group), vec![0; bytes]);
            }
            for spare in 0..spares {
                let node = NodeSlot(shape.memory_nodes as u16 + spare);
                memory.insert((node, group), vec![0; bytes]);
            }
        }
        let mut rng = seeded(seed, 77);
        let slow_one_in = [0, 3, 10, 40][rng.random_range(0..4usize)];
        let world = World {
            now: 1,
            rng,
            memory,
            streams: BTreeMap::new(),
            tickets: BTreeMap::new(),
            posted: 0,
            down: BTreeSet::new(),
            fenced: BTreeSet::new(),
            revocations: Vec::new(),
            memory_nodes: shape.memory_nodes as u16,
            held: BTreeSet::new(),
            slow_one_in,
            stops_at_the_dead: false,
            dropped_pass: false,
            clock_bounds: BTreeMap::new(),
        };
        WeakFabric { world: Rc::new(RefCell::new(world)), database }
    }

    /// Creates a thread of a compute node that joins now.
    pub fn context(&self, slot: u16, cache: usize) -> Rc<Context> {
        let id = self.database.membership.join(NodeSlot(slot)).unwrap();
        let services = ServiceOptions::direct(1);
        let node = ComputeNode::serving(Arc::clone(&self.database), id, &services).unwrap();
        if node.services().is_some() {
            // The first node's memory contains all locks.
            self.database.membership.open_shards(&[id]);
        }
        self.thread(&Arc::new(node), 0, cache)
    }

    pub fn thread(&self, node: &Arc<ComputeNode>, thread: u16, cache: usize) -> Rc<Context> {
        let backend = WeakBackend { fabric: self.clone(), node: node.id, thread };
        let port = Port::new(Box::new(backend), 7);
        Rc::new(Context::new(Arc::clone(node), port, thread, cache).unwrap())
    }

    /// Draws a number below `limit` from the schedule's random generator.
    pub fn draw(&self, limit: usize) -> usize {
        self.world.borrow_mut().rng.random_range(0..limit)
    }

    /// Takes one step of the fabric.
    pub fn step(&self) {
        self.world.borrow_mut().step();
    }

    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut waiting = Waiting::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut waiting) {
                return value;
            }
            self.step();
        }
    }

    /// Lets a memory node die.
    pub fn fail_node(&self, node: NodeSlot) {
        let world = &mut *self.world.borrow_mut();
        world.down.insert(node);
        let World { streams, tickets, .. } = world;
        for (_, stream) in streams.iter_mut().filter(|((_, _, to), _)| *to == node) {
            for flight in stream.drain(..) {
                fail(tickets, &flight, FabricError::NodeDown(node));
            }
        }
        if world.stops_at_the_dead {
            for stream in streams.values_mut() {
                let has_failed = |flight: &Flight| {
                    tickets.get(&flight.ticket).is_some_and(|ticket| ticket.error.is_some())
                };
                let (over, left) = stream.drain(..).partition(has_failed);
                *stream = left;
                let over: VecDeque<Flight> = over;
                over.iter().for_each(|flight| fail(tickets, flight, FabricError::NodeDown(node)));
            }
        }
    }

    /// Sets whether a round that fails at one memory node fails at all nodes that it has not reached.
    pub fn stop_at_the_dead(&self, stops: bool) {
        self.world.borrow_mut().stops_at_the_dead = stops;
    }

    /// Ends a compute node's access at all memory nodes. Any prefix of its posted verbs has been executed, often all
    /// of them.
    pub fn fence(&self, node: NodeId, torn_writes: bool) {
        let world = &mut *self.world.borrow_mut();
        let all = world.rng.random_range(0..3) == 0;
        for ticket in world.tickets.values_mut().filter(|ticket| ticket.by == Some(node)) {
            ticket.error = Some(FabricError::Fenced); // no caller is told which verbs have taken effect
        }
        for at in 0..world.memory_nodes {
            world.cut(node, NodeSlot(at), all, torn_writes);
        }
    }

    /// Holds back the verbs of a compute node: from now on none of them is executed at this memory node.
    pub fn hold(&self, node: NodeId, at: NodeSlot) {
        self.world.borrow_mut().held.insert((node, at));
    }

    /// Executes all verbs in flight from a compute node to a memory node now.
    pub fn land(&self, node: NodeId, at: NodeSlot) {
        let world = &mut *self.world.borrow_mut();
        world.held.remove(&(node, at));
        for key in world.keys(node, at) {
            while !world.streams[&key].is_empty() {
                world.advance(key);
            }
        }
    }

    /// Makes a compute node's clock uncertain. From now on the node knows only an interval that contains the true
    /// time. The interval begins `before` before its clock's reading, and ends `behind` after the reading.
    pub fn doubt_clock(&self, slot: u16, before: u64, behind: u64) {
        self.world.borrow_mut().clock_bounds.insert(NodeSlot(slot), (before, behind));
    }

    /// Plants a bug: rounds that follow a dropped round may overtake the dropped round.
    pub fn let_dropped_rounds_be_passed(&self) {
        self.world.borrow_mut().dropped_pass = true;
    }

    /// Makes no verb slow from now on. Each verb waits only until the order allows its execution.
    pub fn calm(&self) {
        self.world.borrow_mut().slow_one_in = 0;
    }

    /// Frees the memory of the fabric, because coroutines that were never dropped may still have a reference to the
    /// fabric.
    pub fn end(&self) {
        let world = &mut *self.world.borrow_mut();
        world.memory.clear();
        world.streams.clear();
        world.tickets.clear();
    }

    /// Returns the tags of the transactions whose logs are in a coordinator's log areas.
    pub fn logged(&self, coordinator: u32) -> BTreeSet<OwnerTag> {
        let world = self.world.borrow();
        let mut tags = BTreeSet::new();
        for group in 0..self.database.groups().count() as u16 {
            let area = self.database.catalog.log(GroupId(group), coordinator);
            for target in self.database.groups().all(area) {
                let at = area.offset_bytes() as usize;
                let bytes = &world.memory[&(target.node(), group)][at..at + 8];
                tags.extend(OwnerTag::from_word(u64::from_le_bytes(bytes.try_into().unwrap())));
            }
        }
        tags
    }

    /// Whether a word outside the log areas (in an index or the heap) has this value at a primary. If the value is a
    /// transaction's tag, such a word is a lock.
    pub fn has_word(&self, word: u64) -> bool {
        let options = self.database.catalog.options();
        let world = self.world.borrow();
        (0..self.database.groups().count() as u16).any(|group| {
            let group = GroupId(group);
            let logs = self.database.catalog.log(group, 0);
            let after =
                logs.offset_bytes() + u64::from(options.coordinators_max) * options.log_bytes;
            let primary = self.database.groups().primary(logs).node();
            let memory = &world.memory[&(primary, group.0)][after as usize..];
            memory.as_chunks::<8>().0.iter().any(|bytes| u64::from_le_bytes(*bytes) == word)
        })
    }
}

fn fail(tickets: &mut BTreeMap<u64, Ticket>, flight: &Flight, error: FabricError) {
    if let Some(ticket) = tickets.get_mut(&flight.ticket) {
        ticket.left -= 1;
        ticket.error = Some(error);
    }
}

impl World {
    /// Returns the keys of the streams from a compute node to a memory node.
    fn keys(&self, node: NodeId, at: NodeSlot) -> Vec<(NodeId, u16, NodeSlot)> {
        let hit = |(life, _, to): &(NodeId, u16, NodeSlot)| (*life, *to) == (node, at);
        self.streams.keys().copied().filter(hit).collect()
    }

    /// Ends a compute node's access at one memory node.
    fn cut(&mut self, node: NodeId, at: NodeSlot, all: bool, torn_writes: bool) {
        self.fenced.insert((node, at));
        let is_held = self.held.contains(&(node, at));
        for key in self.keys(node, at) {
            let pending = self.streams[&key].len();
            let keep = if all { pending } else { self.rng.random_range(0..=pending) };
            let keep = if is_held { 0 } else { keep };
            while self.streams[&key].len() > pending - keep {
                self.advance(key);
            }
            let is_torn = torn_writes && !is_held;
            if is_torn && self.streams[&key].front().is_some_and(|next| next.parts.len() > 1) {
                self.advance(key);
            }
            for flight in self.streams.remove(&key).expect("it is there") {
                fail(&mut self.tickets, &flight, FabricError::Fenced);
            }
        }
    }

    /// Executes the revocations whose time has come.
    fn execute_revocations(&mut self) {
        let now = self.now;
        let (due, later) =
            std::mem::take(&mut self.revocations).into_iter().partition(|each| each.0 <= now);
        self.revocations = later;
        let due: Vec<(u64, NodeId, NodeSlot, u64)> = due;
        for (_, whom, at, ticket) in due {
            let torn_writes = self.rng.random_range(0..2) == 0;
            self.cut(whom, at, false, torn_writes);
            if let Some(ticket) = self.tickets.get_mut(&ticket) {
                ticket.left -= 1;
            }
        }
    }

    fn step(&mut self) {
        self.now += 1;
        self.execute_revocations();
        let (now, held) = (self.now, &self.held);
        let ready = |(key, stream): (&(NodeId, u16, NodeSlot), &VecDeque<Flight>)| {
            let may_go =
                |flight: &&Flight| flight.not_before <= now && !held.contains(&(key.0, key.2));
            stream.front().filter(may_go).map(|_| *key)
        };
        let count = self.streams.iter().filter_map(ready).count();
        if count == 0 {
            return;
        }
        let chosen = self.rng.random_range(0..count);
        let key = self.streams.iter().filter_map(ready).nth(chosen).expect("counted");
        self.advance(key);
    }

    /// Handles a round that was dropped.
    fn abandon(&mut self, node: NodeId, round: u64) {
        self.tickets.remove(&round);
        if !self.dropped_pass {
            return;
        }
        let mine = |key: &(NodeId, u16, NodeSlot)| key.0 == node;
        for key in self.streams.keys().copied().filter(mine).collect::<Vec<_>>() {
            let all = std::mem::take(self.streams.get_mut(&key).expect("it is there"));
            let (dropped, others) = all.into_iter().partition(|flight| flight.ticket == round);
            self.streams.insert(key, others);
            let dropped: VecDeque<Flight> = dropped;
            if !dropped.is_empty() {
                self.streams.insert((node, u16::MAX - (round % 1_000) as u16, key.2), dropped);
            }
        }
    }

    /// Executes one line of the stream's first verb, or of the WRITE that overtakes it.
    fn advance(&mut self, key: (NodeId, u16, NodeSlot)) {
        let stream = self.streams.get_mut(&key).expect("it is there");
        let untouched = |flight: &Flight| flight.verb.kind() != VerbKind::Write;
        if stream.len() > 1
            && untouched(&stream[0])
            && stream[1].verb.kind() == VerbKind::Write
            && !stream[1].verb.has(Verb::FENCED)
            && self.rng.random_range(0..2) == 0
        {
            stream.swap(0, 1);
        }
        let flight = stream.front_mut().expect("not empty");
        let target = flight.verb.target;
        let group = target.address().group().0;
        let memory =
            self.memory.get_mut(&(target.node(), group)).expect("the node hosts the group");
        let at = target.address().offset_bytes() as usize;
        match flight.verb.kind() {
            VerbKind::Read | VerbKind::Write => {
                let part = self.rng.random_range(0..flight.parts.len());
                let (from, to) = flight.parts.swap_remove(part);
                if flight.verb.kind() == VerbKind::Read {
                    flight.bytes[from..to].copy_from_slice(&memory[at + from..at + to]);
                } else {
                    memory[at + from..at + to].copy_from_slice(&flight.bytes[from..to]);
                }
            }
            VerbKind::CompareAndSwap => {
                let found = u64::from_le_bytes(memory[at..at + 8].try_into().unwrap());
                if found == flight.verb.expected {
                    memory[at..at + 8].copy_from_slice(&flight.verb.value.to_le_bytes());
                }
                flight.verb.value = found;
            }
            other => unreachable!("{other:?} is not used"),
        }
        if flight.parts.is_empty() {
            let done = stream.pop_front().expect("not empty");
            let stalls =
                self.slow_one_in > 0 && self.rng.random_range(0..self.slow_one_in * 4) == 0;
            if let Some(next) = stream.front_mut().filter(|_| stalls) {
                next.not_before = self.now + self.rng.random_range(0..300);
            }
            if let Some(ticket) = self.tickets.get_mut(&done.ticket) {
                ticket.left -= 1;
                ticket.results.push((done.index, done.verb.value, done.bytes));
            }
        }
    }

    fn post(&mut self, node: NodeId, thread: u16, round: &mut Round) -> u64 {
        self.posted += 1;
        let mut ticket = Ticket { by: Some(node), ..Ticket::default() };
        let delay = match self.slow_one_in {
            0 => 0,
            one_in if self.rng.random_range(0..one_in) == 0 => self.rng.random_range(0..400),
            _ => 0,
        };
        let is_dead = |verb: &&Verb| self.down.contains(&verb.target.node());
        if let Some(dead) = round.verbs().iter().find(is_dead).filter(|_| self.stops_at_the_dead) {
            ticket.error = Some(FabricError::NodeDown(dead.target.node()));
            self.tickets.insert(self.posted, ticket);
            return self.posted;
        }
        for (index, verb) in round.verbs().iter().enumerate() {
            let to = verb.target.node();
            if self.fenced.contains(&(node, to)) {
                ticket.error = Some(FabricError::Fenced);
                continue;
            }
            if self.down.contains(&to) {
                ticket.error = Some(FabricError::NodeDown(to));
                continue;
            }
            ticket.left += 1;
            let flight = Flight {
                ticket: self.posted,
                index,
                verb: *verb,
                bytes: payload(round, verb),
                parts: parts(verb),
                not_before: self.now + delay,
            };
            self.streams.entry((node, thread, to)).or_default().push_back(flight);
        }
        self.tickets.insert(self.posted, ticket);
        self.posted
    }
}

fn payload(round: &Round, verb: &Verb) -> Vec<u8> {
    let at = verb.buffer().0 as usize;
    match verb.kind() {
        VerbKind::Write => round.buffer()[at..at + verb.len_bytes()].to_vec(),
        VerbKind::Read => vec![0; verb.len_bytes()],
        _ => Vec::new(),
    }
}

fn parts(verb: &Verb) -> Vec<(usize, usize)> {
    if !matches!(verb.kind(), VerbKind::Read | VerbKind::Write) {
        return Vec::new();
    }
    let (start, len) = (verb.target.address().offset_bytes() as usize, verb.len_bytes());
    let mut parts = Vec::new();
    let mut from = 0;
    while from < len {
        let to = ((start + from) / 64 * 64 + 64 - start).min(len);
        parts.push((from, to));
        from = to;
    }
    parts
}
