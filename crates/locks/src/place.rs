//! One lock as one machine sees it: the requests of the machine's clients, the lock's agent if it is here, and packets that came before
//! the agent.
//!
//! Invariants: an agent is installed only for a request that still waits, or whose client has given it up; a request that was given up
//! releases the lock as soon as it is granted. A release goes straight to the agent's machine. An agent that asks to free or transfer its
//! lock is parked, and acts again only when the decider has refused. A packet for an agent that may still come is stashed; without a
//! request that waits and without a parked agent it is known to be counted, and is acknowledged and dropped.

use crate::agent::{Agent, Conduct, Next};
use crate::packet::{Answer, Ask, Notice, NoticeKind, NoticeName, Payload, Verdict, Waiter};
use crate::recovery::Seat;
use crate::rules::Rule;
use crate::value::{Machine, Mode, Policy, RequestId, Token, View};

/// The state of a client's request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// It waits.
    Waits,
    /// Its client has given it up.
    GivenUp,
    /// It holds the lock.
    Holds {
        /// The machine of the agent.
        agent: Machine,
        /// The number of its acquire, if the decider granted it beside others.
        number: Option<u64>,
        /// Its token.
        token: Token,
    },
}

/// A client's request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Request {
    /// The request, and how it wants the lock.
    pub waiter: Waiter,
    /// Its state.
    pub state: State,
}

/// An agent that has asked to free or to transfer its lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Parked {
    agent: Agent,
    /// The count that it named.
    count: u64,
    /// The next holder, and its place in the queue; `None`: the lock is to be free.
    next: Option<(usize, Waiter)>,
}

/// What a machine does about a lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Ask the decider, on the lane of the thread whose event it is.
    Ask(Ask),
    /// Send a notice to a machine until it is acknowledged. `is_sent`: the decider has sent it once.
    Send {
        /// The machine, which may be this one.
        to: Machine,
        /// The notice.
        notice: Notice,
        /// The decider has sent it once.
        is_sent: bool,
    },
    /// A notice need not be sent again.
    Forget(NoticeName),
    /// Acknowledge a notice.
    Acknowledge {
        /// The machine that sends it.
        to: Machine,
        /// The notice.
        name: NoticeName,
    },
    /// Tell a client that its request holds the lock.
    Granted(RequestId, Token),
    /// Tell a client that its request waits at the agent.
    Queued(RequestId),
}

/// One lock on one machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Place {
    requests: Vec<Request>,
    agent: Option<Agent>,
    parked: Option<Parked>,
    /// Notices that came before the agent. None of them is acknowledged yet.
    stash: Vec<Notice>,
}

/// How a machine behaves, and which machine it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Here {
    /// This machine.
    pub machine: Machine,
    /// How its agents behave.
    pub conduct: Conduct,
    /// The decider sends copies and agents on itself.
    pub decider_sends: bool,
}

type Effects = Vec<Effect>;

