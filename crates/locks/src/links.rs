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

/// The number of questions of a lane that are sent again together. The decider takes questions in their order, so the oldest ones suffice. If
/// all were sent again, a decider that is behind would get a whole window of each lane, and answer only that.
const RESENT_MAX: usize = 8;

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

/// How soon a packet without an answer is sent again, in the caller's units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The first time.
    pub least: u64,
    /// At most: each time is twice the time before.
    pub most: u64,
}

impl Pace {
    /// The same time for ever.
    #[must_use]
    pub const fn constant(time: u64) -> Pace {
        Pace { least: time, most: time }
    }

    /// The time beyond the least one after a packet was sent once more.
    fn next(self, beyond: u64) -> u64 {
        let twice = self.least.saturating_add(beyond).saturating_mul(2);
        twice.min(self.most).saturating_sub(self.least)
    }
}

/// How long a packet waits for its answer: the part of [`Pace`] that belongs to one packet, or to the packets of a lane together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wait {
    /// When it was sent last, in the caller's units.
    pub sent_at: u64,
    /// The time beyond [`Pace::least`] after which it is sent again.
    pub beyond: u64,
}

impl Wait {
    /// The wait of a packet that is sent at the time `now`, for the first time.
    #[must_use]
    pub const fn new(now: u64) -> Wait {
        Wait { sent_at: now, beyond: 0 }
    }

    /// The packet is due when [`Pace::least`] has passed since this time.
    #[must_use]
    pub const fn since(self) -> u64 {
        self.sent_at.saturating_add(self.beyond)
    }

    /// Whether the packet is to be sent again.
    #[must_use]
    pub const fn is_due(self, pace: Pace, now: u64) -> bool {
        self.since().saturating_add(pace.least) <= now
    }

    /// The wait after the packet was sent once more.
    #[must_use]
    pub fn again(self, pace: Pace, now: u64) -> Wait {
        Wait { sent_at: now, beyond: pace.next(self.beyond) }
    }
}

/// A time before which nothing is due. It is no part of the state: two links that differ in it act alike.
#[derive(Clone, Copy, Debug)]
struct Hint(u64);

impl Hint {
    /// Takes note of a wait. An answer makes a lane's time earlier, so the caller tells each new wait of a lane.
    fn lower(&mut self, wait: Option<Wait>) {
        self.0 = self.0.min(wait.map_or(u64::MAX, Wait::since));
    }
}

impl PartialEq for Hint {
    fn eq(&self, _: &Hint) -> bool {
        true
    }
}

impl Eq for Hint {}

impl std::hash::Hash for Hint {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// The sending end of a lane.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LaneEnd {
    id: LaneId,
    window: u32,
    last: u32,
    /// The time beyond [`Pace::least`] after which its questions are sent again. An answer makes it 0.
    beyond: u64,
    asked: VecDeque<Asked>,
    backlog: VecDeque<(LockId, Ask)>,
}

impl LaneEnd {
    /// A lane that has sent nothing yet.
    #[must_use]
    pub fn new(id: LaneId, window: u32) -> LaneEnd {
        let (asked, backlog) = (VecDeque::new(), VecDeque::new());
        LaneEnd { id, window, last: 0, beyond: 0, asked, backlog }
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
        self.beyond = 0;
        self.asked.remove(at).map(|asked| (asked.lock, asked.ask))
    }

    /// Takes out the question that sent a copy or an agent on its way. Returns whether there was one.
    fn retire(&mut self, lock: LockId, name: NoticeName) -> bool {
        let before = self.asked.len();
        self.asked.retain(|asked| !asked.has_sent(lock, name));
        let has_retired = self.asked.len() < before;
        if has_retired {
            self.beyond = 0;
        }
        has_retired
    }

    /// How long its oldest question waits.
    fn wait(&self) -> Option<Wait> {
        let beyond = self.beyond;
        self.asked.front().map(|asked| Wait { sent_at: asked.sent_at, beyond })
    }

    /// Sends the oldest questions again, in their order, if the first of them is due.
    fn resend(&mut self, view: View, (pace, now): (Pace, u64), packets: &mut Vec<Packet>) {
        let Some(wait) = self.wait().filter(|wait| wait.is_due(pace, now)) else { return };
        self.beyond = wait.again(pace, now).beyond;
        for at in 0..self.asked.len().min(RESENT_MAX) {
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
    wait: Wait,
}

/// A machine's links.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Links {
    view: View,
    lanes: Vec<LaneEnd>,
    notices: BTreeMap<(LockId, NoticeName), Unacknowledged>,
    /// No packet was sent, with the time beyond the least one, before this.
    since: Hint,
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
        Links { view, lanes, notices: BTreeMap::new(), since: Hint(u64::MAX) }
    }

    /// Begins a new view: nothing of the old one is sent again.
    pub fn begin(&mut self, view: View) {
        self.view = view;
        self.notices.clear();
        self.lanes.iter_mut().for_each(|lane| *lane = LaneEnd::new(lane.id, lane.window));
    }

