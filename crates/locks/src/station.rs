//! A machine's part in a lock service: its clients, and the decider or the queues if they are here.
//!
//! Invariant: a station is in one view. The view says which machine has the decider ([`NewView::home`]) and which machines have queues; all
//! stations of a view derive that from the same [`NewView`]. A station that has paused for a view sends nothing until it resumes in it.
//! Nothing here asks for the time or sends: the caller carries [`Post`]s to the stations that they name.

use crate::agent::Conduct;
use crate::client::{Client, Outcome};
use crate::decider::{Decider, Fanout, Sent, Setup};
use crate::host::{HostSetup, Incoming};
use crate::links::{Moment, Pace, Packet};
use crate::packet::Question;
use crate::place::Here;
use crate::queue::{Addressed, Homes, Message, Profile, QueueClient, Server};
use crate::recovery::{Rebuilt, Submission, rebuild};
use crate::rules::Rules;
use crate::service::Kind;
use crate::value::{LockId, Machine, Mode, Policy, RequestId, Token, View, Width};
use std::collections::{BTreeMap, VecDeque};

/// The settings of a lock service; the same on all machines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The service.
    pub kind: Kind,
    /// The number of locks.
    pub locks: u32,
    /// Which waiter comes next, where the service has a choice.
    pub policy: Policy,
    /// The hot locks of NetLock.
    pub profile: Profile,
    /// The locks that are declared local, each with its machine, in order.
    pub local: Vec<(LockId, Machine)>,
}

impl Settings {
    /// A service of this kind with this many locks.
    #[must_use]
    pub fn new(kind: Kind, locks: u32) -> Settings {
        let (policy, profile) = (Policy::InOrder, Profile::default());
        Settings { kind, locks, policy, profile, local: Vec::new() }
    }

    fn is_fisslock(&self) -> bool {
        matches!(self.kind, Kind::FissLock | Kind::FissLockLocal)
    }

    fn homes(&self, machines: &[Machine]) -> Homes {
        let home = machines.first().copied().unwrap_or(Machine(0));
        match self.kind {
            Kind::ParLock => Homes::ById(machines.to_vec()),
            Kind::NetLock => Homes::Switch {
                switch: home,
                server: machines.get(1).copied().unwrap_or(home),
                profile: self.profile.clone(),
            },
            Kind::SrvLock | Kind::FissLock | Kind::FissLockLocal => Homes::One(home),
        }
    }
}

/// A view that is about to begin.
#[derive(Clone, Debug)]
pub struct NewView {
    /// The view.
    pub view: View,
    /// The machines that take part in it, in order.
    pub machines: Vec<Machine>,
    submissions: Vec<(Machine, Submission)>,
    rebuilt: Rebuilt,
}

impl NewView {
    /// The view of these machines. `left_behind` are the submissions of machines that hold locks and have left. No machine gets these
    /// locks in this view.
    #[must_use]
    pub fn new(
        view: View,
        settings: &Settings,
        taking_part: Vec<(Machine, Submission)>,
        left_behind: &[(Machine, Submission)],
    ) -> NewView {
        let machines = taking_part.iter().map(|(machine, _)| *machine).collect();
        let mut submissions = taking_part;
        submissions.extend_from_slice(left_behind);
        let rebuilt = match settings.is_fisslock() {
            true => rebuild(settings.policy, &submissions),
            false => Rebuilt::default(),
        };
        NewView { view, machines, submissions, rebuilt }
    }

    /// The machine that has the decider, or all queues.
    #[must_use]
    pub fn home(&self) -> Option<Machine> {
        self.machines.first().copied()
    }
}

/// What a station sends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mail {
    /// To the decider.
    Question(Question),
    /// From the decider.
    Sent(Sent),
    /// Between machines.
    Packet(Packet),
    /// Of a service with queues.
    Message(Message),
}

/// Mail that arrives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrived {
    /// For the decider.
    Question(Question),
    /// For the machine's clients and agents.
    Incoming(Incoming),
    /// Of a service with queues.
    Message(Message),
}

impl Mail {
    /// The mail at its destination.
    #[must_use]
    pub fn arrive(&self) -> Option<Arrived> {
        match self {
            Mail::Question(question) => Some(Arrived::Question(question.clone())),
            Mail::Message(message) => Some(Arrived::Message(*message)),
            Mail::Packet(packet) => Incoming::of(packet).map(Arrived::Incoming),
            Mail::Sent(Sent::Reply(reply)) => Some(Arrived::Incoming(Incoming::Reply(*reply))),
            Mail::Sent(Sent::Notice { view, lock, notice, .. }) => {
                let (view, lock, notice) = (*view, *lock, notice.clone());
                Some(Arrived::Incoming(Incoming::Notice { view, lock, notice }))
            }
        }
    }
}

