//! The decider: one entry a lock, which says whether the lock is free, how it is held, and on which machine its agent is.
//!
//! Invariants: an entry's count numbers every acquire and every transfer, and never goes back. A lock is freed or transferred only if the
//! agent has counted all acquires so far. A lane's questions are decided in the order of their numbers, each once; a question that comes
//! again has the recorded answer.
//! After Zhang, Cheng, Chen, Chen, "Fast and Scalable In-network Lock Management Using Lock Fission", OSDI 2024, with its faults mended
//! ([`crate::rules`]).

use crate::packet::{Answer, Ask, LaneId, Notice, Payload, Question, Reply, Verdict, Waiter};
use crate::rules::{Rule, Rules};
use crate::value::{LockId, Machine, Mode, Token, View, Width};

/// The state of a lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Held {
    /// The machine of the agent.
    pub agent: Machine,
    /// How the lock is held.
    pub mode: Mode,
    /// Shared requests wait, because an exclusive one does.
    pub bars_readers: bool,
}

/// A lock at the decider.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Entry {
    /// Numbers acquires and transfers.
    pub count: u64,
    /// `None`: the lock is free.
    pub held: Option<Held>,
}

/// Decides one question of a machine about one lock.
#[inline]
#[must_use]
pub fn step(
    entry: Entry,
    source: Machine,
    ask: &Ask,
    (width, rules): (Width, Rules),
) -> (Entry, Answer) {
    match *ask {
        Ask::Acquire { waiter, bars_readers } => {
            acquire(entry, waiter, bars_readers, (width, rules))
        }
        Ask::Free { count } => match entry.count == width.cut(count) {
            true => done(Entry { held: None, ..entry }),
            false => refused(entry),
        },
        Ask::Transfer { count, next, bars_readers, .. } => match entry.count == width.cut(count) {
            true => {
                let held = Held { agent: next.request.machine, mode: next.mode, bars_readers };
                let numbered = rules.keep(Rule::NumberAcquires);
                let count = width.cut(entry.count + u64::from(numbered));
                done(Entry { count, held: Some(held) })
            }
            false => refused(entry),
        },
        Ask::BarReaders => {
            let held = entry.held.map(|held| Held { bars_readers: true, ..held });
            done(Entry { held, ..entry })
        }
        Ask::Release => {
            let is_agents = entry.held.is_some_and(|held| held.agent == source);
            done(Entry { held: entry.held.filter(|_| !is_agents), ..entry })
        }
    }
}

fn acquire(
    entry: Entry,
    waiter: Waiter,
    bars_readers: bool,
    (width, rules): (Width, Rules),
) -> (Entry, Answer) {
    let mode = waiter.mode;
    let joins =
        |held: &Held| (held.mode, mode) == (Mode::Shared, Mode::Shared) && !held.bars_readers;
    let is_counted = rules.keep(Rule::NumberAcquires) || entry.held.as_ref().is_some_and(joins);
    let count = width.cut(entry.count + u64::from(is_counted));
    let (verdict, held) = match entry.held {
        None => {
            (Verdict::Granted, Held { agent: waiter.request.machine, mode, bars_readers: false })
        }
        Some(held) if joins(&held) => (Verdict::Joined, held),
        Some(held) => {
            let bars_readers = held.bars_readers || (bars_readers && mode == Mode::Exclusive);
            (Verdict::Queued, Held { bars_readers, ..held })
        }
    };
    let answer = Answer { verdict, agent: Some(held.agent), number: count };
    (Entry { count, held: Some(held) }, answer)
}

fn done(entry: Entry) -> (Entry, Answer) {
    let agent = entry.held.map(|held| held.agent);
    (entry, Answer { verdict: Verdict::Done, agent, number: entry.count })
}

fn refused(entry: Entry) -> (Entry, Answer) {
    let agent = entry.held.map(|held| held.agent);
    (entry, Answer { verdict: Verdict::Refused, agent, number: entry.count })
}

/// How many packets a decider may send for one that it receives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fanout {
    /// It answers, and sends the copy of an acquire and the agent of a transfer on itself: a switch, a process.
    Sends,
    /// It answers the sender alone, which sends the rest: an XDP program.
    Answers,
}

