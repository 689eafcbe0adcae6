//! A machine's ends of its links: ordered lanes to the decider, and notices that are sent until they are acknowledged.
//!
//! Invariants: a lane has no more unanswered questions than its window, so that the decider still has the answer to each. A question is
//! retired by its answer, or by the acknowledgement of the copy or the agent that the decider sent on. Packets may be lost, repeated and
//! reordered between the ends.

use crate::packet::{Ask, LaneId, Notice, NoticeKind, NoticeName, Question, Reply};
use crate::place::{Effect, Here, Place};
use crate::value::{LockId, Machine, RequestId, Token, View};
use std::collections::{BTreeMap, VecDeque};

/// A packet that a machine sends.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Packet {
    /// To the decider.
    Question(Question),
    /// To a machine.
    Notice {
        /// The machine.
        to: Machine,
        /// The view of the sender.
        view: View,
        /// The lock.
        lock: LockId,
        /// The notice.
        notice: Notice,
    },
    /// To the machine that sent a notice.
    Acknowledgement {
        /// The machine.
        to: Machine,
        /// The view of the sender.
        view: View,
        /// The lock.
        lock: LockId,
        /// The notice.
        name: NoticeName,
    },
}

/// The results of an event: packets for others, and grants for this machine's clients.
#[derive(Debug, Default)]
pub struct Output {
    /// Packets, in the order in which they are to leave.
    pub packets: Vec<Packet>,
    /// Requests of this machine's clients that hold their lock now.
    pub granted: Vec<(LockId, RequestId, Token)>,
    /// Requests of this machine's clients that are known to wait at an agent.
    pub queued: Vec<(LockId, RequestId)>,
    /// Room for the effects of an event; empty between events.
    pub effects: Vec<Effect>,
}

/// A question that is not answered yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Asked {
    number: u32,
    lock: LockId,
    ask: Ask,
    /// When it was sent last, in the caller's units.
    sent_at: u64,
}

impl Asked {
    /// Whether this question has made the decider send a copy or an agent.
    fn has_sent(&self, lock: LockId, name: NoticeName) -> bool {
        let sent = match &self.ask {
            Ask::Acquire { waiter, .. } => (NoticeKind::Copy, waiter.request),
            Ask::Transfer { next, .. } => (NoticeKind::Install, next.request),
            Ask::Free { .. } | Ask::BarReaders | Ask::Release => return false,
        };
        self.lock == lock && sent == (name.kind, name.request)
    }
}

/// The sending end of a lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LaneEnd {
    id: LaneId,
    window: u32,
    last: u32,
    asked: VecDeque<Asked>,
    backlog: VecDeque<(LockId, Ask)>,
}

impl LaneEnd {
    /// A lane that has sent nothing yet.
    #[must_use]
    pub fn new(id: LaneId, window: u32) -> LaneEnd {
        LaneEnd { id, window, last: 0, asked: VecDeque::new(), backlog: VecDeque::new() }
    }

    /// Whether no question waits for an answer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.backlog.is_empty()
    }

    fn push(&mut self, lock: LockId, ask: Ask) {
        self.backlog.push_back((lock, ask));
    }

    /// Sends questions as far as the window allows.
    fn flush(&mut self, view: View, now: u64, packets: &mut Vec<Packet>) {
        let oldest = self.asked.front().map_or(self.last + 1, |asked| asked.number);
        while self.last + 1 - oldest < self.window {
            let Some((lock, ask)) = self.backlog.pop_front() else { return };
            self.last += 1;
            let asked = Asked { number: self.last, lock, ask, sent_at: now };
            packets.push(self.packet(view, &asked));
            self.asked.push_back(asked);
        }
    }

    fn packet(&self, view: View, asked: &Asked) -> Packet {
        let Asked { number, lock, ref ask, .. } = *asked;
        Packet::Question(Question { view, lane: self.id, number, lock, ask: ask.clone() })
    }

    /// Takes out the question with this number.
    fn answer(&mut self, number: u32) -> Option<(LockId, Ask)> {
        let at = self.asked.iter().position(|asked| asked.number == number)?;
        self.asked.remove(at).map(|asked| (asked.lock, asked.ask))
    }

    /// Takes out the question that sent a copy or an agent on its way.
    fn retire(&mut self, lock: LockId, name: NoticeName) {
        self.asked.retain(|asked| !asked.has_sent(lock, name));
    }

    /// Sends again all questions that were sent at `before` or earlier, in their order.
    fn resend(&mut self, view: View, (before, now): (u64, u64), packets: &mut Vec<Packet>) {
        let is_due = self.asked.iter().any(|asked| asked.sent_at <= before);
        for at in 0..if is_due { self.asked.len() } else { 0 } {
            self.asked[at].sent_at = now;
            packets.push(self.packet(view, &self.asked[at]));
        }
    }
}

/// A notice that is not acknowledged yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Unacknowledged {
    to: Machine,
    notice: Notice,
    sent_at: u64,
}

/// A machine's links.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Links {
    view: View,
    lanes: Vec<LaneEnd>,
    notices: BTreeMap<(LockId, NoticeName), Unacknowledged>,
}

/// The time and the lane of an event.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// In the caller's units; it only goes up.
    pub now: u64,
    /// The place of the lane among the machine's lanes.
    pub lane: usize,
}

