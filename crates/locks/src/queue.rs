//! Locks that servers keep in queues: the rivals of FissLock that are made of messages.
//!
//! Invariants: a lock's queue holds its requests in their order, and the requests in front that are granted: one exclusive request, or shared
//! requests alone. A client repeats an acquire until it is granted and a release until it is acknowledged. A server repeats a grant while
//! others wait; a grant for a request that its client has ended is answered with a release. So lost, repeated and late messages leave no
//! lock behind. An acquire that comes again while it waits is answered: a client that only waits for a holder may give
//! up earlier than one whose packets are lost.
//!
//! - SrvLock: one server has all queues. ParLock: the application's machines have them, by the lock's id.
//! - NetLock: the switch has bounded queues of hot locks; a request that finds no room waits at the lock server, which has all other queues.
//!   After Yu, Zhang, Braverman, Chowdhury, Jin, "NetLock: Fast, Centralized Lock Management Using Programmable Switches", SIGCOMM 2020.

use crate::client::Outcome;
use crate::links::{Pace, Wait};
use crate::packet::Waiter;
use crate::recovery::{Hold, Submission};
use crate::value::{LockId, Machine, Mode, RequestId, Thread, Token, View};
use std::collections::{BTreeMap, VecDeque};

/// The contents of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Content {
    /// A client wants a lock.
    Acquire(Waiter),
    /// The request holds the lock, with a token's order.
    Grant(RequestId, u64),
    /// The request has ended: it held the lock, or it does not wait any more.
    Release(RequestId),
    /// The release has arrived.
    Released(RequestId),
    /// From a switch to a lock server: the queue has no room for this request.
    Spill(Waiter),
    /// From a switch to a lock server: the queue has room for this many requests.
    Room(u32),
    /// From a lock server to a switch: a request that had waited for room. The number of requests that still wait.
    Refill(Waiter, u32),
    /// The request that came again is known, and waits.
    Waits(RequestId),
}

/// A message about one lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Message {
    /// The view of the sender.
    pub view: View,
    /// The sender.
    pub from: Machine,
    /// The lock.
    pub lock: LockId,
    /// The contents.
    pub content: Content,
}

/// The bytes of a message: kind, mode, 2 unused, view, lock, sender, the request's machine, thread and number, a number.
pub const MESSAGE_BYTES: usize = 32;

impl Message {
    /// Whether a client takes it in, and no server.
    #[must_use]
    pub fn is_for_client(&self) -> bool {
        matches!(self.content, Content::Grant(..) | Content::Released(_) | Content::Waits(_))
    }

    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let none = RequestId { machine: Machine(0), thread: Thread(0), seq: 0 };
        let (kind, mode, request, number) = match self.content {
            Content::Acquire(waiter) => (1, waiter.mode, waiter.request, 0),
            Content::Grant(request, order) => (2, Mode::Shared, request, order),
            Content::Release(request) => (3, Mode::Shared, request, 0),
            Content::Released(request) => (4, Mode::Shared, request, 0),
            Content::Spill(waiter) => (5, waiter.mode, waiter.request, 0),
            Content::Room(room) => (6, Mode::Shared, none, u64::from(room)),
            Content::Refill(waiter, left) => (7, waiter.mode, waiter.request, u64::from(left)),
            Content::Waits(request) => (8, Mode::Shared, request, 0),
        };
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0] = kind;
        bytes[1] = u8::from(mode == Mode::Exclusive);
        bytes[2..4].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.view.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.lock.0.to_le_bytes());
        bytes[12..14].copy_from_slice(&request.machine.0.to_le_bytes());
        bytes[14..16].copy_from_slice(&request.thread.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&request.seq.to_le_bytes());
        bytes[24..32].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// The message of these bytes; `None` if they are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; MESSAGE_BYTES] = bytes.try_into().ok()?;
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(short(at)) | u32::from(short(at + 2)) << 16;
        let request =
            RequestId { machine: Machine(short(12)), thread: Thread(short(14)), seq: word(16) };
        let number = u64::from(word(24)) | u64::from(word(28)) << 32;
        let mode = match bytes[1] {
            0 => Mode::Shared,
            1 => Mode::Exclusive,
            _ => return None,
        };
        let waiter = Waiter { request, mode };
        let content = match bytes[0] {
            1 => Content::Acquire(waiter),
            2 => Content::Grant(request, number),
            3 => Content::Release(request),
            4 => Content::Released(request),
            5 => Content::Spill(waiter),
            6 => Content::Room(u32::try_from(number).ok()?),
            7 => Content::Refill(waiter, u32::try_from(number).ok()?),
            8 => Content::Waits(request),
            _ => return None,
        };
        Some(Message {
            view: View(word(4)),
            from: Machine(short(2)),
            lock: LockId(word(8)),
            content,
        })
    }
}

