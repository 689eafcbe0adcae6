//! The decider's process: questions over UDP, machines and views over TCP on the same port.
//!
//! Invariants: one thread does everything, but for the program of a driver ([`plane`]). A view is durable before a packet of it is sent. A renewal is answered only after the state
//! folder, read after the renewal arrived, has shown no greater view; a machine counts its lease from before it sent the renewal. So the
//! machine's lease ends before a later decider believes that it has.

pub mod council;
#[cfg(feature = "xdp")]
mod driver;
pub mod plane;

use crate::authority::{Authority, AuthorityError};
use crate::config::Config;
use crate::control::message::{Status, ToDecider, ToMachine};
use crate::control::stream::{Ended, Side, Stream};
use crate::counters::Counters;
use crate::faults::Faults;
use crate::os::{self, MS_NS};
use crate::outbox::{DECIDER, Outbox};
use crate::spin::Spin;
use crate::udp::{Inbox, Socket};
use council::{Attached, ConnectionId, Council, Joiner};
use plane::Plane;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_locks::decider::{Refusal, Sent};
use tarn_locks::packet::Notice;
use tarn_locks::value::{Machine, View};
use tarn_locks::wire::{self, Item};

/// A process looks at its connections this often while it is busy.
const CONTROL_NS: u64 = MS_NS;
/// A sleeping process looks this often whether it is to stop.
const SLEEP_NS: u64 = 100 * MS_NS;
/// A process reads its state folder this often, even if no machine renews its lease.
const CHECK_NS: u64 = 1_000 * MS_NS;
/// A connection that has not shown the key is closed after this time.
const UNKNOWN_NS: u64 = 5_000 * MS_NS;
/// A connection that is silent for so many leases is closed: a machine that lives asks four times a lease.
const SILENT_LEASES: u64 = 4;
/// The greatest number of connections that have not shown the key.
const UNKNOWN_MAX: usize = 64;
/// Calls for datagrams before packets leave.
const CALLS_MAX: usize = 4;

/// The reason why a decider stops.
#[derive(Debug)]
pub enum DeciderError {
    /// The address.
    Address {
        /// The address that was asked for.
        value: SocketAddr,
        /// The values that are allowed.
        allowed: String,
    },
    /// The state folder.
    Authority(AuthorityError),
    /// The network.
    Network(SocketAddr, io::Error),
    /// Another choice of the caller.
    Choice {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The values that are allowed.
        allowed: String,
    },
    /// An interface does not take the program.
    Kernel(String, String),
}

impl fmt::Display for DeciderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeciderError::Address { value, allowed } => {
                write!(f, "--address = {value}; allowed: {allowed}")
            }
            DeciderError::Authority(error) => error.fmt(f),
            DeciderError::Network(at, error) => write!(f, "{at} cannot be used: {error}"),
            DeciderError::Choice { field, value, allowed } => {
                write!(f, "{field} = {value}; allowed: {allowed}")
            }
            DeciderError::Kernel(interface, error) => {
                write!(f, "{interface} takes no XDP program of this user: {error}")
            }
        }
    }
}

impl std::error::Error for DeciderError {}

impl From<AuthorityError> for DeciderError {
    fn from(error: AuthorityError) -> DeciderError {
        DeciderError::Authority(error)
    }
}

impl DeciderError {
    /// Whether the caller's choice is at fault.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            DeciderError::Address { .. } | DeciderError::Choice { .. } => true,
            DeciderError::Authority(error) => error.is_usage(),
            DeciderError::Network(..) | DeciderError::Kernel(..) => false,
        }
    }
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    heard_ns: u64,
}

/// A decider's process.
#[derive(Debug)]
pub struct DeciderProcess {
    config: Config,
    at: SocketAddr,
    authority: Authority,
    listener: TcpListener,
    socket: Socket,
    inbox: Inbox,
    outbox: Outbox,
    counters: Counters,
    council: Council,
    plane: Plane,
    connections: BTreeMap<ConnectionId, Connection>,
    last_connection: ConnectionId,
    views: u64,
    items: Vec<Item>,
    checked_ns: u64,
    /// When a datagram came last.
    busy_ns: u64,
}