    /// Whether [`Links::resend`] may have something to send. It looks at no packet, and `false` is certain.
    #[must_use]
    pub fn may_be_due(&self, pace: Pace, now: u64) -> bool {
        self.since.0.saturating_add(pace.least) <= now
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
                    let wait = Wait::new(at.now);
                    self.notices.insert((lock, name), Unacknowledged { to, notice, wait });
                    self.since.lower(Some(wait));
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
        let lane = &mut self.lanes[at.lane];
        lane.flush(self.view, at.now, &mut output.packets);
        self.since.lower(lane.wait());
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
            // The question may have been on any lane. That lane's other questions are due earlier now, and its window may
            // have room.
            for lane in &mut self.lanes {
                if lane.retire(lock, name) {
                    self.since.lower(lane.wait());
                    if !lane.backlog.is_empty() {
                        self.since = Hint(0);
                    }
                }
            }
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
        let answered = self.lanes[at].answer(reply.number)?;
        self.since.lower(self.lanes[at].wait());
        Some((at, answered.0, answered.1))
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

    /// Sends again all packets that are due and neither answered nor acknowledged.
    pub fn resend(&mut self, pace: Pace, now: u64, packets: &mut Vec<Packet>) {
        for lane in &mut self.lanes {
            lane.resend(self.view, (pace, now), packets);
            lane.flush(self.view, now, packets);
        }
        for ((lock, _), it) in &mut self.notices {
            if it.wait.is_due(pace, now) {
                it.wait = it.wait.again(pace, now);
                let (to, view, lock, notice) = (it.to, self.view, *lock, it.notice.clone());
                packets.push(Packet::Notice { to, view, lock, notice });
            }
        }
        let since = self.waits().map(Wait::since).min();
        self.since = Hint(since.unwrap_or(u64::MAX));
    }

    fn waits(&self) -> impl Iterator<Item = Wait> {
        let asked = self.lanes.iter().filter_map(LaneEnd::wait);
        asked.chain(self.notices.values().map(|it| it.wait))
    }

    /// The greatest present time beyond [`Pace::least`] after which a packet is sent again.
    #[must_use]
    pub fn beyond(&self) -> u64 {
        self.waits().map(|wait| wait.beyond).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Answer, Verdict, Waiter};
    use crate::value::{Mode, Thread};

    const PACE: Pace = Pace { least: 10, most: 80 };
    const HERE: Machine = Machine(1);
    const LANE: LaneId = LaneId { machine: HERE, thread: Thread(0) };

    fn links() -> Links {
        Links::new(View(1), vec![LaneEnd::new(LANE, 64)])
    }

    fn ask(links: &mut Links, now: u64) {
        let request = RequestId { machine: HERE, thread: Thread(0), seq: 1 };
        let waiter = Waiter { request, mode: Mode::Shared };
        links.lanes[0].push(LockId(0), Ask::Acquire { waiter, bars_readers: false });
        links.lanes[0].flush(links.view, now, &mut Vec::new());
        links.since.0 = links.since.0.min(now);
    }

    /// The times at which packets were sent again.
    fn resent(links: &mut Links, times: std::ops::Range<u64>) -> Vec<u64> {
        let is_resent = |now: &u64| {
            let mut packets = Vec::new();
            let may_be_due = links.may_be_due(PACE, *now);
            links.resend(PACE, *now, &mut packets);
            assert!(may_be_due || packets.is_empty(), "the hint has hidden a packet at {now}");
            !packets.is_empty()
        };
        times.filter(is_resent).collect()
    }

    #[test]
    fn a_question_without_an_answer_is_sent_ever_more_rarely() {
        let mut links = links();
        ask(&mut links, 0);
        assert_eq!(resent(&mut links, 0..400), [10, 30, 70, 150, 230, 310, 390]);
        // An answer shows that packets arrive again.
        ask(&mut links, 400);
        let answer = Answer { verdict: Verdict::Granted, agent: None, number: 1 };
        let token = Token { view: View(1), order: 1 };
        let (view, lane) = (View(1), LANE);
        let reply = Reply { view, lane, number: 1, lock: LockId(0), answer, token };
        assert!(links.answered(&reply).is_some());
        assert_eq!(resent(&mut links, 401..500), [410, 430, 470]);
        let reply = Reply { number: 2, ..reply };
        assert!(links.answered(&reply).is_some());
        assert_eq!(resent(&mut links, 500..900), []);
        assert!(!links.may_be_due(PACE, 900), "nothing waits");
    }

    #[test]
    fn an_answer_makes_the_lane_due_earlier() {
        let mut links = links();
        ask(&mut links, 0);
        ask(&mut links, 0);
        assert_eq!(resent(&mut links, 0..75), [10, 30, 70]);
        let answer = Answer { verdict: Verdict::Granted, agent: None, number: 1 };
        let token = Token { view: View(1), order: 1 };
        let (view, lane) = (View(1), LANE);
        let reply = Reply { view, lane, number: 1, lock: LockId(0), answer, token };
        assert!(links.answered(&reply).is_some());
        assert_eq!(resent(&mut links, 75..100), [80]);
    }

    #[test]
    fn an_acknowledgement_for_another_lane_lowers_the_hint() {
        let other = LaneId { machine: HERE, thread: Thread(1) };
        let lanes = vec![LaneEnd::new(LANE, 64), LaneEnd::new(other, 64)];
        let mut links = Links::new(View(1), lanes);
        let request = |seq| RequestId { machine: HERE, thread: Thread(1), seq };
        for seq in [1, 2] {
            let waiter = Waiter { request: request(seq), mode: Mode::Shared };
            links.lanes[1].push(LockId(seq), Ask::Acquire { waiter, bars_readers: false });
        }
        links.lanes[1].flush(links.view, 0, &mut Vec::new());
        links.since.0 = 0;
        assert_eq!(resent(&mut links, 0..80), [10, 30, 70], "nothing is due before 150");
        // The copy of the first question is acknowledged in an event of the lane 0.
        let name = NoticeName { kind: NoticeKind::Copy, request: request(1) };
        links.acknowledged((LockId(1), &mut Place::default()), name, &mut Vec::new());
        assert_eq!(links.lanes[1].asked.len(), 1);
        assert_eq!(resent(&mut links, 80..101), [80, 100]);
    }

    #[test]
    fn the_hint_is_no_part_of_the_state() {
        let (mut one, other) = (links(), links());
        one.since = Hint(7);
        assert_eq!(one, other);
    }
}
