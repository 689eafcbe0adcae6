//! Small programs on an explored cluster, and the set of all their outcomes.
//!
//! Invariant: an outcome holds everything that an outside observer could see: memory at the end, the
//! data that each coroutine saw, how each coroutine ended, and which transactions began after which
//! other transactions had ended.

use super::compute;
use super::timed::{Held, Timed};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use tarn_fabric::address::{Address, GroupId, NodeSlot, Target};
use tarn_fabric::backend::{Detached, Endpoint, LocalPart};
use tarn_fabric::executor::block_on;
use tarn_fabric::port::Port;
use tarn_fabric::rng::mix;
use tarn_fabric::round::{Round, VerbIndex};
use tarn_sim::explore::{
    Actor, End, ExploreConfig, ExploreFabric, Explored, Fate, Fault, Mark, Model, Progress,
    Reduction, Trigger, explore,
};

/// One verb. `node` and `line` say at which place the verb acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A READ of `lines` lines.
    Read { node: u16, line: u16, lines: u16 },
    /// A WRITE of `lines` lines. The written value depends on the data that the actor has read
    /// before.
    Write { node: u16, line: u16, lines: u16, fenced: bool },
    /// A compare-and-swap (CAS) of a word from zero to the actor's own value.
    Cas { node: u16, line: u16 },
    /// A fetch-and-add (FAA) that adds one to a word.
    Faa { node: u16, line: u16 },
    /// A READ that watches a word until the word is not zero.
    Watch { node: u16, line: u16 },
}

/// One step of an actor's program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Do {
    /// A round that is awaited.
    Round(Vec<Op>),
    /// A detached round, which the actor does not await.
    Detached(Vec<Op>),
    /// An awaited round whose future the actor drops as soon as the round is posted.
    Dropped(Vec<Op>),
    /// Asks whether the most recent detached round is done.
    Ask,
    /// Revokes the access of this actor's node at all memory nodes.
    Revoke(usize),
    /// Sends a datagram to this actor.
    Send(usize),
    /// Waits for a datagram, and stops waiting after three polls without a datagram.
    Receive,
    /// Writes the object that all actors share outside of memory.
    Put(u64),
    /// Reads the object that all actors share outside of memory.
    Look,
    /// Writes a part of node 0's local memory.
    PutPart(u16, u64),
    /// Reads a part of node 0's local memory.
    LookPart(u16),
    /// Takes a part of node 0's local memory as a lock, if the part is free.
    TakePart(u16),
    /// Unlocks the part of node 0's local memory, if this actor holds the part.
    GivePart(u16),
    /// A step of windows and waits.
    Timed(Timed),
}

/// The number of parts of node 0's local memory.
const PARTS: usize = 2;

/// An actor's program: a list of transactions. Each transaction is a list of steps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    pub transactions: Vec<Vec<Do>>,
    /// The actor's compute node. `None` means the node with the actor's own number.
    pub node: Option<u16>,
    /// The actor whose node must be lost before this actor starts.
    pub after: Option<usize>,
    pub spared: bool,
}

pub fn program(transactions: Vec<Vec<Do>>) -> Program {
    Program { transactions, ..Program::default() }
}

/// Everything that can be seen of an execution.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Outcome {
    pub memory: Vec<u64>,
    pub logs: Vec<Vec<u64>>,
    pub fates: Vec<Fate>,
    pub memory_lost: Vec<u16>,
    /// Pairs of a transaction that had ended and a transaction that began later: (actor, number of
    /// the end), (actor, number of the beginning).
    pub order: BTreeSet<((usize, u32), (usize, u32))>,
}

impl Outcome {
    /// Returns whether this outcome covers the other outcome. The two outcomes must be equal, with
    /// two exceptions. In this outcome a dead actor may have recorded more values before it died. In
    /// this outcome more transactions may have begun after other transactions had ended.
    pub fn covers(&self, other: &Outcome) -> bool {
        let actor = |at: usize| match other.fates[at] {
            Fate::Dead => self.logs[at].starts_with(&other.logs[at]),
            fate => self.logs[at] == other.logs[at] && self.fates[at] == fate,
        };
        self.memory == other.memory
            && self.memory_lost == other.memory_lost
            && self.order.is_superset(&other.order)
            && (0..self.logs.len()).all(actor)
    }
}

