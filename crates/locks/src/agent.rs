//! A lock's agent: its holders, its waiters, and the acquires that it has counted.
//!
//! Invariants: an exclusive holder is alone. An acquire is counted once, however often its copy or its release comes. The agent is done
//! with a lock when it has no holder and no acquire before the last counted one is missing.

use crate::packet::{Payload, Waiter};
use crate::recovery::Tenure;
use crate::rules::{Rule, Rules};
use crate::value::{Machine, Mode, Policy, RequestId, Token, Width};
use std::collections::VecDeque;

/// An agent on a machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Agent {
    /// How the lock is held.
    pub mode: Mode,
    /// The token of the holder that brought the agent here; later shared holders of this agent have it too.
    pub token: Token,
    /// All acquires up to this number are counted.
    counted: u64,
    /// By how much further acquires that are counted are ahead, in order.
    ahead: Vec<u64>,
    holders: Vec<RequestId>,
    queue: VecDeque<Waiter>,
    /// The decider has refused to free or transfer the lock until this number is counted.
    refused: Option<u64>,
    /// The decider has been told that an exclusive request waits.
    has_barred: bool,
}

/// How agents behave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conduct {
    /// Which waiter comes next.
    pub policy: Policy,
    /// Bits of a count.
    pub width: Width,
    /// The rules that are kept.
    pub rules: Rules,
}

/// The next step of an agent without holders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It frees the lock.
    Free,
    /// It hands the lock to the waiter at this place of its queue.
    Transfer(usize),
}

impl Agent {
    /// An agent that arrives with its first holder.
    #[must_use]
    pub fn new(holder: Waiter, payload: Payload, token: Token) -> Agent {
        Agent {
            mode: holder.mode,
            token,
            counted: payload.counted,
            ahead: Vec::new(),
            holders: vec![holder.request],
            queue: payload.queue.into(),
            refused: None,
            has_barred: false,
        }
    }

    /// An agent that is elected when a view begins.
    #[must_use]
    pub fn seated(tenure: &Tenure, token: Token, conduct: Conduct) -> Agent {
        let mut holders = tenure.holders.clone();
        holders.sort_unstable();
        let mut agent = Agent {
            mode: tenure.mode,
            token,
            counted: 0,
            ahead: Vec::new(),
            holders,
            queue: tenure.queue.iter().copied().collect(),
            refused: None,
            has_barred: false,
        };
        agent.has_barred = agent.bars_readers(conduct.policy);
        agent
    }

    /// The count of acquires, for the decider.
    #[must_use]
    pub fn count(&self, conduct: Conduct) -> u64 {
        conduct.width.cut(self.counted + self.ahead.len() as u64)
    }

    /// The requests that hold the lock.
    #[must_use]
    pub fn holders(&self) -> &[RequestId] {
        &self.holders
    }

    /// The requests that wait here.
    pub fn queue(&self) -> impl Iterator<Item = &Waiter> {
        self.queue.iter()
    }

    /// Whether an acquire is counted.
    #[must_use]
    pub fn has_counted(&self, number: u64, conduct: Conduct) -> bool {
        match conduct.width.ahead(number, self.counted) {
            Some(by) => self.ahead.binary_search(&by).is_ok(),
            None => true,
        }
    }

    /// Counts an acquire. Whether it was not counted before.
    pub fn note(&mut self, number: u64, mode: Mode, conduct: Conduct) -> bool {
        if !conduct.rules.keep(Rule::NumberAcquires) {
            self.counted += u64::from(mode == Mode::Shared);
            return true;
        }
        let Some(by) = conduct.width.ahead(number, self.counted) else { return false };
        let Err(place) = self.ahead.binary_search(&by) else { return false };
        self.ahead.insert(place, by);
        let run = self.ahead.iter().zip(1..).take_while(|(by, next)| **by == *next).count();
        self.ahead.drain(..run);
        self.ahead.iter_mut().for_each(|by| *by -= run as u64);
        self.counted = conduct.width.cut(self.counted + run as u64);
        true
    }

    /// Whether a shared request may join the holders now.
    #[must_use]
    pub fn admits(&self, mode: Mode, policy: Policy) -> bool {
        let waits = |waiter: &Waiter| waiter.mode == Mode::Exclusive;
        (self.mode, mode) == (Mode::Shared, Mode::Shared)
            && (policy == Policy::ReadsFirst || !self.queue.iter().any(waits))
    }

    /// Adds a holder.
    pub fn hold(&mut self, request: RequestId, rules: Rules) {
        if !self.holders.iter().any(|holder| is_same(*holder, request, rules)) {
            self.holders.push(request);
            self.holders.sort_unstable();
        }
    }