impl Place {
    /// Whether nothing is known of the lock here: it need not be kept.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
            && self.agent.is_none()
            && self.parked.is_none()
            && self.stash.is_empty()
    }

    /// The requests of this machine's clients.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// The installed agent.
    #[must_use]
    pub fn agent(&self) -> Option<&Agent> {
        self.agent.as_ref()
    }

    /// A client asks for the lock.
    pub fn acquire(&mut self, here: Here, waiter: Waiter, effects: &mut Effects) {
        let policy = here.conduct.policy;
        let Some(agent) = &mut self.agent else {
            self.requests.push(Request { waiter, state: State::Waits });
            let bars_readers = waiter.mode == Mode::Exclusive && policy != Policy::ReadsFirst;
            effects.push(Effect::Ask(Ask::Acquire { waiter, bars_readers }));
            return;
        };
        if agent.admits(waiter.mode, policy) {
            agent.hold(waiter.request, here.conduct.rules);
            let token = agent.token;
            let state = State::Holds { agent: here.machine, number: None, token };
            self.requests.push(Request { waiter, state });
            effects.push(Effect::Granted(waiter.request, token));
            return;
        }
        if agent.enqueue(waiter, policy) {
            effects.push(Effect::Ask(Ask::BarReaders));
        }
        self.requests.push(Request { waiter, state: State::Waits });
        effects.push(Effect::Queued(waiter.request));
        self.settle(here, effects);
    }

    /// A client releases the lock. Whether its request held it.
    pub fn release(&mut self, here: Here, request: RequestId, effects: &mut Effects) -> bool {
        let is_it = |it: &Request| it.waiter.request == request;
        let Some(at) = self.requests.iter().position(is_it) else { return false };
        let State::Holds { agent, number, .. } = self.requests[at].state else { return false };
        self.requests.remove(at);
        self.give_back(here, request, (agent, number), effects);
        self.tidy(effects);
        true
    }

    /// Sends a holder's release to the agent.
    pub fn give_back(
        &mut self,
        here: Here,
        request: RequestId,
        (agent, number): (Machine, Option<u64>),
        effects: &mut Effects,
    ) {
        let notice = Notice::Release { request, number };
        if agent != here.machine {
            // The release counts the acquire.
            let copy = NoticeName { kind: NoticeKind::Joined, request };
            if here.conduct.rules.keep(Rule::ReleaseCounts) && number.is_some() {
                effects.push(Effect::Forget(copy));
            }
            effects.push(Effect::Send { to: agent, notice, is_sent: false });
            return;
        }
        let is_published = !here.conduct.rules.keep(Rule::ReleaseAtAgent);
        if is_published && self.agent.is_none() {
            effects.push(Effect::Ask(Ask::Release));
            return;
        }
        self.notice(here, notice, effects);
    }

    /// Removes a holder without telling its agent. Returns whether the request held the lock.
    pub fn forget(&mut self, request: RequestId) -> bool {
        let holds =
            |it: &Request| it.waiter.request == request && matches!(it.state, State::Holds { .. });
        let at = self.requests.iter().position(holds);
        at.map(|at| self.requests.remove(at)).is_some()
    }

    /// Begins a new view: the agent, and all notices for it, are gone, and so are requests that were given up. Returns the requests that
    /// waited at the agent, in their order.
    pub fn reset(&mut self) -> Vec<RequestId> {
        let agent = self.agent.take().or(self.parked.take().map(|parked| {
            let mut agent = parked.agent;
            if let Some((at, waiter)) = parked.next {
                agent.refuse(0, Some((at, waiter)));
            }
            agent
        }));
        self.parked = None;
        self.stash.clear();
        self.requests.retain(|it| it.state != State::GivenUp);
        agent.iter().flat_map(Agent::queue).map(|waiter| waiter.request).collect()
    }

    /// Takes a seat in a new view: the lock's agent is elsewhere, or it is installed here. `is_gone` names holders that have released the
    /// lock since they were submitted.
    pub fn seat(
        &mut self,
        here: Here,
        view: View,
        seat: &Seat,
        is_gone: impl Fn(RequestId) -> bool,
        effects: &mut Effects,
    ) {
        for it in &mut self.requests {
            if let State::Holds { agent, number, .. } = &mut it.state {
                (*agent, *number) = (seat.agent, None);
            }
        }
        if let Some(tenure) = &seat.tenure {
            let token = Token { view, order: 0 };
            let mut agent = Agent::seated(tenure, token, here.conduct);
            tenure
                .holders
                .iter()
                .filter(|holder| is_gone(**holder))
                .for_each(|holder| agent.leave(*holder, here.conduct));
            self.agent = Some(agent);
            self.settle(here, effects);
        }
    }

    /// A client gives up a request that waits. Whether it did wait.
    pub fn give_up(&mut self, here: Here, request: RequestId, effects: &mut Effects) -> bool {
        let waits = |it: &&mut Request| it.waiter.request == request && it.state == State::Waits;
        let Some(it) = self.requests.iter_mut().find(waits) else { return false };
        it.state = State::GivenUp;
        self.settle(here, effects);
        self.tidy(effects);
        true
    }

    /// Takes up a request that was given up and is still on its way, as if it had never been given up: it keeps its place in the queue.
    pub fn take_up(&mut self, mode: Mode) -> Option<RequestId> {
        let is_it = |it: &&mut Request| it.state == State::GivenUp && it.waiter.mode == mode;
        let it = self.requests.iter_mut().find(is_it)?;
        it.state = State::Waits;
        Some(it.waiter.request)
    }

    /// The decider has answered a question of this machine. `is_fresh`: it has sent the copy that goes with it.
    pub fn answered(
        &mut self,
        here: Here,
        (ask, answer, token): (&Ask, Answer, Token),
        effects: &mut Effects,
    ) {
        match *ask {
            Ask::Acquire { waiter, .. } => self.decided(here, waiter, (answer, token), effects),
            Ask::Free { count } => self.parted(here, (count, None), answer, token, effects),
            Ask::Transfer { count, next, .. } => {
                self.parted(here, (count, Some(next)), answer, token, effects);
            }
            Ask::BarReaders | Ask::Release => {}
        }
        self.tidy(effects);
    }

    fn decided(
        &mut self,
        here: Here,
        waiter: Waiter,
        (answer, token): (Answer, Token),
        effects: &mut Effects,
    ) {
        let Some(agent) = answer.agent else { return };
        let number = answer.number;
        match answer.verdict {
            Verdict::Granted => {
                let payload = Payload { counted: number, queue: Vec::new() };
                self.install(here, waiter, (payload, token), effects);
            }
            Verdict::Joined => {
                let Some(at) = self.waiting(here, waiter.request) else { return };
                if self.requests[at].state == State::GivenUp {
                    let request = self.requests.remove(at).waiter.request;
                    return self.give_back(here, request, (agent, Some(number)), effects);
                }
                let request = self.requests[at].waiter.request;
                self.requests[at].state = State::Holds { agent, number: Some(number), token };
                effects.push(Effect::Granted(request, token));
                let notice = Notice::Copy { waiter, number, granted: true };
                effects.push(Effect::Send { to: agent, notice, is_sent: here.decider_sends });
            }
            // Of a request that does not wait any more, the agent has counted the acquire.
            Verdict::Queued if self.waiting(here, waiter.request).is_some() => {
                let notice = Notice::Copy { waiter, number, granted: false };
                effects.push(Effect::Send { to: agent, notice, is_sent: false });
                effects.push(Effect::Queued(waiter.request));
            }
            Verdict::Queued | Verdict::Done | Verdict::Refused => {}
        }
    }

    /// The place of a request that waits for its grant.
    fn waiting(&self, here: Here, request: RequestId) -> Option<usize> {
        let is_exact = here.conduct.rules.keep(Rule::GrantsAreForRequests);
        self.requests.iter().position(|it| {
            let own = it.waiter.request;
            let is_it = match is_exact {
                true => own == request,
                false => (own.machine, own.thread) == (request.machine, request.thread),
            };
            is_it && matches!(it.state, State::Waits | State::GivenUp)
        })
    }

    /// The decider's answer to a parked agent.
    fn parted(
        &mut self,
        here: Here,
        (count, next): (u64, Option<Waiter>),
        answer: Answer,
        token: Token,
        effects: &mut Effects,
    ) {
        let asked = |parked: &Parked| {
            parked.count == count && parked.next.map(|(_, waiter)| waiter) == next
        };
        if !self.parked.as_ref().is_some_and(asked) {
            return;
        }
        let Some(mut parked) = self.parked.take() else { return };
        if answer.verdict == Verdict::Refused {
            parked.agent.refuse(answer.number, parked.next);
            self.agent = Some(parked.agent);
            self.unstash(here, effects);
            self.settle(here, effects);
            return;
        }
        if let Some(holder) = next {
            let queue = parked.agent.payload(here.conduct).queue;
            let payload = Payload { counted: answer.number, queue };
            let from = here.machine;
            let notice = Notice::Install { holder, from, payload, token };
            effects.push(Effect::Send { to: holder.request.machine, notice, is_sent: false });
        }
    }

    /// A notice has come.
    pub fn notice(&mut self, here: Here, notice: Notice, effects: &mut Effects) {
        match notice {
            Notice::Copy { .. } | Notice::Release { .. } => self.for_agent(here, notice, effects),
            Notice::Grant { request, agent, token } => {
                effects.push(acknowledge(&notice));
                if let Some(at) = self.waiting(here, request) {
                    self.granted(here, at, (agent, token), effects);
                }
            }
            Notice::Install { holder, ref payload, token, .. } => {
                effects.push(acknowledge(&notice));
                self.install(here, holder, (payload.clone(), token), effects);
            }
        }
        self.tidy(effects);
    }

    /// The agent of another machine has let a request in.
    fn granted(
        &mut self,
        here: Here,
        at: usize,
        (agent, token): (Machine, Token),
        effects: &mut Effects,
    ) {
        let Request { waiter, state } = self.requests[at];
        if state == State::GivenUp {
            self.requests.remove(at);
            return self.give_back(here, waiter.request, (agent, None), effects);
        }
        self.requests[at].state = State::Holds { agent, number: None, token };
        effects.push(Effect::Granted(waiter.request, token));
    }

    /// The lock comes with its agent, unless the request has had it before.
    fn install(
        &mut self,
        here: Here,
        holder: Waiter,
        (payload, token): (Payload, Token),
        effects: &mut Effects,
    ) {
        let Some(at) = self.waiting(here, holder.request) else { return };
        let Request { waiter, state } = self.requests[at];
        // The decider has accepted what a parked agent asked for: otherwise no agent could come.
        self.parked = None;
        let mut agent = Agent::new(holder, payload, token);
        for request in agent.companions(here.conduct) {
            effects.push(grant(here, request, token));
        }
        if state == State::GivenUp {
            self.requests.remove(at);
            agent.leave(holder.request, here.conduct);
        } else {
            self.requests[at].state = State::Holds { agent: here.machine, number: None, token };
            effects.push(Effect::Granted(waiter.request, token));
        }
        self.agent = Some(agent);
        self.unstash(here, effects);
        self.settle(here, effects);
    }

    /// The next holder's machine has acknowledged the agent.
    pub fn handed_over(&mut self, next: RequestId, effects: &mut Effects) {
        let is_it =
            |parked: &mut Parked| parked.next.is_some_and(|(_, waiter)| waiter.request == next);
        self.parked.take_if(is_it);
        self.tidy(effects);
    }

    /// Whether the machine keeps the agent until this request's machine has acknowledged it.
    #[must_use]
    pub fn hands_over(&self, next: RequestId) -> bool {
        self.parked
            .as_ref()
            .and_then(|parked| parked.next)
            .is_some_and(|(_, waiter)| waiter.request == next)
    }

    /// A copy or a release comes for the lock's agent.
    fn for_agent(&mut self, here: Here, notice: Notice, effects: &mut Effects) {
        if self.agent.is_some() {
            effects.push(acknowledge(&notice));
            self.count(here, &notice, effects);
            return self.settle(here, effects);
        }
        let is_lost = !here.conduct.rules.keep(Rule::ReleaseCounts)
            && matches!(notice, Notice::Release { .. });
        if is_lost || !self.may_have_agent() {
            effects.push(acknowledge(&notice));
        } else if !self.stash.contains(&notice) {
            self.stash.push(notice);
        }
    }

    /// The installed agent counts a copy or a release.
    fn count(&mut self, here: Here, notice: &Notice, effects: &mut Effects) {
        let Here { conduct, .. } = here;
        let Some(agent) = &mut self.agent else { return };
        match *notice {
            Notice::Copy { waiter, number, granted } => {
                let Waiter { request, mode } = waiter;
                if !agent.note(number, mode, conduct) {
                    return;
                }
                if granted {
                    agent.hold(request, conduct.rules);
                } else if agent.admits(mode, conduct.policy) {
                    agent.hold(request, conduct.rules);
                    if conduct.rules.keep(Rule::AgentGrants) {
                        effects.push(grant(here, request, agent.token));
                    }
                } else {
                    agent.note_barred(mode);
                    agent.enqueue(waiter, conduct.policy);
                }
            }
            Notice::Release { request, number } => {
                let counts = conduct.rules.keep(Rule::ReleaseCounts)
                    && conduct.rules.keep(Rule::NumberAcquires);
                if let Some(number) = number.filter(|_| counts) {
                    agent.note(number, Mode::Shared, conduct);
                }
                agent.leave(request, conduct);
            }
            Notice::Grant { .. } | Notice::Install { .. } => {}
        }
    }

    /// Whether an agent may still come, or come back.
    fn may_have_agent(&self) -> bool {
        let waits = |it: &Request| matches!(it.state, State::Waits | State::GivenUp);
        self.parked.is_some() || self.requests.iter().any(waits)
    }

    /// Whether a copy or a release changes nothing here any more, but that it is acknowledged.
    #[must_use]
    pub fn has_counted(&self, notice: &Notice, conduct: Conduct) -> bool {
        let Some(agent) = &self.agent else { return !self.may_have_agent() };
        match *notice {
            Notice::Copy { number, .. } => agent.has_counted(number, conduct),
            Notice::Release { request, number } => {
                number.is_none_or(|number| agent.has_counted(number, conduct))
                    && !agent.holders().contains(&request)
            }
            Notice::Grant { .. } | Notice::Install { .. } => false,
        }
    }

    fn unstash(&mut self, here: Here, effects: &mut Effects) {
        for notice in std::mem::take(&mut self.stash) {
            effects.push(acknowledge(&notice));
            self.count(here, &notice, effects);
        }
    }

    /// An agent without holders goes on: it frees its lock, or hands it over.
    fn settle(&mut self, here: Here, effects: &mut Effects) {
        let Here { machine, conduct, .. } = here;
        let Place { agent: Some(agent), requests, .. } = self else { return };
        agent.drop_waiters(|waiter| {
            let given_up = Request { waiter: *waiter, state: State::GivenUp };
            let at = requests.iter().position(|it| *it == given_up);
            at.filter(|_| waiter.request.machine == machine).map(|at| requests.remove(at)).is_some()
        });
        let Some(next) = agent.next(conduct) else { return };
        let Some(mut agent) = self.agent.take() else { return };
        let count = agent.count(conduct);
        let next = match next {
            Next::Free => None,
            Next::Transfer(at) => Some((at, agent.take(at))),
        };
        effects.push(Effect::Ask(match next {
            None => Ask::Free { count },
            Some((_, next)) => Ask::Transfer {
                count,
                next,
                bars_readers: agent.bars_readers(conduct.policy),
                payload: agent.payload(conduct),
            },
        }));
        self.parked = Some(Parked { agent, count, next });
    }

    /// Stashed notices are counted already where no agent may come any more.
    fn tidy(&mut self, effects: &mut Effects) {
        if self.agent.is_none() && !self.may_have_agent() {
            effects.extend(self.stash.drain(..).map(|notice| acknowledge(&notice)));
        }
    }
}

fn acknowledge(notice: &Notice) -> Effect {
    Effect::Acknowledge { to: notice.sender(), name: notice.name() }
}

fn grant(here: Here, request: RequestId, token: Token) -> Effect {
    let notice = Notice::Grant { request, agent: here.machine, token };
    Effect::Send { to: request.machine, notice, is_sent: false }
}