type Log = Rc<RefCell<Vec<u64>>>;

/// A toy's judge, which returns an error if it objects to an outcome.
pub type Objects = fn(&Outcome) -> Result<(), String>;

#[derive(Debug)]
pub struct Toy {
    pub programs: Vec<Program>,
    pub nodes: u16,
    pub lines: u16,
    logs: RefCell<Vec<Log>>,
    pub outcomes: RefCell<BTreeSet<Outcome>>,
    objects: Option<Objects>,
    has_post_mortem: bool,
}

impl Toy {
    /// Sets the judge of the toy.
    pub fn objecting(mut self, objects: Objects) -> Toy {
        self.objects = Some(objects);
        self
    }

    /// Lets dead coroutines run to their end before the judge sees the outcome.
    pub fn with_post_mortem(mut self) -> Toy {
        self.has_post_mortem = true;
        self
    }

    pub fn new(programs: &[Program], nodes: u16, lines: u16) -> Toy {
        Toy {
            programs: programs.to_vec(),
            nodes,
            lines,
            logs: RefCell::default(),
            outcomes: RefCell::default(),
            objects: None,
            has_post_mortem: false,
        }
    }

    pub fn config(&self) -> ExploreConfig {
        let (actors, bytes) = (self.programs.len(), u64::from(self.lines) * 64);
        ExploreConfig { scouts: 0, ..ExploreConfig::new(self.nodes.into(), actors + 1, bytes) }
    }

    /// Returns all outcomes under a reduction, and the exploration that found them.
    pub fn outcomes(
        &self,
        config: &ExploreConfig,
        reduction: Reduction,
    ) -> (BTreeSet<Outcome>, Explored) {
        self.outcomes.borrow_mut().clear();
        let config = ExploreConfig { reduction, ..config.clone() };
        let mut restarts = 0;
        // Only outcomes of the exploration's last pass count. When the exploration restarts, the
        // function drops the outcomes of earlier passes and of scout executions.
        let mut tell = |progress: &Progress| {
            if progress.restarts > restarts {
                restarts = progress.restarts;
                self.outcomes.borrow_mut().clear();
            }
            ControlFlow::Continue(())
        };
        let explored = explore(self, &config, &mut tell).unwrap();
        (self.outcomes.take(), explored)
    }
}

fn part_of(at: u16) -> LocalPart {
    LocalPart { node: NodeSlot(0), number: at }
}

fn target(node: u16, line: u16) -> Target {
    Address::new(GroupId(node), u64::from(line) * 64).at(NodeSlot(node))
}

impl Model for Toy {
    fn load(&self, _: &ExploreFabric) {}

    fn build(&self, cluster: &ExploreFabric) -> Vec<Actor> {
        let logs = &mut *self.logs.borrow_mut();
        logs.clear();
        let seen: Rc<RefCell<Vec<(u16, Log)>>> = Rc::default();
        if !self.has_post_mortem {
            let seen = Rc::clone(&seen);
            cluster.remains(move |node| {
                let seen = seen.borrow();
                let mine = seen.iter().filter(|(slot, _)| *slot == node.slot.0);
                let words = mine.flat_map(|(_, log)| log.borrow().clone().into_iter().chain([7]));
                words.fold(1, |digest, word| mix(digest ^ word))
            });
        }
        let object = Rc::new(Cell::new(0));
        let touches = |it: &Do| matches!(it, Do::Put(_) | Do::Look);
        if self.programs.iter().flat_map(|it| it.transactions.iter().flatten()).any(touches) {
            let object = Rc::clone(&object);
            cluster.share(move || object.get());
        }
        let parts: Rc<[Cell<u64>; PARTS]> = Rc::default();
        let kept = Rc::clone(&parts);
        cluster.keep(compute(0), move || kept.iter().fold(0, |all, part| mix(all ^ part.get())));
        let lives: Vec<_> =
            self.programs.iter().enumerate().map(|(at, it)| it.node.unwrap_or(at as u16)).collect();
        let actor = |(at, program): (usize, &Program)| {
            let log = Rc::new(RefCell::new(Vec::new()));
            logs.push(Rc::clone(&log));
            seen.borrow_mut().push((lives[at], Rc::clone(&log)));
            let node = compute(lives[at]);
            let run = Run {
                cluster: cluster.clone(),
                port: cluster.port(node, at as u16, 7),
                actor: at,
                lives: lives.clone(),
                memory_nodes: self.nodes,
                log,
                detached: Cell::new(None),
                object: Rc::clone(&object),
                parts: Rc::clone(&parts),
                held: Held::default(),
            };
            let actor =
                Actor::new(format!("actor {at}"), node, at as u16, run.all(program.clone()));
            let actor = match program.after {
                Some(whom) => actor.after(Trigger::Lost(compute(lives[whom]))),
                None => actor,
            };
            if program.spared { actor.spared() } else { actor }
        };
        self.programs.iter().enumerate().map(actor).collect()
    }

