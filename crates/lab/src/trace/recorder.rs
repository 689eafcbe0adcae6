//! Watches a run (polls of coroutines, posted rounds, responses) and keeps the wanted transactions.
//!
//! The recorder combines three sources of information. The simulator reports the events of rounds ([`Observer`]). The
//! wrapped coroutine reports that the executor polls it, so a posted round is known to belong to this coroutine's
//! coordinator. The engine's counters explain the round: they count the phases entered, and the tries aborted or
//! committed, since the recorder last read them. The changes between two readings belong to one coordinator, since
//! the executor polled no other coordinator of the thread in between.
//!
//! Invariant: the recorder does not change the run. The recorder keeps or drops a transaction when the transaction
//! has ended and all of its rounds are complete.

use super::live::{Live, Rank, UNKNOWN, rank};
use super::{Batch, Message, Round, Transaction, Try, VerbSeen, Wanted};
use crate::harness::worker::Witness;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll};
use tarn_engine::site::Context;
use tarn_engine::site::metrics::Tally;
use tarn_fabric::address::NodeSlot;
use tarn_fabric::clock::Nanos;
use tarn_fabric::round::{Verb, VerbKind};
use tarn_sim::observe::{Observer, Seen};
use tarn_store::ids::AbortReason;

/// The number of tries whose owner tags the recorder remembers for each coordinator. If a lock was refused, the
/// recorder finds the lock's holder by the owner tag.
const TAGS: usize = 4;

/// The recorder of one run; clones refer to the same recorder.
#[derive(Clone)]
pub struct Recorder(Rc<RefCell<State>>);

struct State {
    wanted: Wanted,
    /// The names of the workload's procedures and of the protocol's phases.
    procedures: &'static [&'static str],
    phases: &'static [&'static str],
    /// Transactions that begin earlier than this time are not kept; `None` keeps no transaction.
    from: Option<Nanos>,
    begun: u64,
    ended: u64,
    turn: Option<Turn>,
    /// The number of each coordinator's current transaction, if this transaction may be kept.
    open: BTreeMap<u32, u64>,
    tags: BTreeMap<u32, VecDeque<u64>>,
    live: BTreeMap<u64, Live>,
    flights: BTreeMap<u64, Place>,
    kept: Vec<(Rank, Transaction)>,
}

/// The coordinator that the executor polls now, and the counters of its thread when the recorder
/// last read them.
struct Turn {
    coordinator: u32,
    cx: Rc<Context>,
    counted: Tally,
}

/// The position of an incomplete round: the numbers of its transaction and of its try, and its index among the rounds
/// of this try.
#[derive(Clone, Copy)]
struct Place {
    number: u64,
    at_try: usize,
    at_round: usize,
}

impl Recorder {
    /// Makes a recorder for transactions of `procedures` under a protocol with the phases `phases`.
    pub fn new(
        wanted: &Wanted,
        procedures: &'static [&'static str],
        phases: &'static [&'static str],
    ) -> Recorder {
        Recorder(Rc::new(RefCell::new(State {
            wanted: wanted.clone(),
            procedures,
            phases,
            from: None,
            begun: 0,
            ended: 0,
            turn: None,
            open: BTreeMap::new(),
            tags: BTreeMap::new(),
            live: BTreeMap::new(),
            flights: BTreeMap::new(),
            kept: Vec::new(),
        })))
    }

    /// Tells the recorder to watch the transactions that begin at `now` or later.
    pub(crate) fn begin(&self, now: Nanos) {
        self.0.borrow_mut().from = Some(now);
    }

    /// Returns a witness that reports a coordinator's transactions to the recorder.
    pub(crate) fn pen(&self, coordinator: u32, cx: &Rc<Context>) -> Pen {
        Pen { recorder: self.clone(), coordinator, cx: Rc::clone(cx) }
    }

    /// Wraps `coroutine`, so that the recorder learns of each poll of the coroutine.
    pub(crate) fn watch<F: Future<Output = ()>>(
        &self,
        coordinator: u32,
        cx: &Rc<Context>,
        coroutine: F,
    ) -> Watched<F> {
        Watched { pen: self.pen(coordinator, cx), coroutine: Box::pin(coroutine) }
    }

    /// Returns the number of transactions that ended, and the selected transactions in the order of the selection.
    pub fn take(&self) -> (u64, Vec<Transaction>) {
        let mut state = self.0.borrow_mut();
        let kept = std::mem::take(&mut state.kept);
        (state.ended, kept.into_iter().map(|(_, txn)| txn).collect())
    }
}

/// Reports the transactions of one coordinator to the recorder.
pub(crate) struct Pen {
    recorder: Recorder,
    coordinator: u32,
    cx: Rc<Context>,
}