/// The machine that has a lock's queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Homes {
    /// This machine has all queues.
    One(Machine),
    /// These machines have them, by the lock's id modulo their number.
    ById(Vec<Machine>),
    /// A switch has the queues of hot locks, a lock server all others.
    Switch {
        /// The switch.
        switch: Machine,
        /// The lock server.
        server: Machine,
        /// The hot locks, and the number of requests that each of their queues has room for.
        profile: Profile,
    },
}

/// The hot locks of NetLock: the profile that an operator takes from a trace.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Profile {
    /// The hot locks, in order.
    pub hot: Vec<LockId>,
    /// The number of requests that a hot lock's queue has room for.
    pub slots: u32,
}

impl Homes {
    /// The machine that has this lock's queue.
    #[must_use]
    pub fn of(&self, lock: LockId) -> Machine {
        match self {
            Homes::One(machine) => *machine,
            // Before the first view there are no machines, and mail for machine 0 is lost.
            Homes::ById(machines) => {
                let at = lock.0 as usize % machines.len().max(1);
                machines.get(at).copied().unwrap_or(Machine(0))
            }
            Homes::Switch { switch, server, profile } => {
                if profile.hot.binary_search(&lock).is_ok() { *switch } else { *server }
            }
        }
    }

    /// The number of requests that this machine's queue of the lock has room for; `None`: any number.
    fn slots(&self, lock: LockId) -> Option<(usize, Machine)> {
        match self {
            Homes::Switch { server, profile, .. } if profile.hot.binary_search(&lock).is_ok() => {
                Some((profile.slots as usize, *server))
            }
            _ => None,
        }
    }
}

/// A lock's queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Queue {
    waiters: VecDeque<Waiter>,
    /// The number of requests in front that hold the lock.
    granted: usize,
    /// For each of these, when it was told so.
    told: VecDeque<Wait>,
    /// Counts grants; a token's order.
    grants: u64,
    /// Requests may wait at the lock server.
    has_spilled: bool,
}

impl Queue {
    /// Grants the requests in front that may hold the lock together: the function that all three services share.
    fn grant(&mut self, now: u64, mut tell: impl FnMut(Waiter, u64)) {
        while let Some(next) = self.waiters.get(self.granted).copied() {
            let joins = self.granted == 0
                || (next.mode == Mode::Shared && self.waiters[0].mode == Mode::Shared);
            if !joins {
                return;
            }
            self.granted += 1;
            self.grants += 1;
            self.told.push_back(Wait::new(now));
            tell(next, self.grants);
        }
    }

    fn place(&self, request: RequestId) -> Option<usize> {
        self.waiters.iter().position(|waiter| waiter.request == request)
    }

    fn leave(&mut self, request: RequestId) {
        let Some(at) = self.place(request) else { return };
        self.waiters.remove(at);
        if at < self.granted {
            self.granted -= 1;
            self.told.remove(at);
        }
    }
}

/// A message, and the machine that it is for.
pub type Addressed = (Machine, Message);

/// The queues of one machine: a lock server, a partition of the locks, or a switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Server {
    machine: Machine,
    view: View,
    homes: Homes,
    queues: BTreeMap<LockId, Queue>,
    /// Requests that wait for room at a switch, in their order.
    spilled: BTreeMap<LockId, VecDeque<Waiter>>,
}