    fn judge(&self, end: &End<'_>) -> Result<(), String> {
        if self.has_post_mortem {
            end.post_mortem();
        }
        let port = end.port(compute(self.programs.len() as u16), 0, 7);
        let mut memory = Vec::new();
        for node in 0..self.nodes {
            for line in 0..self.lines {
                let mut round = Round::new();
                let at = round.read(target(node, line), 8);
                match block_on(port.execute(&mut round)) {
                    Ok(()) => memory.push(round.word(at)),
                    Err(_) => memory.push(u64::MAX),
                }
            }
        }
        let mut ended = vec![0; self.programs.len()];
        let mut began = ended.clone();
        let mut order = BTreeSet::new();
        for mark in &end.summary.marks {
            if mark.mark == Mark::Ended {
                ended[mark.actor] += 1;
                continue;
            }
            began[mark.actor] += 1;
            for (other, &count) in ended.iter().enumerate().filter(|(it, _)| *it != mark.actor) {
                order.extend((1..=count).map(|it| ((other, it), (mark.actor, began[mark.actor]))));
            }
        }
        let lost = |fault: &Fault| match fault {
            Fault::MemoryDied(node) => Some(node.0),
            _ => None,
        };
        let mut memory_lost: Vec<u16> = end.summary.faults.iter().filter_map(lost).collect();
        memory_lost.sort_unstable();
        let outcome = Outcome {
            memory,
            logs: self.logs.borrow().iter().map(|log| log.borrow().clone()).collect(),
            fates: end.summary.actors.iter().map(|actor| actor.fate).collect(),
            memory_lost,
            order,
        };
        let verdict = self.objects.map_or(Ok(()), |objects| objects(&outcome));
        self.outcomes.borrow_mut().insert(outcome);
        verdict
    }
}

struct Run {
    cluster: ExploreFabric,
    port: Port,
    actor: usize,
    lives: Vec<u16>,
    memory_nodes: u16,
    log: Log,
    detached: Cell<Option<Detached>>,
    object: Rc<Cell<u64>>,
    parts: Rc<[Cell<u64>; PARTS]>,
    held: Held,
}

/// The places of a verb's results.
enum Seen {
    Words(Vec<tarn_fabric::round::BufferOffset>),
    Found(VerbIndex),
}

impl Run {
    async fn all(self, program: Program) {
        for transaction in program.transactions {
            self.cluster.begin().await;
            for step in transaction {
                self.step(step).await;
            }
            self.cluster.end();
        }
    }

    fn say(&self, word: u64) {
        self.log.borrow_mut().push(word);
    }