/// Mail and the machine that it is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Post {
    /// The machine.
    pub to: Machine,
    /// The mail.
    pub mail: Mail,
}

/// Counts of what a station has sent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Questions, answers, copies, grants, agents, releases: each at its first time.
    pub messages: u64,
    /// Acknowledgements of notices, of releases, and of requests that came again and wait.
    pub acknowledgements: u64,
    /// Whatever was sent again.
    pub resends: u64,
}

impl Counts {
    /// The sums of two counts.
    #[must_use]
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            messages: self.messages + other.messages,
            acknowledgements: self.acknowledgements + other.acknowledgements,
            resends: self.resends + other.resends,
        }
    }
}

#[derive(Debug)]
enum Part {
    Fission { client: Box<Client>, decider: Option<Decider> },
    Queues { client: QueueClient, server: Option<Server> },
}

/// The locks that bypass the decider: requests of one machine alone.
#[derive(Debug, Default)]
struct Locals {
    queues: BTreeMap<LockId, VecDeque<(RequestId, Mode)>>,
    sequence: u32,
}

/// A machine's part in a lock service.
#[derive(Debug)]
pub struct Station {
    settings: Settings,
    machine: Machine,
    home: Machine,
    part: Part,
    locals: Locals,
    addressed: Vec<Addressed>,
    posts: Vec<Post>,
    counts: Counts,
}

/// A lane per machine: a station is driven by one thread.
const LANE: usize = 0;
/// The thread in names of requests for local locks, which no decider sees.
const LOCAL_THREAD: crate::value::Thread = crate::value::Thread(u16::MAX);

fn at(now: u64) -> Moment {
    Moment { now, lane: LANE }
}

impl Station {
    /// A station that joins a service in a view, whose decider is on the machine `machines[0]`.
    #[must_use]
    pub fn new(settings: Settings, machine: Machine, view: View, machines: &[Machine]) -> Station {
        let home = machines.first().copied().unwrap_or(machine);
        let window = Setup::PROCESS.window;
        let part = match settings.is_fisslock() {
            true => {
                let (policy, width, rules) = (settings.policy, Width::WIDE, Rules::ALL);
                let conduct = Conduct { policy, width, rules };
                let here = Here { machine, conduct, decider_sends: true };
                let setup = HostSetup { here, threads: 1, window };
                let client = Box::new(Client::new(setup, view));
                Part::Fission { client, decider: None }
            }
            false => {
                let client = QueueClient::new(machine, view, settings.homes(machines));
                Part::Queues { client, server: None }
            }
        };
        let mut station = Station {
            settings,
            machine,
            home,
            part,
            locals: Locals::default(),
            addressed: Vec::new(),
            posts: Vec::new(),
            counts: Counts::default(),
        };
        station.take_office(view, machines, &[], &[]);
        station
    }