impl Server {
    /// The queues of a machine in a view that is built from these submissions.
    #[must_use]
    pub fn new(
        machine: Machine,
        view: View,
        homes: Homes,
        submissions: &[(Machine, Submission)],
    ) -> Server {
        let mut server =
            Server { machine, view, homes, queues: BTreeMap::new(), spilled: BTreeMap::new() };
        let own = |lock: &LockId| server.homes.of(*lock) == machine;
        let mut queues: BTreeMap<LockId, Queue> = BTreeMap::new();
        let holds = submissions.iter().flat_map(|(_, it)| &it.holds);
        for hold in holds.filter(|hold| own(&hold.lock)) {
            let queue = queues.entry(hold.lock).or_default();
            queue.waiters.push_back(hold.waiter);
            queue.granted += 1;
            queue.told.push_back(Wait::new(0));
        }
        server.queues = queues;
        server
    }

    /// The number of locks with a request.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// The greatest number of requests of one lock.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.queues.values().map(|queue| queue.waiters.len()).max().unwrap_or(0)
    }

    /// A message arrives at the time `now`. One of another view is dropped.
    pub fn receive(&mut self, now: u64, message: &Message, send: &mut Vec<Addressed>) {
        if message.view != self.view {
            return;
        }
        let lock = message.lock;
        match message.content {
            Content::Acquire(waiter) => self.acquire(now, (lock, waiter), false, send),
            Content::Release(request) => {
                self.send(message.from, lock, Content::Released(request), send);
                self.change(now, lock, send, |queue| queue.leave(request));
                if let Some(spilled) = self.spilled.get_mut(&lock) {
                    spilled.retain(|waiter| waiter.request != request);
                }
            }
            Content::Spill(waiter) => {
                let spilled = self.spilled.entry(lock).or_default();
                match spilled.contains(&waiter) {
                    false => spilled.push_back(waiter),
                    true => self.say_it_waits(lock, waiter, send),
                }
            }
            Content::Room(room) => {
                let mut spilled = self.spilled.remove(&lock).unwrap_or_default();
                let goes: Vec<Waiter> = spilled.drain(..spilled.len().min(room as usize)).collect();
                let left = spilled.len() as u32;
                for waiter in goes {
                    self.send(message.from, lock, Content::Refill(waiter, left), send);
                }
                if !spilled.is_empty() {
                    self.spilled.insert(lock, spilled);
                }
            }
            Content::Refill(waiter, left) => {
                if let Some(queue) = self.queues.get_mut(&lock) {
                    queue.has_spilled = left > 0;
                }
                self.acquire(now, (lock, waiter), true, send);
            }
            Content::Grant(..) | Content::Released(_) | Content::Waits(_) => {}
        }
    }

    /// Sends the grants of locks again for which others wait, if these grants are due. A client that has ended its request answers with a
    /// release. So a late acquire delays no other request.
    pub fn resend(&mut self, pace: Pace, now: u64, send: &mut Vec<Addressed>) {
        let Server { machine, view, queues, .. } = self;
        for (lock, queue) in queues.iter_mut().filter(|(_, it)| it.waiters.len() > it.granted) {
            let Queue { waiters, told, grants, .. } = queue;
            let due = waiters.iter().zip(told).filter(|(_, told)| told.is_due(pace, now));
            for (waiter, told) in due {
                *told = told.again(pace, now);
                let content = Content::Grant(waiter.request, *grants);
                let message = Message { view: *view, from: *machine, lock: *lock, content };
                send.push((waiter.request.machine, message));
            }
        }
    }

    fn acquire(
        &mut self,
        now: u64,
        (lock, waiter): (LockId, Waiter),
        is_refill: bool,
        send: &mut Vec<Addressed>,
    ) {
        let slots = self.homes.slots(lock).filter(|_| self.homes.of(lock) == self.machine);
        let queue = self.queues.entry(lock).or_default();
        if let Some(at) = queue.place(waiter.request) {
            if at >= queue.granted {
                return self.say_it_waits(lock, waiter, send);
            }
            queue.told[at] = Wait::new(now);
            let content = Content::Grant(waiter.request, queue.grants);
            return self.send(waiter.request.machine, lock, content, send);
        }
        if let Some((slots, server)) = slots
            && (queue.waiters.len() >= slots || (queue.has_spilled && !is_refill))
        {
            queue.has_spilled = true;
            // The lock server's answer to an earlier offer of room may be lost.
            let room = slots.saturating_sub(queue.waiters.len()) as u32;
            self.send(server, lock, Content::Spill(waiter), send);
            if room > 0 {
                self.send(server, lock, Content::Room(room), send);
            }
            return;
        }
        self.change(now, lock, send, |queue| queue.waiters.push_back(waiter));
    }

    /// Changes a queue, and grants what can be granted then.
    fn change(
        &mut self,
        now: u64,
        lock: LockId,
        send: &mut Vec<Addressed>,
        change: impl FnOnce(&mut Queue),
    ) {
        let Server { machine, view, queues, homes, .. } = self;
        let queue = queues.entry(lock).or_default();
        change(queue);
        let message = |content| Message { view: *view, from: *machine, lock, content };
        queue.grant(now, |waiter, order| {
            let content = Content::Grant(waiter.request, order);
            send.push((waiter.request.machine, message(content)));
        });
        if let Some((slots, server)) = homes.slots(lock).filter(|_| queue.has_spilled)
            && queue.waiters.len() < slots
        {
            let room = (slots - queue.waiters.len()) as u32;
            send.push((server, message(Content::Room(room))));
            // Requests that come now have room; the lock server says how many still wait.
            queue.has_spilled = false;
        }
    }

    /// Answers a request that came again. So its client knows that it waits for a holder, and not for lost packets.
    fn say_it_waits(&self, lock: LockId, waiter: Waiter, send: &mut Vec<Addressed>) {
        let Waiter { request, .. } = waiter;
        self.send(request.machine, lock, Content::Waits(request), send);
    }

    fn send(&self, to: Machine, lock: LockId, content: Content, send: &mut Vec<Addressed>) {
        send.push((to, Message { view: self.view, from: self.machine, lock, content }));
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    /// The server has not answered yet.
    Asked,
    /// The server has the request in a queue.
    Queued,
    Holds(Token),
    /// The release is not acknowledged yet.
    Ends,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Asked {
    lock: LockId,
    mode: Mode,
    stage: Stage,
    wait: Wait,
}

impl Asked {
    fn awaits_answer(&self) -> bool {
        !matches!(self.stage, Stage::Holds(_))
    }
}

/// The clients of one machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueClient {
    machine: Machine,
    view: View,
    homes: Homes,
    is_paused: bool,
    sequence: u32,
    /// Whether packets of this view name requests of this machine.
    has_asked: bool,
    requests: BTreeMap<RequestId, Asked>,
}