impl Witness for Pen {
    fn begins(&self, kind: usize) {
        let (now, node) = (self.cx.port.now(), self.cx.port.endpoint());
        let mut state = self.recorder.0.borrow_mut();
        state.look(now);
        let procedure = state.procedures[kind];
        let other = state.wanted.procedure.as_ref().is_some_and(|name| name != procedure);
        if other || state.from.is_none_or(|from| now < from) {
            return;
        }
        let number = state.begun;
        state.begun += 1;
        let txn = Transaction {
            number,
            procedure,
            coordinator: self.coordinator,
            compute_node: node.node.0,
            thread: node.thread,
            began_ns: now.0,
            ended_ns: now.0,
            tries: vec![Try::begun(now)],
        };
        state.open.insert(self.coordinator, number);
        state.live.insert(number, Live::of(txn, now));
    }

    fn ends(&self) {
        let now = self.cx.port.now();
        let mut state = self.recorder.0.borrow_mut();
        state.look(now);
        let Some(number) = state.open.remove(&self.coordinator) else { return };
        let live = state.live.get_mut(&number).expect("it is open");
        (live.txn.ended_ns, live.has_ended) = (now.0, true);
        state.settle(number);
    }
}

/// A coroutine whose polls are reported to the recorder.
pub(crate) struct Watched<F> {
    pen: Pen,
    coroutine: Pin<Box<F>>,
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Pen { recorder, coordinator, cx: thread } = &this.pen;
        let now = thread.port.now();
        recorder.0.borrow_mut().turn_begins(*coordinator, thread, now);
        let polled = this.coroutine.as_mut().poll(cx);
        let now = thread.port.now();
        recorder.0.borrow_mut().turn_ends(now);
        polled
    }
}

impl Observer for Recorder {
    fn see(&mut self, seen: Seen<'_>) {
        let mut state = self.0.borrow_mut();
        match seen {
            Seen::Posted { ticket, is_detached, to, verbs, posted, sent, arrives } => {
                state.note_tags(verbs);
                let batch = Batch {
                    to: to.0,
                    posted_ns: posted.0,
                    sent_ns: sent.0,
                    arrived_ns: arrives.0,
                    left_ns: arrives.0,
                    taken_ns: arrives.0,
                    seen_ns: arrives.0,
                    verbs: batch_verbs(verbs, to).map(asked).collect(),
                };
                state.posted(ticket, is_detached, batch);
            }
            Seen::Served { ticket, by, arrived, left, taken, seen } => {
                let Some(round) = state.round(ticket) else { return };
                let batch = round.batches.iter_mut().find(|batch| batch.to == by.0);
                let batch = batch.expect("it was posted");
                (batch.arrived_ns, batch.left_ns) = (arrived.0, left.0);
                (batch.taken_ns, batch.seen_ns) = (taken.0, seen.0);
            }
            Seen::Completed { ticket, verbs, at } => state.completed(ticket, verbs, at),
            Seen::Sent { to, bytes, sent, arrives } => {
                let message = Message {
                    to: to.node.0,
                    thread: to.thread,
                    bytes,
                    sent_ns: sent.0,
                    arrived_ns: arrives.0,
                };
                state.sent(message, sent);
            }
        }
    }
}

fn batch_verbs(verbs: &[Verb], node: NodeSlot) -> impl Iterator<Item = &Verb> {
    verbs.iter().filter(move |verb| verb.target.node() == node)
}

fn asked(verb: &Verb) -> VerbSeen {
    VerbSeen {
        kind: match verb.kind() {
            VerbKind::Read => "READ",
            VerbKind::Write => "WRITE",
            VerbKind::CompareAndSwap => "CAS",
            VerbKind::FetchAndAdd => "FAA",
            VerbKind::MaskedCompareAndSwap => "masked CAS",
        },
        what: String::new(),
        bytes: verb.len_bytes(),
        refused: None,
        address: verb.target.address(),
        swap: (verb.expected, verb.value),
    }
}

impl State {
    fn turn_begins(&mut self, coordinator: u32, cx: &Rc<Context>, now: Nanos) {
        let counted = cx.metrics.snapshot();
        self.turn = Some(Turn { coordinator, cx: Rc::clone(cx), counted });
        if let Some(live) = self.current() {
            live.resumes(now);
        }
    }

    fn turn_ends(&mut self, now: Nanos) {
        self.look(now);
        if let Some(live) = self.current() {
            live.polled_until = now;
        }
        self.turn = None;
    }

    /// Returns the transaction of the coordinator that is being polled, if this transaction may be
    /// kept.
    fn current(&mut self) -> Option<&mut Live> {
        let number = self.open.get(&self.turn.as_ref()?.coordinator)?;
        self.live.get_mut(number)
    }