impl DeciderProcess {
    /// Opens the sockets, then takes a state folder and begins a view in it. `at`: one of the configured addresses; `None`: the first.
    /// `state`: the folder, and whether it is made. The process itself decides.
    ///
    /// # Errors
    /// An address that is not configured or not free, or a state folder that gives no authority. Then no folder is made, and no view
    /// begins.
    pub fn open(
        config: &Config,
        at: Option<SocketAddr>,
        state: (&Path, bool),
    ) -> Result<DeciderProcess, DeciderError> {
        DeciderProcess::open_with(config, at, state, |_| Ok(Plane::process(config)))
    }

    /// The same, with the place that decides. `plane` opens the place for an address once the sockets are open.
    ///
    /// # Errors
    /// Those of [`DeciderProcess::open`] and of `plane`.
    pub fn open_with(
        config: &Config,
        at: Option<SocketAddr>,
        (state, is_new): (&Path, bool),
        plane: impl FnOnce(SocketAddr) -> Result<Plane, DeciderError>,
    ) -> Result<DeciderProcess, DeciderError> {
        let at = at.unwrap_or(config.deciders[0]);
        if !config.deciders.contains(&at) {
            let allowed: Vec<_> = config.deciders.iter().map(ToString::to_string).collect();
            return Err(DeciderError::Address { value: at, allowed: allowed.join(", ") });
        }
        let network = |error| DeciderError::Network(at, error);
        let listener = TcpListener::bind(at).map_err(network)?;
        listener.set_nonblocking(true).map_err(network)?;
        let faults = config.bad_network.map(|network| Faults::new(network, 0));
        let socket = Socket::bind(at, faults).map_err(network)?;
        let plane = plane(at)?;
        // The folder comes last: a decider that cannot start makes no folder, and begins no view.
        let authority = Authority::open(state, is_new)?;
        let (view, now_ns) = (authority.view(), os::now_ns());
        Ok(DeciderProcess {
            config: config.clone(),
            at,
            authority,
            listener,
            socket,
            inbox: Inbox::new(),
            outbox: Outbox::new(DECIDER, view, config.key),
            counters: Counters::default(),
            council: Council::new(config, view, now_ns),
            plane,
            connections: BTreeMap::new(),
            last_connection: 0,
            views: 1,
            items: Vec::new(),
            checked_ns: now_ns,
            busy_ns: now_ns,
        })
    }

    /// The view.
    #[must_use]
    pub fn view(&self) -> View {
        self.authority.view()
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// Decides until `stop` is set. `tell` gets one line for each view.
    ///
    /// # Errors
    /// Another decider has taken over, or the state folder cannot be used.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        tell: &mut impl FnMut(String),
    ) -> Result<(), DeciderError> {
        let spin = Spin::new(self.config.spin.as_nanos() as u64);
        let (mut control_ns, mut spin_ns, mut since_ns, mut sleeps) = (0, 0, 0, true);
        while !stop.load(Ordering::Relaxed) {
            self.receive();
            let now_ns = os::now_ns();
            if self.busy_ns != since_ns {
                // A packet has come: the wait for it has ended, and the next one begins.
                spin.end(spin_ns, !sleeps);
                (since_ns, spin_ns, sleeps) = (self.busy_ns, spin.begin(), false);
            }
            let is_idle = now_ns - self.busy_ns > spin_ns;
            sleeps |= is_idle;
            if is_idle || now_ns - control_ns >= CONTROL_NS {
                let sleep_ns = if is_idle { self.sleep_ns(now_ns) } else { 0 };
                self.control(sleep_ns, tell)?;
                control_ns = os::now_ns();
            } else {
                std::hint::spin_loop();
            }
        }
        Ok(())
    }

    fn sleep_ns(&self, now_ns: u64) -> u64 {
        self.council.due_ns(now_ns).saturating_sub(now_ns).min(SLEEP_NS)
    }

    /// Takes in the datagrams that are there.
    fn receive(&mut self) {
        for _ in 0..CALLS_MAX {
            let received = self.inbox.receive(&self.socket, false);
            for at in 0..received {
                self.datagram(at);
            }
            if received > 0 {
                self.busy_ns = os::now_ns();
            }
            if !Inbox::is_full(received) {
                break;
            }
        }
        self.outbox.flush(&self.socket, &mut self.counters);
    }