impl QueueClient {
    /// Clients without requests.
    #[must_use]
    pub fn new(machine: Machine, view: View, homes: Homes) -> QueueClient {
        let requests = BTreeMap::new();
        let (is_paused, has_asked) = (false, false);
        QueueClient { machine, view, homes, is_paused, sequence: 0, has_asked, requests }
    }

    /// The view.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// Whether the clients wait for the view to begin.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether the machine may leave without a new view. A late acquire of a machine that is gone would take its lock for ever,
    /// because its client is gone.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && !self.has_asked
    }

    /// The requests that wait or hold a lock, in their order.
    pub fn requests(&self) -> impl Iterator<Item = (RequestId, LockId, Outcome)> {
        let lives = self.requests.iter().filter(|(_, it)| it.stage != Stage::Ends);
        lives.map(|(request, it)| (*request, it.lock, outcome_of(it.stage)))
    }

    /// A client requests a lock.
    pub fn acquire(
        &mut self,
        now: u64,
        lock: LockId,
        mode: Mode,
        send: &mut Vec<Addressed>,
    ) -> RequestId {
        self.sequence = self.sequence.wrapping_add(1);
        self.has_asked = true;
        let request = RequestId { machine: self.machine, thread: Thread(0), seq: self.sequence };
        self.requests
            .insert(request, Asked { lock, mode, stage: Stage::Asked, wait: Wait::new(now) });
        self.say(request, send);
        request
    }

    /// How a request stands; `None` if it has ended.
    #[must_use]
    pub fn outcome(&self, request: RequestId) -> Option<Outcome> {
        let it = self.requests.get(&request).filter(|it| it.stage != Stage::Ends)?;
        Some(outcome_of(it.stage))
    }

    /// A client ends a request. Returns whether the request was remembered.
    pub fn end(&mut self, now: u64, request: RequestId, send: &mut Vec<Addressed>) -> bool {
        let is_paused = self.is_paused;
        let Some(it) = self.requests.get_mut(&request).filter(|it| it.stage != Stage::Ends) else {
            return false;
        };
        // While the view changes, no server knows a request that has not been submitted; a release changes nothing then.
        (it.stage, it.wait) = (Stage::Ends, Wait::new(now));
        if !is_paused {
            self.say(request, send);
        }
        true
    }

    /// A message arrives at the time `now`.
    pub fn receive(&mut self, now: u64, message: &Message, send: &mut Vec<Addressed>) {
        if message.view != self.view || self.is_paused {
            return;
        }
        match message.content {
            Content::Grant(request, order) => match self.requests.get_mut(&request) {
                Some(it) if matches!(it.stage, Stage::Asked | Stage::Queued) => {
                    it.stage = Stage::Holds(Token { view: self.view, order });
                }
                Some(_) => {}
                None => {
                    let (lock, mode, stage) = (message.lock, Mode::Shared, Stage::Ends);
                    let asked = Asked { lock, mode, stage, wait: Wait::new(now) };
                    self.requests.insert(request, asked);
                    self.say(request, send);
                }
            },
            Content::Released(request)
                if self.requests.get(&request).is_some_and(|it| it.stage == Stage::Ends) =>
            {
                self.requests.remove(&request);
            }
            Content::Waits(request) => {
                let asked = self.requests.get_mut(&request);
                if let Some(it) = asked.filter(|it| it.stage == Stage::Asked) {
                    it.stage = Stage::Queued;
                }
            }
            _ => {}
        }
    }

    /// Sends again what is due and not answered.
    pub fn resend(&mut self, pace: Pace, now: u64, send: &mut Vec<Addressed>) {
        if self.is_paused {
            return;
        }
        let is_due = |it: &Asked| it.awaits_answer() && it.wait.is_due(pace, now);
        let due: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, it)| is_due(it))
            .map(|(request, _)| *request)
            .collect();
        for request in due {
            if let Some(it) = self.requests.get_mut(&request) {
                it.wait = it.wait.again(pace, now);
            }
            self.say(request, send);
        }
    }

    /// The greatest present time beyond [`Pace::least`] after which a message is sent again.
    #[must_use]
    pub fn beyond(&self) -> u64 {
        let waits = self.requests.values().filter(|it| it.awaits_answer());
        waits.map(|it| it.wait.beyond).max().unwrap_or(0)
    }

    /// Begins a new view; see [`crate::host::Host::pause`].
    pub fn pause(&mut self, view: View) -> Option<Submission> {
        if view <= self.view {
            return None;
        }
        (self.view, self.is_paused) = (view, true);
        self.requests.retain(|_, it| it.stage != Stage::Ends);
        self.has_asked = !self.requests.is_empty();
        let mut submission = Submission { view, ..Submission::default() };
        for (request, it) in &self.requests {
            let waiter = Waiter { request: *request, mode: it.mode };
            match it.stage {
                Stage::Holds(token) => submission.holds.push(Hold { lock: it.lock, waiter, token }),
                Stage::Asked | Stage::Queued | Stage::Ends => {
                    submission.waits.push((it.lock, waiter));
                }
            }
        }
        Some(submission)
    }

    /// Resumes in the view of the last pause: requests that wait are sent anew, and so are releases.
    pub fn resume(&mut self, now: u64, homes: Homes, send: &mut Vec<Addressed>) {
        (self.is_paused, self.homes) = (false, homes);
        for it in self.requests.values_mut() {
            it.wait = Wait::new(now);
            if it.stage == Stage::Queued {
                // The servers of this view have no queue yet.
                it.stage = Stage::Asked;
            }
        }
        self.resend(Pace::constant(0), now, send);
    }

    fn say(&self, request: RequestId, send: &mut Vec<Addressed>) {
        let Some(it) = self.requests.get(&request).filter(|_| !self.is_paused) else { return };
        let content = match it.stage {
            Stage::Asked | Stage::Queued => Content::Acquire(Waiter { request, mode: it.mode }),
            Stage::Ends => Content::Release(request),
            Stage::Holds(_) => return,
        };
        let message = Message { view: self.view, from: self.machine, lock: it.lock, content };
        send.push((self.homes.of(it.lock), message));
    }
}