    /// Adds a waiter. Whether the decider is to be told that an exclusive request waits.
    pub fn enqueue(&mut self, waiter: Waiter, policy: Policy) -> bool {
        self.queue.push_back(waiter);
        let is_news = policy != Policy::ReadsFirst
            && (self.mode, waiter.mode) == (Mode::Shared, Mode::Exclusive)
            && !self.has_barred;
        self.has_barred |= is_news;
        is_news
    }

    /// An exclusive request that the decider has numbered waits: the decider knows.
    pub fn note_barred(&mut self, mode: Mode) {
        self.has_barred |= mode == Mode::Exclusive;
    }

    /// Removes a holder.
    pub fn leave(&mut self, request: RequestId, conduct: Conduct) {
        let is_its = |holder: &RequestId| is_same(*holder, request, conduct.rules);
        if let Some(at) = self.holders.iter().position(is_its) {
            self.holders.remove(at);
        }
    }

    /// Takes waiters out that will not hold the lock.
    pub fn drop_waiters(&mut self, mut is_gone: impl FnMut(&Waiter) -> bool) {
        self.queue.retain(|waiter| !is_gone(waiter));
    }

    /// Takes out the waiters that may hold the lock beside its holder: with them an agent of a shared lock begins.
    pub fn companions(&mut self, conduct: Conduct) -> Vec<RequestId> {
        if self.mode == Mode::Exclusive {
            return Vec::new();
        }
        let is_shared = |waiter: &Waiter| waiter.mode == Mode::Shared;
        let taken: Vec<Waiter> = match conduct.policy {
            Policy::ReadsFirst => self.queue.iter().copied().filter(is_shared).collect(),
            Policy::WritesFirst if !self.queue.iter().all(is_shared) => Vec::new(),
            _ => self.queue.iter().copied().take_while(is_shared).collect(),
        };
        self.queue.retain(|waiter| !taken.contains(waiter));
        let taken: Vec<RequestId> = taken.iter().map(|waiter| waiter.request).collect();
        taken.iter().for_each(|&request| self.hold(request, conduct.rules));
        taken
    }

    /// The agent's next step, if it has no holder and misses no acquire that it knows of.
    #[must_use]
    pub fn next(&self, conduct: Conduct) -> Option<Next> {
        let waits =
            self.refused.is_some_and(|until| conduct.width.ahead(until, self.counted).is_some());
        if !self.holders.is_empty() || !self.ahead.is_empty() || waits {
            return None;
        }
        let first = |mode| self.queue.iter().position(|waiter| waiter.mode == mode);
        let preferred = match conduct.policy {
            Policy::ReadsFirst => first(Mode::Shared),
            Policy::WritesFirst => first(Mode::Exclusive),
            Policy::InOrder => None,
        };
        match preferred.or((!self.queue.is_empty()).then_some(0)) {
            Some(at) => Some(Next::Transfer(at)),
            None => Some(Next::Free),
        }
    }

    /// Takes a waiter out.
    ///
    /// # Panics
    /// If there is none at that place.
    pub fn take(&mut self, at: usize) -> Waiter {
        self.queue.remove(at).expect("a waiter at its place")
    }

    /// Puts a waiter back, and waits for an acquire that the decider knows.
    pub fn refuse(&mut self, until: u64, waiter: Option<(usize, Waiter)>) {
        self.refused = Some(until);
        if let Some((at, waiter)) = waiter {
            self.queue.insert(at, waiter);
        }
    }

    /// Whether an exclusive request waits.
    #[must_use]
    pub fn bars_readers(&self, policy: Policy) -> bool {
        policy != Policy::ReadsFirst
            && self.queue.iter().any(|waiter| waiter.mode == Mode::Exclusive)
    }

    /// The part that moves with the lock.
    #[must_use]
    pub fn payload(&self, conduct: Conduct) -> Payload {
        Payload { counted: self.count(conduct), queue: self.queue.iter().copied().collect() }
    }

    /// Waiters of one machine, which dies.
    pub fn forget_machine(&mut self, machine: Machine) {
        self.queue.retain(|waiter| waiter.request.machine != machine);
        self.holders.retain(|holder| holder.machine != machine);
    }
}

fn is_same(holder: RequestId, request: RequestId, rules: Rules) -> bool {
    match rules.keep(Rule::HoldersAreRequests) {
        true => holder == request,
        false => (holder.machine, holder.thread) == (request.machine, request.thread),
    }
}