    fn datagram(&mut self, at: usize) {
        let DeciderProcess { inbox, outbox, counters, items, plane, .. } = self;
        counters.datagrams_in += 1;
        let (bytes, source) = inbox.datagram(at);
        items.clear();
        let ends =
            match wire::open(bytes, (DECIDER, &self.config.key), &mut |_, item| items.push(item)) {
                Ok(ends) => ends,
                Err(malformed) => return counters.refuse(malformed),
            };
        counters.packets_in += items.len() as u64;
        let Some(decider) = plane.decider(ends.view) else {
            counters.other_views += items.len() as u64;
            return;
        };
        if source.is_none() || outbox.peer(ends.from) != source {
            counters.strangers += 1;
            return;
        }
        for item in items.drain(..) {
            let Item::Question(question) = item else { continue };
            let refused = decider.receive(&question, &mut |sent| {
                let (to, waiters) = match &sent {
                    Sent::Reply(reply) => (reply.lane.machine, 0),
                    Sent::Notice { to, notice, .. } => (*to, waiters_of(notice)),
                };
                outbox.put(to, waiters, counters, |datagram| datagram.sent(&sent));
            });
            match refused {
                Ok(()) => {}
                Err(Refusal::View { .. }) => counters.other_views += 1,
                Err(Refusal::Lock { .. }) => counters.out_of_range += 1,
                Err(Refusal::Gap) => counters.gaps += 1,
            }
        }
    }

    /// Sleeps until something arrives, and takes in everything but datagrams.
    fn control(
        &mut self,
        sleep_ns: u64,
        tell: &mut impl FnMut(String),
    ) -> Result<(), DeciderError> {
        let mut fds = vec![
            os::interest(self.socket.fd(), true, false),
            os::interest(self.listener.as_raw_fd(), true, false),
        ];
        let ids: Vec<_> = self.connections.keys().copied().collect();
        for connection in self.connections.values() {
            let has_output = connection.stream.has_output();
            fds.push(os::interest(connection.stream.fd(), true, has_output));
        }
        os::poll(&mut fds, sleep_ns);
        if fds[0].revents != 0 {
            // Machines wait for the answers: they come before everything else.
            self.receive();
        }
        let mut closed = Vec::new();
        for (id, fd) in ids.into_iter().zip(&fds[2..]) {
            if fd.revents != 0 && self.read(id)?.is_err() {
                closed.push(id);
            }
        }
        if fds[1].revents != 0 {
            self.accept();
        }
        let now_ns = os::now_ns();
        if now_ns - self.checked_ns >= CHECK_NS {
            self.checked_ns = now_ns;
            self.authority.check()?;
            let silent_ns = SILENT_LEASES * self.config.lease_with_drift_ns();
            let is_late = |it: &Connection| {
                let most_ns = if it.stream.is_known() { silent_ns } else { UNKNOWN_NS };
                now_ns.saturating_sub(it.heard_ns) > most_ns
            };
            closed.extend(self.connections.iter().filter(|(_, it)| is_late(it)).map(|(id, _)| *id));
        }
        for id in closed {
            self.connections.remove(&id);
            self.council.closed(id);
        }
        self.advance(tell)
    }

    /// Begins views, and sends the messages of the council.
    fn advance(&mut self, tell: &mut impl FnMut(String)) -> Result<(), DeciderError> {
        loop {
            let begun = self.council.tick(os::now_ns());
            if let Some(entries) = begun {
                let view = self.authority.view();
                let (machines, held) = (self.council.members().len(), entries.len());
                let ms = self.council.recovery_ns / MS_NS;
                self.plane.begin(view, &entries)?;
                tell(format!(
                    "view {} serves {machines} machines; {held} locks are held; it began in {ms} ms",
                    view.0
                ));
            }
            if std::mem::take(&mut self.council.has_changed) {
                self.outbox.flush(&self.socket, &mut self.counters);
                let members = self.council.members();
                self.outbox.retain(|machine| members.contains_key(&machine));
                for (machine, member) in members {
                    self.outbox.set_peer(*machine, member.address);
                }
            }
            if !self.council.needs_view {
                break;
            }
            self.raise()?;
        }
        for (to, message) in std::mem::take(&mut self.council.outgoing) {
            self.send(to, &message);
        }
        Ok(())
    }