/// A packet that the decider sends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Sent {
    /// An answer to the question's sender.
    Reply(Reply),
    /// A notice that the decider sends on.
    Notice {
        /// The machine that it is for.
        to: Machine,
        /// The view of the decider.
        view: View,
        /// The lock.
        lock: LockId,
        /// The notice.
        notice: Notice,
    },
}

/// How a decider is set up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Setup {
    /// Bits of a count.
    pub width: Width,
    /// What it sends.
    pub fanout: Fanout,
    /// Questions of a lane that may be unanswered at once.
    pub window: u32,
    /// The rules that are kept.
    pub rules: Rules,
}

impl Setup {
    /// A process on a server.
    pub const PROCESS: Setup =
        Setup { width: Width::WIDE, fanout: Fanout::Sends, window: 64, rules: Rules::ALL };

    /// The bits of counts as the rules have them.
    #[must_use]
    pub fn counts(&self) -> (Width, Rules) {
        let is_wide = self.rules.keep(Rule::WideCounters);
        (if is_wide { self.width } else { Width::of_bits(2) }, self.rules)
    }
}

impl Setup {
    /// Whether tokens count the packets of all locks, because a lock's count wraps.
    fn counts_packets(&self) -> bool {
        self.counts().0 != Width::WIDE || !self.rules.keep(Rule::NumberAcquires)
    }
}

/// The receiving end of a lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lane {
    /// The number that was accepted last.
    last: u32,
    /// Answers by the number modulo the window.
    answers: Vec<Option<Answer>>,
}

/// A packet's place on its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It is the next one.
    Fresh,
    /// It came before, and was answered so.
    Again(Answer),
    /// Packets before it are missing, or it is older than the window: it is dropped.
    Dropped,
}

impl Lane {
    /// Takes note of a packet.
    pub fn accept(&mut self, number: u32, setup: &Setup) -> Arrival {
        let ahead = number.wrapping_sub(self.last);
        let is_next = match setup.rules.keep(Rule::NextNumberOnly) {
            true => ahead == 1,
            false => (1..u32::MAX / 2).contains(&ahead),
        };
        if is_next {
            self.last = number;
            return Arrival::Fresh;
        }
        let age = self.last.wrapping_sub(number);
        if age >= setup.window {
            return Arrival::Dropped;
        }
        match self.answers.get((number % setup.window) as usize).copied().flatten() {
            Some(answer) => Arrival::Again(answer),
            None if setup.rules.keep(Rule::NextNumberOnly) => Arrival::Dropped,
            None => Arrival::Again(Answer { verdict: Verdict::Done, agent: None, number: 0 }),
        }
    }

    /// Records the answer to the packet that was accepted last.
    pub fn record(&mut self, answer: Answer, setup: &Setup) {
        if self.answers.is_empty() {
            self.answers.resize(setup.window as usize, None);
        }
        self.answers[(self.last % setup.window) as usize] = Some(answer);
    }
}

impl Lane {
    /// Forgets the recorded answers to all numbers but those that `keeps` names.
    fn forget(&mut self, keeps: impl Fn(u32) -> bool) {
        let window = self.answers.len() as u32;
        for age in 0..window.min(self.last) {
            let number = self.last - age;
            if !keeps(number) {
                self.answers[(number % window) as usize] = None;
            }
        }
    }
}

/// A question that the decider does not take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is of another view.
    View {
        /// The question's view.
        asked: View,
        /// The decider's view.
        current: View,
    },
    /// The lock is none of the decider's.
    Lock {
        /// The lock asked for.
        asked: LockId,
        /// The number of locks.
        locks: u32,
    },
    /// Packets before it on its lane are missing.
    Gap,
}

/// A decider in memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decider {
    setup: Setup,
    view: View,
    entries: Vec<Entry>,
    lanes: Vec<(LaneId, Lane)>,
    /// Packets so far, where these are the tokens.
    packets: u64,
}

impl Decider {
    /// A decider of `locks` free locks.
    #[must_use]
    pub fn new(setup: Setup, view: View, locks: u32) -> Decider {
        Decider {
            setup,
            view,
            entries: vec![Entry::default(); locks as usize],
            lanes: Vec::new(),
            packets: 0,
        }
    }