fn outcome_of(stage: Stage) -> Outcome {
    match stage {
        Stage::Holds(token) => Outcome::Holds(token),
        Stage::Queued => Outcome::Queued,
        Stage::Asked | Stage::Ends => Outcome::Asked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_sent_again_only_when_it_is_due() {
        let (server, client) = (Machine(1), Machine(2));
        let mut queues = Server::new(server, View(1), Homes::One(server), &[]);
        let request = |seq| RequestId { machine: client, thread: Thread(0), seq };
        let mut send = Vec::new();
        for seq in [1, 2] {
            let waiter = Waiter { request: request(seq), mode: Mode::Exclusive };
            let content = Content::Acquire(waiter);
            let message = Message { view: View(1), from: client, lock: LockId(0), content };
            queues.receive(100, &message, &mut send);
        }
        assert_eq!(send.len(), 1, "the first request is granted");
        let pace = Pace { least: 10, most: 40 };
        let mut resent = Vec::new();
        for now in 100..250 {
            send.clear();
            queues.resend(pace, now, &mut send);
            if !send.is_empty() {
                resent.push(now);
            }
        }
        assert_eq!(resent, [110, 130, 170, 210]);
    }

    #[test]
    fn a_request_that_comes_again_is_told_that_it_waits() {
        let (server, machine) = (Machine(1), Machine(2));
        let homes = || Homes::One(server);
        let mut queues = Server::new(server, View(1), homes(), &[]);
        let mut client = QueueClient::new(machine, View(1), homes());
        let mut send = Vec::new();
        let mut deliver = |client: &mut QueueClient, send: &mut Vec<Addressed>| {
            while let Some((to, message)) = send.pop() {
                match to == server {
                    true => queues.receive(0, &message, send),
                    false => client.receive(0, &message, send),
                }
            }
        };
        let held = client.acquire(0, LockId(0), Mode::Exclusive, &mut send);
        deliver(&mut client, &mut send);
        let waits = client.acquire(0, LockId(0), Mode::Shared, &mut send);
        deliver(&mut client, &mut send);
        assert_eq!(client.outcome(waits), Some(Outcome::Asked), "it may be lost");
        client.resend(Pace::constant(10), 10, &mut send);
        deliver(&mut client, &mut send);
        assert_eq!(client.outcome(waits), Some(Outcome::Queued));
        assert!(client.end(10, held, &mut send));
        deliver(&mut client, &mut send);
        assert!(matches!(client.outcome(waits), Some(Outcome::Holds(_))));
        assert!(client.end(10, waits, &mut send));
        deliver(&mut client, &mut send);
        assert!(client.requests().count() == 0 && !client.is_idle(), "an acquire may come late");
        assert!(client.pause(View(2)).is_some_and(|it| it.waits.is_empty()));
        assert!(client.is_idle(), "packets of another view are dropped");
    }
}