impl Links {
    /// Links with these lanes.
    #[must_use]
    pub fn new(view: View, lanes: Vec<LaneEnd>) -> Links {
        Links { view, lanes, notices: BTreeMap::new() }
    }

    /// Begins a new view: nothing of the old one is sent again.
    pub fn begin(&mut self, view: View) {
        self.view = view;
        self.notices.clear();
        self.lanes.iter_mut().for_each(|lane| *lane = LaneEnd::new(lane.id, lane.window));
    }

    /// When the oldest packet that is neither answered nor acknowledged was sent.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        let asked = self.lanes.iter().filter_map(|lane| lane.asked.front());
        let asked = asked.map(|asked| asked.sent_at);
        asked.chain(self.notices.values().map(|notice| notice.sent_at)).min()
    }

    /// Whether nothing waits for an answer or an acknowledgement.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.notices.is_empty() && self.lanes.iter().all(LaneEnd::is_empty)
    }

    /// Carries out what a place wants. Notices to this machine itself are taken in at once.
    pub fn carry_out(
        &mut self,
        (here, lock, place): (Here, LockId, &mut Place),
        at: Moment,
        output: &mut Output,
    ) {
        let mut effects = std::mem::take(&mut output.effects);
        let mut next = 0;
        while next < effects.len() {
            let effect = effects[next].clone();
            next += 1;
            match effect {
                Effect::Ask(ask) => self.lanes[at.lane].push(lock, ask),
                Effect::Send { to, notice, .. } if to == here.machine => {
                    place.notice(here, notice, &mut effects);
                }
                Effect::Send { to, notice, is_sent } => {
                    if !is_sent {
                        let (view, notice) = (self.view, notice.clone());
                        output.packets.push(Packet::Notice { to, view, lock, notice });
                    }
                    let name = notice.name();
                    let unacknowledged = Unacknowledged { to, notice, sent_at: at.now };
                    self.notices.insert((lock, name), unacknowledged);
                }
                Effect::Forget(name) => _ = self.notices.remove(&(lock, name)),
                Effect::Acknowledge { to, name } if to == here.machine => {
                    self.acknowledged((lock, place), name, &mut effects);
                }
                Effect::Acknowledge { to, name } => {
                    let view = self.view;
                    output.packets.push(Packet::Acknowledgement { to, view, lock, name });
                }
                Effect::Granted(request, token) => output.granted.push((lock, request, token)),
                Effect::Queued(request) => output.queued.push((lock, request)),
            }
        }
        effects.clear();
        output.effects = effects;
        self.lanes[at.lane].flush(self.view, at.now, &mut output.packets);
    }

    /// A notice of this machine is acknowledged.
    pub fn acknowledged(
        &mut self,
        (lock, place): (LockId, &mut Place),
        name: NoticeName,
        effects: &mut Vec<Effect>,
    ) {
        self.notices.remove(&(lock, name));
        if matches!(name.kind, NoticeKind::Copy | NoticeKind::Install) {
            self.lanes.iter_mut().for_each(|lane| lane.retire(lock, name));
        }
        match name.kind {
            NoticeKind::Install => place.handed_over(name.request, effects),
            NoticeKind::Copy => effects.push(Effect::Queued(name.request)),
            NoticeKind::Joined | NoticeKind::Release | NoticeKind::Grant => {}
        }
    }

    /// The question that a reply answers, if it is not answered yet, with the place of its lane.
    pub fn answered(&mut self, reply: &Reply) -> Option<(usize, LockId, Ask)> {
        if reply.view != self.view {
            return None;
        }
        let at = self.lanes.iter().position(|lane| lane.id == reply.lane)?;
        self.lanes[at].answer(reply.number).map(|(lock, ask)| (at, lock, ask))
    }

    /// The questions that are not answered yet.
    pub fn asked(&self) -> impl Iterator<Item = (LaneId, u32)> {
        self.lanes.iter().flat_map(|lane| lane.asked.iter().map(|asked| (lane.id, asked.number)))
    }

    /// Whether a notice, or the question that made the decider send it, is sent again until it is acknowledged.
    #[must_use]
    pub fn awaits(&self, lock: LockId, name: NoticeName) -> bool {
        let asks = |lane: &LaneEnd| lane.asked.iter().any(|asked| asked.has_sent(lock, name));
        self.notices.contains_key(&(lock, name)) || self.lanes.iter().any(asks)
    }

    /// Whether the question with this number on this lane is not answered yet.
    #[must_use]
    pub fn waits_for(&self, id: LaneId, number: u32) -> bool {
        let asks = |lane: &LaneEnd| lane.asked.iter().any(|asked| asked.number == number);
        self.lanes.iter().any(|lane| lane.id == id && asks(lane))
    }

    /// Sends again all packets that were sent at `before` or earlier and are neither answered nor acknowledged.
    pub fn resend(&mut self, before: u64, now: u64, packets: &mut Vec<Packet>) {
        for lane in &mut self.lanes {
            lane.resend(self.view, (before, now), packets);
            lane.flush(self.view, now, packets);
        }
        for ((lock, _), it) in &mut self.notices {
            if it.sent_at <= before {
                it.sent_at = now;
                let (to, view, lock, notice) = (it.to, self.view, *lock, it.notice.clone());
                packets.push(Packet::Notice { to, view, lock, notice });
            }
        }
    }
}