    /// Takes over the decider, or the queues, that are this machine's in the view.
    fn take_office(
        &mut self,
        view: View,
        machines: &[Machine],
        entries: &[(LockId, crate::decider::Entry)],
        submissions: &[(Machine, Submission)],
    ) {
        let (settings, machine) = (&self.settings, self.machine);
        match &mut self.part {
            Part::Fission { decider, .. } => {
                let setup = Setup { fanout: Fanout::Sends, ..Setup::PROCESS };
                let is_home = machines.first() == Some(&machine);
                *decider = is_home.then(|| Decider::rebuilt(setup, view, settings.locks, entries));
            }
            Part::Queues { server, .. } => {
                let homes = settings.homes(machines);
                let has_queues = match &homes {
                    Homes::One(home) => *home == machine,
                    Homes::ById(machines) => machines.contains(&machine),
                    Homes::Switch { switch, server, .. } => [*switch, *server].contains(&machine),
                };
                *server = has_queues.then(|| Server::new(machine, view, homes, submissions));
            }
        }
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// The machine of the decider.
    #[must_use]
    pub fn home(&self) -> Machine {
        self.home
    }

    /// The settings of the service.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The view.
    #[must_use]
    pub fn view(&self) -> View {
        match &self.part {
            Part::Fission { client, .. } => client.host().view(),
            Part::Queues { client, .. } => client.view(),
        }
    }

    /// Whether the station waits for the view to begin.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        match &self.part {
            Part::Fission { client, .. } => client.host().is_paused(),
            Part::Queues { client, .. } => client.is_paused(),
        }
    }

    /// Counts of what the station has sent.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether the machine may leave without a new view: it knows nothing of any lock, and others need nothing of it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        match &self.part {
            Part::Fission { client, decider } => {
                let host = client.host();
                decider.is_none() && host.places() == 0 && host.links().is_quiet()
            }
            Part::Queues { client, server } => server.is_none() && client.is_idle(),
        }
    }

    /// The machine of a lock that is declared local.
    fn local(&self, lock: LockId) -> Option<Machine> {
        if self.settings.kind != Kind::FissLockLocal {
            return None;
        }
        let local = &self.settings.local;
        local.binary_search_by_key(&lock, |(lock, _)| *lock).ok().map(|at| local[at].1)
    }

    /// A client requests a lock. `None`: the lock is declared local to another machine, or is none of the service's.
    pub fn acquire(&mut self, now: u64, lock: LockId, mode: Mode) -> Option<RequestId> {
        if lock.0 >= self.settings.locks {
            return None;
        }
        if let Some(machine) = self.local(lock) {
            return (machine == self.machine).then(|| self.locals.acquire(machine, lock, mode));
        }
        let request = match &mut self.part {
            Part::Fission { client, .. } => client.acquire(at(now), lock, mode),
            Part::Queues { client, .. } => client.acquire(now, lock, mode, &mut self.addressed),
        };
        self.collect(false);
        Some(request)
    }

    /// How a request stands; `None` if it has ended.
    #[must_use]
    pub fn outcome(&self, request: RequestId) -> Option<Outcome> {
        match &self.part {
            _ if request.thread == LOCAL_THREAD => self.locals.outcome(request),
            Part::Fission { client, .. } => client.outcome(request),
            Part::Queues { client, .. } => client.outcome(request),
        }
    }

    /// The requests that wait or hold a lock.
    #[must_use]
    pub fn requests(&self) -> Vec<(RequestId, LockId, Outcome)> {
        match &self.part {
            Part::Fission { client, .. } => client.requests().collect(),
            Part::Queues { client, .. } => client.requests().collect(),
        }
    }

    /// A client ends a request, which holds its lock or waits. Returns whether the request was remembered.
    pub fn end(&mut self, now: u64, request: RequestId) -> bool {
        if request.thread == LOCAL_THREAD {
            return self.locals.end(request);
        }
        let was = match &mut self.part {
            Part::Fission { client, .. } => client.end(at(now), request),
            Part::Queues { client, .. } => client.end(now, request, &mut self.addressed),
        };
        self.collect(false);
        was
    }

    /// Mail arrives. Mail of another view is dropped.
    pub fn receive(&mut self, now: u64, arrived: Arrived) {
        let Station { part, addressed, posts, counts, .. } = self;
        match (part, arrived) {
            (Part::Fission { decider: Some(decider), .. }, Arrived::Question(question)) => {
                // A question that the decider refuses comes again, or its sender is of another view.
                let _ = decider.receive(&question, &mut |sent| {
                    let to = match &sent {
                        Sent::Reply(reply) => reply.lane.machine,
                        Sent::Notice { to, .. } => *to,
                    };
                    counts.messages += 1;
                    posts.push(Post { to, mail: Mail::Sent(sent) });
                });
            }
            (Part::Fission { client, .. }, Arrived::Incoming(incoming)) => {
                // So does a packet of another view.
                let _ = client.receive(at(now), incoming);
            }
            (Part::Queues { client, server }, Arrived::Message(message)) => {
                use crate::queue::Content;
                match (message.content, server) {
                    (Content::Grant(..) | Content::Released(_) | Content::Waits(_), _) => {
                        client.receive(now, &message, addressed);
                    }
                    (_, Some(server)) => server.receive(now, &message, addressed),
                    (_, None) => {}
                }
            }
            (Part::Fission { .. } | Part::Queues { .. }, _) => {}
        }
        self.collect(false);
    }

    /// Sends again what is due and not answered.
    pub fn resend(&mut self, pace: Pace, now: u64) {
        match &mut self.part {
            Part::Fission { client, .. } => client.resend(pace, now),
            Part::Queues { client, server } => {
                client.resend(pace, now, &mut self.addressed);
                if let Some(server) = server {
                    server.resend(pace, now, &mut self.addressed);
                }
            }
        }
        self.collect(true);
    }

    /// The greatest present time beyond [`Pace::least`] after which mail of this machine's clients is sent again.
    #[must_use]
    pub fn beyond(&self) -> u64 {
        match &self.part {
            Part::Fission { client, .. } => client.host().links().beyond(),
            Part::Queues { client, .. } => client.beyond(),
        }
    }

    /// Stops in the present view: nothing of it is sent or taken in any more. Returns what survives; `None` if the station is in this
    /// view or a later one.
    pub fn pause(&mut self, view: View) -> Option<Submission> {
        let submission = match &mut self.part {
            Part::Fission { client, decider } => {
                let submission = client.pause(view)?;
                *decider = None;
                submission
            }
            Part::Queues { client, server } => {
                let submission = client.pause(view)?;
                *server = None;
                submission
            }
        };
        self.posts.clear();
        self.addressed.clear();
        Some(submission)
    }

    /// Goes on in a view that the station has paused for.
    pub fn resume(&mut self, now: u64, next: &NewView) {
        if self.view() != next.view {
            return;
        }
        self.home = next.home().unwrap_or(self.machine);
        let NewView { view, machines, submissions, rebuilt } = next;
        self.take_office(*view, machines, &rebuilt.entries, submissions);
        match &mut self.part {
            Part::Fission { client, .. } => {
                let own = rebuilt.seats.iter().find(|(machine, _)| *machine == self.machine);
                client.resume(now, own.map_or(&[], |(_, seats)| seats));
            }
            Part::Queues { client, .. } => {
                client.resume(now, self.settings.homes(machines), &mut self.addressed);
            }
        }
        self.collect(false);
    }

    /// Takes the mail that is to be sent, in its order.
    pub fn posts(&mut self) -> impl Iterator<Item = Post> {
        self.posts.drain(..)
    }

    /// Whether there is mail to be sent.
    #[must_use]
    pub fn has_posts(&self) -> bool {
        !self.posts.is_empty()
    }

    fn collect(&mut self, is_again: bool) {
        let Station { part, addressed, posts, counts, home, .. } = self;
        let mut add = |to: Machine, mail: Mail, is_acknowledgement: bool| {
            let count = match (is_again, is_acknowledgement) {
                (true, _) => &mut counts.resends,
                (false, true) => &mut counts.acknowledgements,
                (false, false) => &mut counts.messages,
            };
            *count += 1;
            posts.push(Post { to, mail });
        };
        if let Part::Fission { client, .. } = part {
            for packet in client.packets() {
                match packet {
                    Packet::Question(question) => add(*home, Mail::Question(question), false),
                    Packet::Notice { to, .. } => add(to, Mail::Packet(packet), false),
                    Packet::Acknowledgement { to, .. } => add(to, Mail::Packet(packet), true),
                }
            }
        }
        for (to, message) in addressed.drain(..) {
            use crate::queue::Content;
            let is_acknowledgement =
                matches!(message.content, Content::Released(_) | Content::Waits(_));
            add(to, Mail::Message(message), is_acknowledgement);
        }
    }
}

impl Locals {
    fn acquire(&mut self, machine: Machine, lock: LockId, mode: Mode) -> RequestId {
        self.sequence = self.sequence.wrapping_add(1);
        let request = RequestId { machine, thread: LOCAL_THREAD, seq: self.sequence };
        self.queues.entry(lock).or_default().push_back((request, mode));
        request
    }

    fn outcome(&self, request: RequestId) -> Option<Outcome> {
        let is_it = |(own, _): &(RequestId, Mode)| *own == request;
        self.queues.values().find_map(|queue| {
            let at = queue.iter().position(is_it)?;
            let are_shared = queue.range(..=at).all(|(_, mode)| *mode == Mode::Shared);
            Some(match at == 0 || are_shared {
                true => Outcome::Holds(Token::NONE),
                false => Outcome::Queued,
            })
        })
    }

    fn end(&mut self, request: RequestId) -> bool {
        let mut was = false;
        self.queues.retain(|_, queue| {
            let before = queue.len();
            queue.retain(|(own, _)| *own != request);
            was |= queue.len() < before;
            !queue.is_empty()
        });
        was
    }
}

#[cfg(test)]
#[path = "station_tests.rs"]
mod tests;