    /// A decider of a new view, with the entries that are not free.
    #[must_use]
    pub fn rebuilt(setup: Setup, view: View, locks: u32, entries: &[(LockId, Entry)]) -> Decider {
        let mut decider = Decider::new(setup, view, locks);
        for (lock, entry) in entries {
            if let Some(free) = decider.entries.get_mut(lock.0 as usize) {
                *free = *entry;
            }
        }
        decider
    }

    /// The view.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// The number of locks.
    #[must_use]
    pub fn locks(&self) -> u32 {
        self.entries.len() as u32
    }

    /// A lock's entry, if the lock is one of the decider's.
    #[must_use]
    pub fn entry(&self, lock: LockId) -> Option<&Entry> {
        self.entries.get(lock.0 as usize)
    }

    /// Forgets recorded answers. The search uses it for answers that no machine can ask for again, so that states that differ in nothing
    /// else are one.
    pub(crate) fn forget(&mut self, keeps: impl Fn(LaneId, u32) -> bool) {
        for (id, lane) in &mut self.lanes {
            lane.forget(|number| keeps(*id, number));
        }
    }

    /// Takes in a question, and hands the packets to send to `send`.
    ///
    /// # Errors
    /// A question that it does not take: nothing is changed, nothing is sent.
    pub fn receive(
        &mut self,
        question: &Question,
        send: &mut impl FnMut(Sent),
    ) -> Result<(), Refusal> {
        if question.view != self.view {
            return Err(Refusal::View { asked: question.view, current: self.view });
        }
        let locks = self.entries.len() as u32;
        let Some(&entry) = self.entry(question.lock) else {
            return Err(Refusal::Lock { asked: question.lock, locks });
        };
        let setup = self.setup;
        self.packets += u64::from(setup.counts_packets());
        let lane = lane_of(&mut self.lanes, question.lane);
        let answer = match lane.accept(question.number, &setup) {
            Arrival::Dropped => return Err(Refusal::Gap),
            Arrival::Again(answer) => {
                send(Sent::Reply(self.reply(question, answer)));
                return Ok(());
            }
            Arrival::Fresh => {
                let machine = question.lane.machine;
                let (next, answer) = step(entry, machine, &question.ask, setup.counts());
                lane.record(answer, &setup);
                self.entries[question.lock.0 as usize] = next;
                answer
            }
        };
        self.send_fresh(question, answer, send);
        Ok(())
    }

    fn reply(&self, question: &Question, answer: Answer) -> Reply {
        let Question { lane, number, lock, .. } = *question;
        Reply { view: self.view, lane, number, lock, answer, token: self.token(answer) }
    }

    /// The token of a grant. Where a lock's count may come again in this view, it is the number of the packet.
    fn token(&self, answer: Answer) -> Token {
        let order = if self.setup.counts_packets() { self.packets } else { answer.number };
        Token { view: self.view, order }
    }

    fn send_fresh(&self, question: &Question, answer: Answer, send: &mut impl FnMut(Sent)) {
        let reply = Sent::Reply(self.reply(question, answer));
        let notice = match (&question.ask, answer.verdict) {
            _ if self.setup.fanout == Fanout::Answers => None,
            (Ask::Acquire { waiter, .. }, Verdict::Joined | Verdict::Queued) => {
                let granted = answer.verdict == Verdict::Joined;
                Some(Notice::Copy { waiter: *waiter, number: answer.number, granted })
            }
            (Ask::Transfer { next, payload, .. }, Verdict::Done) => Some(Notice::Install {
                holder: *next,
                from: question.lane.machine,
                payload: Payload { counted: answer.number, queue: payload.queue.clone() },
                token: self.token(answer),
            }),
            _ => None,
        };
        // A copy or an agent that goes on is acknowledged by the machine that takes it in.
        let replies = answer.verdict == Verdict::Joined || notice.is_none();
        if replies {
            send(reply);
        }
        if let (Some(notice), Some(to)) = (notice, answer.agent) {
            send(Sent::Notice { to, view: self.view, lock: question.lock, notice });
        }
    }
}

fn lane_of(lanes: &mut Vec<(LaneId, Lane)>, id: LaneId) -> &mut Lane {
    let at = match lanes.binary_search_by_key(&id, |(id, _)| *id) {
        Ok(at) => at,
        Err(at) => {
            lanes.insert(at, (id, Lane::default()));
            at
        }
    };
    &mut lanes[at].1
}