    fn raise(&mut self) -> Result<(), DeciderError> {
        self.plane.end();
        let view = self.authority.raise()?;
        self.views += 1;
        self.outbox.begin(DECIDER, view);
        self.council.begin_view(view, os::now_ns());
        Ok(())
    }

    fn send(&mut self, to: ConnectionId, message: &ToMachine) {
        // A connection that has ended is noticed when it is read.
        _ = self.connections.get_mut(&to).map(|it| it.stream.send(message));
    }

    fn accept(&mut self) {
        while let Ok((tcp, _)) = self.listener.accept() {
            // The oldest stranger goes: silent ones do not keep a machine out.
            let mut unknown = self.connections.iter().filter(|(_, it)| !it.stream.is_known());
            let oldest = unknown.next().map(|(id, _)| *id);
            if unknown.count() + 1 >= UNKNOWN_MAX {
                oldest.map(|id| self.connections.remove(&id));
            }
            let Ok(mut stream) = Stream::new(tcp, Side::Decider, self.config.key) else { continue };
            if stream.write().is_err() {
                continue;
            }
            self.last_connection += 1;
            let connection = Connection { stream, heard_ns: os::now_ns() };
            self.connections.insert(self.last_connection, connection);
        }
    }

    fn read(&mut self, id: ConnectionId) -> Result<Result<(), Ended>, DeciderError> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(Ok(())) };
        let mut messages = Vec::new();
        let written = connection.stream.write();
        let read = connection.stream.read(&mut messages);
        if !messages.is_empty() {
            connection.heard_ns = os::now_ns();
        }
        for message in messages {
            self.message(id, message)?;
        }
        if read == Err(Ended::Refused) {
            self.counters.strangers += 1;
        }
        Ok(written.and(read))
    }

    fn message(&mut self, id: ConnectionId, message: ToDecider) -> Result<(), DeciderError> {
        let now_ns = os::now_ns();
        match message {
            ToDecider::Join { machine, incarnation, address, previous } => {
                let connection = id;
                let machine = machine.map(Machine);
                let joiner = Joiner { connection, machine, incarnation, address, since_ns: now_ns };
                self.council.join(joiner, previous);
            }
            ToDecider::Attach { life, view, address, is_paused } => {
                self.authority.check()?;
                let view = View(view);
                let attached = Attached { connection: id, life, view, address, is_paused };
                self.council.attach(attached, now_ns);
            }
            ToDecider::Renew { seq, view } => {
                self.authority.check()?;
                self.council.renew(id, (seq, View(view)), now_ns);
            }
            ToDecider::Submit(submitted) => self.council.submit(id, &submitted),
            ToDecider::Leave { is_clean } => self.council.leave(id, is_clean),
            ToDecider::Status => {
                let status = ToMachine::Status(Box::new(self.status(now_ns)));
                self.send(id, &status);
            }
            ToDecider::Raise => {
                self.raise()?;
                let view = self.authority.view().0;
                self.send(id, &ToMachine::Raised { view });
            }
        }
        Ok(())
    }

    fn status(&self, now_ns: u64) -> Status {
        let members = self.council.members().iter();
        let left = |until_ns: u64| until_ns.saturating_sub(now_ns) / MS_NS;
        let members = members.map(|(machine, it)| (machine.0, it.address, left(it.lease_until_ns)));
        Status {
            view: self.authority.view().0,
            is_serving: self.council.is_serving(),
            locks: self.config.locks,
            held: self.plane.held(),
            members: members.collect(),
            joining: self.council.joining(),
            views: self.views,
            recovery_ms: self.council.recovery_ns / MS_NS,
            counters: self.counters.clone(),
            program: self.plane.counters(),
        }
    }
}

fn waiters_of(notice: &Notice) -> usize {
    match notice {
        Notice::Install { payload, .. } => payload.queue.len(),
        Notice::Copy { .. } | Notice::Release { .. } | Notice::Grant { .. } => 0,
    }
}
