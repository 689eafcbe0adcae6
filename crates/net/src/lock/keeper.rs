//! The thread of a client that keeps its lease, follows the views, sends again, and receives while no caller waits.
//!
//! Invariants: a lease is counted from before its renewal was sent. A life without a lease ends by this machine's own clock, before the
//! machine joins again. A machine ignores a decider of a lower view than it has seen.

use super::core::{Core, RESEND_NS};
use super::shared::Shared;
use super::{ConnectError, Settings};
use crate::control::message::{Life, SeatText, Submitted, ToDecider, ToMachine};
use crate::control::stream::{Side, Stream};
use crate::os::{self, MS_NS};
use crate::outbox::DECIDER;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use tarn_locks::recovery::Seat;
use tarn_locks::service::Grant;
use tarn_locks::value::{Machine, View};

/// A connection that could not be opened is tried again after this time.
const RETRY_NS: u64 = 20 * MS_NS;
/// While callers receive, the keeper looks around after this time.
const TICK_NS: u64 = MS_NS / 2;
/// Callers that have received within this time will do so again.
const RECENT_NS: u64 = MS_NS / 2;
/// A machine that leaves waits at most so long for answers.
const LEAVE_NS: u64 = 200 * MS_NS;
/// Renewals in a lease. Source: a renewal may be lost, and the next one late.
const RENEWALS: u64 = 4;

/// Called with each grant that is lost.
pub(crate) type OnLost = Box<dyn Fn(&Grant) + Send>;

/// The connection to the decider.
enum Line {
    Down { until_ns: u64 },
    Up(Box<Stream>),
}

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    settings: Settings,
    /// The place in the list of deciders.
    decider: usize,
    line: Line,
    /// Renewals that are not answered: number, and when they were sent.
    renewals: VecDeque<(u64, u64)>,
    seq: u64,
    renew_at_ns: u64,
    /// The life, since when it has been known, and the incarnation of the next one.
    life: Option<(Life, u64)>,
    incarnation: u64,
    /// A life that has ended, and of which the decider has not been told.
    previous: Option<Life>,
    /// The greatest view so far.
    view: View,
    is_paused: bool,
    /// What was submitted for the view that is to begin.
    submitted: Option<Submitted>,
    /// Takes the result of the first join.
    ready: Option<Sender<Result<(), ConnectError>>>,
    on_lost: OnLost,
    busy_ns: u64,
}

impl Keeper {
    pub(crate) fn new(
        shared: Arc<Shared>,
        settings: Settings,
        (ready, on_lost): (Sender<Result<(), ConnectError>>, OnLost),
    ) -> std::io::Result<Keeper> {
        Ok(Keeper {
            shared,
            settings,
            decider: 0,
            line: Line::Down { until_ns: 0 },
            renewals: VecDeque::new(),
            seq: 0,
            renew_at_ns: 0,
            life: None,
            incarnation: os::random_u64()?,
            previous: None,
            view: View(0),
            is_paused: false,
            submitted: None,
            ready: Some(ready),
            on_lost,
            busy_ns: 0,
        })
    }