    /// Reads the engine's counters and processes their changes since the last reading.
    fn look(&mut self, now: Nanos) {
        let Some(turn) = &mut self.turn else { return };
        let counted = turn.cx.metrics.snapshot();
        let news = counted.since(&turn.counted);
        turn.counted = counted;
        let phases = self.phases;
        let Some(live) = self.current() else { return };
        let outcome = match AbortReason::ALL.into_iter().find(|why| news.aborts[*why as usize] > 0)
        {
            Some(reason) => Some(format!("aborted: {}", reason.name())),
            None if news.unknown > 0 => Some("outcome unknown".to_owned()),
            None => (news.committed > 0).then(|| "committed".to_owned()),
        };
        if let Some(outcome) = outcome {
            let last = live.last();
            (last.outcome, last.ended_ns) = (outcome, now.0);
            live.try_is_over = true;
        }
        let entered = phases.iter().zip(news.phases).filter(|(_, count)| *count > 0);
        live.entered.extend(entered.map(|(name, _)| *name));
    }

    /// Remembers the owner tags with which the current coordinator takes locks.
    fn note_tags(&mut self, verbs: &[Verb]) {
        let Some(turn) = &self.turn else { return };
        let tags = self.tags.entry(turn.coordinator).or_default();
        let locks = verbs.iter().filter(|verb| verb.is(VerbKind::CompareAndSwap));
        for verb in locks.filter(|verb| verb.expected == 0 && verb.value != 0) {
            if !tags.contains(&verb.value) {
                tags.push_back(verb.value);
                if tags.len() > TAGS {
                    tags.pop_front();
                }
            }
        }
    }

    fn posted(&mut self, ticket: u64, is_detached: bool, batch: Batch) {
        if let Some(round) = self.round(ticket) {
            return round.batches.push(batch);
        }
        let now = Nanos(batch.posted_ns);
        self.look(now);
        let Some(live) = self.current() else { return };
        if !is_detached {
            live.go_on(now);
        }
        let phases = std::mem::take(&mut live.entered);
        let round = Round {
            phases,
            awaited: !is_detached,
            completed_ns: batch.seen_ns,
            resumed_ns: None,
            batches: vec![batch],
        };
        let at_round = live.last().rounds.len();
        live.last().rounds.push(round);
        live.awaited = if is_detached { live.awaited } else { Some(at_round) };
        live.on_the_way += 1;
        let place = Place { number: live.txn.number, at_try: live.txn.tries.len() - 1, at_round };
        self.flights.insert(ticket, place);
    }

    fn sent(&mut self, message: Message, now: Nanos) {
        self.look(now);
        if let Some(live) = self.current() {
            live.last().messages.push(message);
        }
    }

    fn round(&mut self, ticket: u64) -> Option<&mut Round> {
        let Place { number, at_try, at_round } = *self.flights.get(&ticket)?;
        Some(&mut self.live.get_mut(&number)?.txn.tries[at_try].rounds[at_round])
    }

    fn completed(&mut self, ticket: u64, verbs: &[Verb], at: Nanos) {
        let holders = self.holders(verbs);
        let Some(round) = self.round(ticket) else { return };
        round.completed_ns = at.0;
        for batch in &mut round.batches {
            let done = batch_verbs(verbs, NodeSlot(batch.to));
            for (asked, done) in batch.verbs.iter_mut().zip(done) {
                if done.is(VerbKind::CompareAndSwap) && done.value != asked.swap.0 {
                    asked.refused = holders.get(&done.value).cloned().or(Some(UNKNOWN.into()));
                }
            }
        }
        let number = self.flights.remove(&ticket).expect("it was looked up").number;
        self.live.get_mut(&number).expect("it is live").on_the_way -= 1;
        self.settle(number);
    }

    /// Returns the holders of the locks that these verbs tried to take and found held.
    fn holders(&self, verbs: &[Verb]) -> BTreeMap<u64, String> {
        let swaps = verbs.iter().filter(|verb| verb.is(VerbKind::CompareAndSwap));
        let refused = swaps.filter(|verb| verb.value != verb.expected);
        let holder = |verb: &Verb| {
            let holder = self.tags.iter().find(|(_, tags)| tags.contains(&verb.value));
            let name = match (verb.value, holder) {
                (0, _) => "nobody".to_owned(),
                (_, Some((coordinator, _))) => format!("coordinator {coordinator}"),
                (_, None) => "somebody".to_owned(),
            };
            (verb.value, name)
        };
        refused.map(holder).collect()
    }

    /// Decides whether the recorder keeps a transaction that has ended and whose rounds are all complete.
    fn settle(&mut self, number: u64) {
        let over = |live: &&Live| live.has_ended && live.on_the_way == 0;
        if self.live.get(&number).filter(over).is_none() {
            return;
        }
        let txn = self.live.remove(&number).expect("it was seen").txn;
        self.ended += 1;
        let Some(rank) = rank(self.wanted.pick, &txn) else { return };
        let at = self.kept.partition_point(|(other, _)| *other < rank);
        if at < self.wanted.transactions {
            self.kept.insert(at, (rank, txn));
            self.kept.truncate(self.wanted.transactions);
        }
    }
}