    async fn step(&self, step: Do) {
        match step {
            Do::Round(ops) => {
                let mut round = Round::new();
                let seen = self.fill(&mut round, &ops);
                match self.port.execute(&mut round).await {
                    Ok(()) => self.look(&round, seen),
                    Err(_) => self.say(0xdead),
                }
            }
            Do::Detached(ops) => {
                let mut round = Round::new();
                self.fill(&mut round, &ops);
                self.detached.set(self.port.post_detached(&mut round).ok());
            }
            Do::Dropped(ops) => {
                let mut round = Round::new();
                self.fill(&mut round, &ops);
                let mut execute = pin!(self.port.execute(&mut round));
                // An actor must not be able to observe whether a memory node refused the round
                // immediately or will refuse it later.
                let posted = poll_fn(|waiting| Poll::Ready(execute.as_mut().poll(waiting)));
                let _ = posted.await;
            }
            Do::Ask => {
                let Some(detached) = self.detached.get() else { return };
                self.say(match self.port.detached(detached) {
                    Poll::Pending => 0xa0,
                    Poll::Ready(Ok(())) => 0xa1,
                    Poll::Ready(Err(_)) => 0xa2,
                });
            }
            Do::Revoke(whom) => {
                for node in 0..self.memory_nodes {
                    let ended = self.port.revoke(compute(self.lives[whom]), NodeSlot(node)).await;
                    self.say(if ended.is_ok() { 0x0e } else { 0x0f });
                }
            }
            Do::Send(to) => {
                let node = NodeSlot(self.lives[to]);
                let to = Endpoint { node, thread: to as u16 };
                let seen = self.log.borrow().len() as u8;
                self.port.send(to, &[self.actor as u8, seen]).unwrap();
            }
            Do::Receive => {
                for _ in 0..3 {
                    let count = self.port.receive(1, &mut |from, bytes| {
                        self.say(u64::from(from.node.0) << 32 | u64::from(bytes[1]) << 8 | 5);
                    });
                    if count > 0 {
                        return;
                    }
                    self.port.yield_now().await;
                }
                self.say(0x10);
            }
            Do::Put(what) => self.object.set(self.object.get() * 8 + what),
            Do::Look => self.say(self.object.get()),
            Do::PutPart(at, what) => {
                let part = &self.parts[usize::from(at)];
                part.set(part.get() * 8 + what);
                self.port.looked_at(part_of(at), 0, true);
            }
            Do::LookPart(at) => self.say(self.look_at_part(at)),
            Do::Timed(step) => {
                let said = self.held.step(&self.port, step, |at| self.look_at_part(at)).await;
                said.into_iter().for_each(|word| self.say(word));
            }
            Do::TakePart(at) => {
                let part = &self.parts[usize::from(at)];
                let is_free = part.get() == 0;
                if is_free {
                    part.set(self.actor as u64 + 1);
                }
                self.port.looked_at(part_of(at), u64::from(is_free), is_free);
                self.say(0x1c0 + u64::from(is_free));
            }
            Do::GivePart(at) => {
                let part = &self.parts[usize::from(at)];
                let is_mine = part.get() == self.actor as u64 + 1;
                if is_mine {
                    part.set(0);
                }
                self.port.looked_at(part_of(at), u64::from(is_mine), is_mine);
            }
        }
    }

    fn look_at_part(&self, at: u16) -> u64 {
        let seen = self.parts[usize::from(at)].get();
        self.port.looked_at(part_of(at), seen, false);
        seen
    }

    fn fill(&self, round: &mut Round, ops: &[Op]) -> Vec<Seen> {
        let last = self.log.borrow().last().copied().unwrap_or(0);
        let own = (self.actor as u64 + 1) * 1000 + last % 1000;
        let mut seen = Vec::new();
        for op in ops {
            match *op {
                Op::Read { node, line, lines } => {
                    let len = usize::from(lines - 1) * 64 + 8;
                    let at = round.reserve_lines(len);
                    round.read_into(target(node, line), at, len);
                    seen.push(Seen::Words(
                        (0..lines).map(|it| at.plus(usize::from(it) * 64)).collect(),
                    ));
                }
                Op::Write { node, line, lines, fenced } => {
                    let len = usize::from(lines - 1) * 64 + 8;
                    let at = round.reserve_lines(len);
                    round.bytes_mut(at, len).fill(0);
                    (0..lines).for_each(|it| round.set_word(at.plus(usize::from(it) * 64), own));
                    if fenced {
                        round.fence();
                    }
                    round.write(target(node, line), at, len);
                }
                Op::Cas { node, line } => {
                    seen.push(Seen::Found(round.cas(target(node, line), 0, own)));
                }
                Op::Faa { node, line } => {
                    seen.push(Seen::Found(round.faa(target(node, line), 1)));
                }
                Op::Watch { node, line } => {
                    seen.push(Seen::Words(vec![round.watch(target(node, line), 0)]));
                }
            }
        }
        seen
    }

    fn look(&self, round: &Round, seen: Vec<Seen>) {
        for seen in seen {
            match seen {
                Seen::Words(words) => words.iter().for_each(|at| self.say(round.word(*at))),
                Seen::Found(verb) => self.say(round.found(verb)),
            }
        }
    }
}