    pub(crate) fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            self.turn();
        }
        self.leave();
    }

    /// Sleeps until something happens, and takes it in.
    fn turn(&mut self) {
        let now_ns = os::now_ns();
        let due_ns = self.keep(now_ns);
        let shared = Arc::clone(&self.shared);
        let receives = shared.driving.load(Ordering::Relaxed) == 0
            && (shared.tasks.load(Ordering::Relaxed) > 0
                || now_ns.saturating_sub(shared.drove_ns.load(Ordering::Relaxed)) > RECENT_NS);
        if receives && now_ns.saturating_sub(self.busy_ns) < shared.spin_ns {
            if self.receive() {
                self.busy_ns = os::now_ns();
            }
            return;
        }
        let is_quiet = shared.core().is_quiet();
        let sleep_ns = due_ns.saturating_sub(now_ns);
        let sleep_ns = match (receives, is_quiet) {
            (false, _) => sleep_ns.min(TICK_NS),
            (true, false) => sleep_ns.min(RESEND_NS / 2),
            (true, true) => sleep_ns,
        };
        let mut fds = vec![os::interest(shared.bell.fd(), true, false)];
        if let Line::Up(stream) = &self.line {
            fds.push(os::interest(stream.fd(), true, stream.has_output()));
        }
        if receives {
            fds.push(os::interest(shared.socket.fd(), true, false));
            shared.is_dozing.store(true, Ordering::Release);
        }
        os::poll(&mut fds, sleep_ns);
        shared.is_dozing.store(false, Ordering::Release);
        if fds[0].revents != 0 {
            shared.bell.hush();
            self.busy_ns = os::now_ns();
        }
        let is_up = matches!(self.line, Line::Up(_));
        if is_up && fds[1].revents != 0 {
            self.control();
        }
        let received = receives && fds.last().is_some_and(|it| it.revents != 0);
        if received && shared.driving.load(Ordering::Relaxed) == 0 && self.receive() {
            self.busy_ns = os::now_ns();
        }
    }

    fn receive(&mut self) -> bool {
        let shared = &self.shared;
        shared.try_inbox().is_some_and(|mut inbox| shared.pump(&mut inbox, false))
    }

    /// Does whatever is due. Returns when something is due next.
    fn keep(&mut self, now_ns: u64) -> u64 {
        let shared = Arc::clone(&self.shared);
        let task_ns = shared.expire(now_ns);
        let mut core = shared.core();
        core.maintain(now_ns);
        core.flush(&shared.socket);
        let fresh_until_ns = self.life.map_or(u64::MAX, |(_, since_ns)| since_ns + shared.lease_ns);
        if core.host.is_some() && core.lease_until_ns.is_none() && now_ns >= fresh_until_ns {
            core.end_life();
        }
        if let (Some((life, _)), true) = (self.life, core.host.is_none()) {
            self.life_ended(life);
        }
        let lease_until_ns = core.lease_until_ns.unwrap_or(fresh_until_ns);
        self.tell_lost(core);
        self.keep_line(now_ns);
        let line_ns = match &self.line {
            Line::Down { until_ns } => *until_ns,
            Line::Up(_) => self.renew_at_ns.min(self.silent_at_ns()),
        };
        task_ns.min(lease_until_ns).min(line_ns)
    }

    /// The life has ended: the next one is asked for.
    fn life_ended(&mut self, life: Life) {
        self.life = None;
        self.previous = Some(life);
        self.incarnation = os::random_u64().unwrap_or(self.incarnation.wrapping_add(1));
        (self.is_paused, self.submitted) = (false, None);
        self.renewals.clear();
        self.hello();
    }

    fn tell_lost(&self, mut core: std::sync::MutexGuard<'_, Core>) {
        let lost = std::mem::take(&mut core.lost);
        self.shared.publish(&core);
        drop(core);
        lost.iter().for_each(|grant| (self.on_lost)(grant));
    }

    /// When the decider counts as silent.
    fn silent_at_ns(&self) -> u64 {
        self.renewals.front().map_or(u64::MAX, |(_, sent_ns)| sent_ns + self.shared.lease_ns / 2)
    }

    fn keep_line(&mut self, now_ns: u64) {
        if let Line::Down { until_ns } = self.line {
            if now_ns >= until_ns {
                self.open(now_ns);
            }
            return;
        }
        if now_ns >= self.silent_at_ns() {
            return self.down(now_ns);
        }
        if now_ns >= self.renew_at_ns {
            self.renew_at_ns = now_ns + self.shared.lease_ns / RENEWALS;
            self.seq += 1;
            let view = if self.life.is_some() { self.view.0 } else { 0 };
            // The clock is read before the renewal leaves.
            self.renewals.push_back((self.seq, os::now_ns()));
            self.send(&ToDecider::Renew { seq: self.seq, view });
        }
    }

    fn down(&mut self, now_ns: u64) {
        self.line = Line::Down { until_ns: now_ns + RETRY_NS };
        self.decider = (self.decider + 1) % self.settings.deciders.len();
        self.renewals.clear();
    }

    fn open(&mut self, now_ns: u64) {
        let at = self.settings.deciders[self.decider];
        let stream =
            os::connect(at).and_then(|tcp| Stream::new(tcp, Side::Machine, self.settings.key));
        match stream {
            Err(_) => self.down(now_ns),
            Ok(stream) => {
                self.line = Line::Up(Box::new(stream));
                self.renew_at_ns = now_ns;
                self.shared.core().outbox.set_peer(DECIDER, at);
                self.hello();
            }
        }
    }

    /// Says which machine this is.
    fn hello(&mut self) {
        let address = self.settings.address;
        let message = match self.life {
            Some((life, _)) => {
                ToDecider::Attach { life, view: self.view.0, address, is_paused: self.is_paused }
            }
            None => ToDecider::Join {
                machine: self.settings.machine.map(|machine| machine.0),
                incarnation: self.incarnation,
                address,
                previous: self.previous,
            },
        };
        self.send(&message);
    }

    fn send(&mut self, message: &ToDecider) {
        if let Line::Up(stream) = &mut self.line
            && stream.send(message).is_err()
        {
            self.down(os::now_ns());
        }
    }

    fn control(&mut self) {
        let Line::Up(stream) = &mut self.line else { return };
        let mut messages = Vec::new();
        let written = stream.write();
        let ended = written.and(stream.read(&mut messages));
        for message in messages {
            self.message(message);
        }
        if ended.is_err() && matches!(self.line, Line::Up(_)) {
            self.down(os::now_ns());
        }
    }

    fn message(&mut self, message: ToMachine) {
        let shared = Arc::clone(&self.shared);
        let now_ns = os::now_ns();
        match message {
            ToMachine::Joined { machine, view, members } => {
                if View(view) < self.view {
                    return self.down(now_ns);
                }
                if self.life.is_some() {
                    return;
                }
                self.view = View(view);
                self.previous = None;
                let life = Life { machine, incarnation: self.incarnation };
                self.life = Some((life, now_ns));
                let mut core = shared.core();
                core.begin_life(Machine(machine), View(view));
                core.set_members(&members);
                drop(core);
                // Until a renewal is answered, the life has no lease.
                self.renewals.clear();
                self.renew_at_ns = 0;
                self.keep_line(now_ns);
            }
            ToMachine::Attached => {
                // It was submitted before the connection broke, perhaps in vain.
                if let Some(submitted) = self.submitted.clone() {
                    self.send(&ToDecider::Submit(submitted));
                }
            }
            ToMachine::Ended => self.ended(),
            ToMachine::Refused { field, value, allowed } => {
                let refused = ConnectError::Refused { field, value, allowed };
                _ = self.ready.take().map(|ready| ready.send(Err(refused)));
                self.line = Line::Down { until_ns: now_ns + shared.lease_ns };
            }
            ToMachine::Added { view, machine, address } if View(view) == self.view => {
                shared.core().outbox.set_peer(Machine(machine), address);
            }
            ToMachine::Members { view, members } if View(view) == self.view => {
                shared.core().set_members(&members);
            }
            ToMachine::Pause { view } => self.pause(View(view)),
            ToMachine::Resume { view, seats, members } => {
                self.resume(View(view), &seats, &members);
            }
            ToMachine::Renewed { seq, counts } => self.renewed(seq, counts),
            ToMachine::Added { .. }
            | ToMachine::Members { .. }
            | ToMachine::Status(_)
            | ToMachine::Raised { .. } => {}
        }
    }

    fn ended(&mut self) {
        let Some((life, _)) = self.life else { return };
        let shared = Arc::clone(&self.shared);
        let mut core = shared.core();
        core.end_life();
        self.life_ended(life);
        self.tell_lost(core);
    }

    fn pause(&mut self, view: View) {
        if view < self.view || self.life.is_none() {
            return;
        }
        let submission = self.shared.core().pause(view);
        if let Some(submission) = submission {
            (self.view, self.is_paused) = (view, true);
            self.submitted = Some(Submitted::of(&submission));
        }
        if let Some(submitted) = self.submitted.clone() {
            self.send(&ToDecider::Submit(submitted));
            // A renewal of the old view does not count any more.
            self.renew_at_ns = 0;
        }
    }

    fn resume(&mut self, view: View, seats: &[SeatText], members: &[(u16, SocketAddr)]) {
        if view != self.view || !self.is_paused {
            return;
        }
        let seats: Option<Vec<Seat>> = seats.iter().map(SeatText::seat).collect();
        let Some(seats) = seats else { return };
        (self.is_paused, self.submitted) = (false, None);
        let shared = Arc::clone(&self.shared);
        let mut core = shared.core();
        core.set_members(members);
        core.resume(os::now_ns(), view, &seats);
        core.flush(&shared.socket);
    }

    fn renewed(&mut self, seq: u64, counts: bool) {
        let Some(at) = self.renewals.iter().position(|(sent, _)| *sent == seq) else { return };
        let (_, sent_ns) = self.renewals[at];
        self.renewals.drain(..=at);
        if !counts || self.life.is_none() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let now_ns = os::now_ns();
        let mut core = shared.core();
        core.extend_lease(sent_ns + shared.lease_ns, now_ns);
        core.flush(&shared.socket);
        let is_ready = core.is_ready();
        shared.publish(&core);
        drop(core);
        if is_ready {
            _ = self.ready.take().map(|ready| ready.send(Ok(())));
        }
    }

    /// Leaves the cluster: no other machine may wait for this one any more.
    fn leave(&mut self) {
        let shared = Arc::clone(&self.shared);
        let begun_ns = os::now_ns();
        let mut quiet_ns = None;
        let is_clean = self.life.is_some()
            && !self.is_paused
            && loop {
                let now_ns = os::now_ns();
                let mut core = shared.core();
                core.maintain(now_ns);
                core.flush(&shared.socket);
                let is_over = core.host.as_ref().is_none_or(|host| host.places() == 0);
                let has_peers = core.has_peers;
                let is_quiet = is_over && core.is_quiet();
                drop(core);
                // Acknowledgements may be lost: other machines send again after one and after three times this.
                let since_ns = *quiet_ns.get_or_insert(now_ns);
                if !is_quiet {
                    quiet_ns = None;
                } else if !has_peers || now_ns - since_ns >= 4 * RESEND_NS {
                    break true;
                }
                if now_ns - begun_ns >= LEAVE_NS {
                    break false;
                }
                os::poll(&mut [os::interest(shared.socket.fd(), true, false)], RESEND_NS / 2);
                self.receive();
            };
        let mut core = shared.core();
        core.end_life();
        core.refuse_all();
        self.tell_lost(core);
        if self.life.is_some() {
            self.send(&ToDecider::Leave { is_clean });
        }
        while let Line::Up(stream) = &mut self.line {
            let is_late = os::now_ns() - begun_ns >= 2 * LEAVE_NS;
            if !stream.has_output() || is_late || stream.write().is_err() {
                break;
            }
            os::poll(&mut [os::interest(stream.fd(), false, true)], RESEND_NS);
        }
    }
}
