//! The machines that take part, their leases, and the beginning of views. It sends nothing itself.
//!
//! Invariants: a machine is removed when its lease has ended by the decider's clock, which adds the drift, or when the machine itself says
//! that it holds nothing any more. A view begins after all machines that may still hold something have submitted. An id serves one life in
//! a view: numbers of lanes and names of requests begin again with each life.

use crate::config::Config;
use crate::control::message::{Life, SeatText, Submitted, ToMachine};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use tarn_locks::decider::Entry;
use tarn_locks::recovery::{Submission, rebuild};
use tarn_locks::value::{LockId, Machine, View};

/// A connection's number.
pub type ConnectionId = u64;

/// A machine that takes part.
#[derive(Debug)]
pub struct Member {
    /// Where its UDP socket is.
    pub address: SocketAddr,
    /// Its life.
    incarnation: u64,
    connection: Option<ConnectionId>,
    /// When its lease ends, by the decider's clock.
    pub lease_until_ns: u64,
    submission: Option<Submission>,
    /// The beginning of the current view, for a machine whose connection broke meanwhile.
    resume: Option<ToMachine>,
}

/// A process that wants to take part.
#[derive(Clone, Debug)]
pub struct Joiner {
    /// Its connection.
    pub connection: ConnectionId,
    /// The id that it asks for.
    pub machine: Option<Machine>,
    /// Its life.
    pub incarnation: u64,
    /// Where its UDP socket is.
    pub address: SocketAddr,
    /// Since when it waits.
    pub since_ns: u64,
}

/// A life that goes on over a new connection.
#[derive(Clone, Copy, Debug)]
pub struct Attached {
    /// The connection.
    pub connection: ConnectionId,
    /// The life.
    pub life: Life,
    /// The machine's view.
    pub view: View,
    /// Where its UDP socket is.
    pub address: SocketAddr,
    /// It waits for the view to begin.
    pub is_paused: bool,
}

/// Whether locks are granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Machines submit. Before `until_ns` there may be machines that are not known.
    Gathering {
        since_ns: u64,
        until_ns: u64,
    },
    Serving,
}

/// The machines that take part.
#[derive(Debug)]
pub struct Council {
    config: Config,
    view: View,
    stage: Stage,
    members: BTreeMap<Machine, Member>,
    /// The machine of each connection, as far as it still takes part.
    speakers: BTreeMap<ConnectionId, Machine>,
    /// Ids that have served a life in this view.
    used: BTreeSet<Machine>,
    joiners: Vec<Joiner>,
    /// Messages that are to be sent.
    pub outgoing: Vec<(ConnectionId, ToMachine)>,
    /// A new view has to begin.
    pub needs_view: bool,
    /// The machines have changed since the caller looked.
    pub has_changed: bool,
    /// How long the last view took to begin.
    pub recovery_ns: u64,
}

impl Council {
    /// The council of a decider that starts: machines that it does not know may have leases.
    #[must_use]
    pub fn new(config: &Config, view: View, now_ns: u64) -> Council {
        let until_ns = now_ns + config.lease_with_drift_ns();
        Council {
            config: config.clone(),
            view,
            stage: Stage::Gathering { since_ns: now_ns, until_ns },
            members: BTreeMap::new(),
            speakers: BTreeMap::new(),
            used: BTreeSet::new(),
            joiners: Vec::new(),
            outgoing: Vec::new(),
            needs_view: false,
            has_changed: false,
            recovery_ns: 0,
        }
    }

    /// The machines.
    #[must_use]
    pub fn members(&self) -> &BTreeMap<Machine, Member> {
        &self.members
    }

    /// The number of processes that wait to take part.
    #[must_use]
    pub fn joining(&self) -> usize {
        self.joiners.len()
    }

    fn list(&self) -> Vec<(u16, SocketAddr)> {
        self.members.iter().map(|(machine, member)| (machine.0, member.address)).collect()
    }

    fn send(&mut self, to: Option<ConnectionId>, message: ToMachine) {
        self.outgoing.extend(to.map(|to| (to, message)));
    }

    fn of_connection(&mut self, connection: ConnectionId) -> Option<(Machine, &mut Member)> {
        let machine = *self.speakers.get(&connection)?;
        let member = self.members.get_mut(&machine);
        member.filter(|member| member.connection == Some(connection)).map(|it| (machine, it))
    }

    fn remove(&mut self, machine: Machine) {
        if self.members.remove(&machine).is_some() {
            self.has_changed = true;
            self.needs_view |= self.stage == Stage::Serving;
        }
    }

    fn end(&mut self, life: Life) {
        let machine = Machine(life.machine);
        let is_it = |member: &Member| member.incarnation == life.incarnation;
        if self.members.get(&machine).is_some_and(is_it) {
            self.remove(machine);
        }
    }

    /// A new view is durable. Nothing is granted until [`Council::tick`] returns its entries.
    pub fn begin_view(&mut self, view: View, now_ns: u64) {
        // A decider that has just started may still miss machines, whatever else begins a view.
        let (since_ns, until_ns) = match self.stage {
            Stage::Gathering { since_ns, until_ns } => (since_ns, until_ns),
            Stage::Serving => (now_ns, now_ns),
        };
        self.view = view;
        self.stage = Stage::Gathering { since_ns, until_ns };
        self.needs_view = false;
        self.used = self.members.keys().copied().collect();
        for member in self.members.values_mut() {
            (member.submission, member.resume) = (None, None);
        }
        let to: Vec<_> = self.members.values().filter_map(|member| member.connection).collect();
        for to in to {
            self.send(Some(to), ToMachine::Pause { view: view.0 });
        }
    }

    /// A process wants to take part.
    pub fn join(&mut self, joiner: Joiner, previous: Option<Life>) {
        previous.into_iter().for_each(|life| self.end(life));
        // An answer that was lost: the process does not know that it takes part.
        let same = |member: &Member| member.incarnation == joiner.incarnation;
        let known = self.members.iter().find(|(_, member)| same(member));
        if let Some(machine) = known.map(|(machine, _)| *machine) {
            self.remove(machine);
        }
        self.joiners.retain(|other| other.incarnation != joiner.incarnation);
        if let Some(machine) = joiner.machine {
            let Some(&address) = self.config.machines.get(&machine) else {
                let ids: Vec<_> = self.config.machines.keys().map(|it| it.0.to_string()).collect();
                let allowed =
                    format!("the ids of machines in the configuration: {}", ids.join(", "));
                let (field, value) = ("machine".to_owned(), machine.0.to_string());
                return self
                    .send(Some(joiner.connection), ToMachine::Refused { field, value, allowed });
            };
            return self.joiners.push(Joiner { address, ..joiner });
        }
        self.joiners.push(joiner);
    }

    /// A life goes on over a new connection.
    pub fn attach(&mut self, it: Attached, now_ns: u64) {
        let machine = Machine(it.life.machine);
        let lease_until_ns = now_ns + self.config.lease_with_drift_ns();
        let connection = Some(it.connection);
        self.speakers.insert(it.connection, machine);
        if let Some(member) = self.members.get_mut(&machine) {
            if member.incarnation != it.life.incarnation {
                return self.send(connection, ToMachine::Ended);
            }
            (member.connection, member.lease_until_ns) = (connection, lease_until_ns);
            let resume = member.resume.clone().filter(|_| it.is_paused && it.view == self.view);
            self.send(connection, ToMachine::Attached);
            if it.view == self.view {
                // Machines may have joined while the connection was broken.
                let (view, members) = (self.view.0, self.list());
                self.send(connection, ToMachine::Members { view, members });
            }
            if it.view < self.view {
                self.send(connection, ToMachine::Pause { view: self.view.0 });
            }
            return resume.into_iter().for_each(|resume| self.send(connection, resume));
        }
        let may_be_unknown =
            matches!(self.stage, Stage::Gathering { until_ns, .. } if now_ns < until_ns);
        let exists = self.config.machines.contains_key(&machine)
            || self.config.clients.is_some_and(|(first, last)| (first..=last).contains(&machine));
        if !may_be_unknown || !exists || it.view > self.view {
            return self.send(connection, ToMachine::Ended);
        }
        let Attached { address, life: Life { incarnation, .. }, .. } = it;
        let (submission, resume) = (None, None);
        let member =
            Member { address, incarnation, connection, lease_until_ns, submission, resume };
        self.members.insert(machine, member);
        self.used.insert(machine);
        self.has_changed = true;
        self.send(connection, ToMachine::Attached);
        self.send(connection, ToMachine::Pause { view: self.view.0 });
    }

    /// A machine asks for a longer lease. The caller has found that the view is still in force, after the request arrived.
    pub fn renew(&mut self, connection: ConnectionId, (seq, view): (u64, View), now_ns: u64) {
        let (current, lease) = (self.view, self.config.lease_with_drift_ns());
        let mut counts = false;
        let mut is_behind = false;
        if let Some((_, member)) = self.of_connection(connection) {
            counts = view == current;
            is_behind = view < current;
            if counts {
                member.lease_until_ns = now_ns + lease;
            }
        }
        self.send(Some(connection), ToMachine::Renewed { seq, counts });
        if is_behind {
            self.send(Some(connection), ToMachine::Pause { view: current.0 });
        }
    }

    /// A machine submits.
    pub fn submit(&mut self, connection: ConnectionId, submitted: &Submitted) {
        let (view, locks) = (self.view, self.config.locks);
        let is_gathering = self.stage != Stage::Serving;
        if let Some((machine, member)) = self.of_connection(connection) {
            let submission = submitted.submission(machine, locks);
            let submission = submission.filter(|it| it.view == view && is_gathering);
            member.submission = submission.or(member.submission.take());
        }
    }

    /// A life ends by its own will.
    pub fn leave(&mut self, connection: ConnectionId, is_clean: bool) {
        let Some((machine, _)) = self.of_connection(connection) else { return };
        let needed_view = self.needs_view;
        self.remove(machine);
        if is_clean {
            self.needs_view = needed_view;
        }
    }

    /// A connection is closed. The life may go on over another one.
    pub fn closed(&mut self, connection: ConnectionId) {
        self.joiners.retain(|joiner| joiner.connection != connection);
        if let Some((_, member)) = self.of_connection(connection) {
            member.connection = None;
        }
        self.speakers.remove(&connection);
    }

    /// Takes note of the time. Returns the entries of a view that begins now.
    pub fn tick(&mut self, now_ns: u64) -> Option<Vec<(LockId, Entry)>> {
        let ended = |(_, member): &(&Machine, &Member)| member.lease_until_ns < now_ns;
        let ended: Vec<_> =
            self.members.iter().filter(ended).map(|(machine, _)| *machine).collect();
        for machine in ended {
            if let Some(connection) = self.members[&machine].connection {
                self.send(Some(connection), ToMachine::Ended);
            }
            self.remove(machine);
        }
        if self.needs_view {
            return None;
        }
        if let Stage::Gathering { since_ns, until_ns } = self.stage {
            let all_submitted = self.members.values().all(|it| it.submission.is_some());
            let all_known = now_ns >= until_ns || self.has_all_machines();
            if !all_submitted || !all_known {
                return None;
            }
            self.recovery_ns = now_ns - since_ns;
            return Some(self.resume());
        }
        self.admit_all(now_ns);
        None
    }

    /// Whether every id of the configuration takes part, so that no other machine can have a lease.
    fn has_all_machines(&self) -> bool {
        let takes_part = |machine: &Machine| self.members.contains_key(machine);
        self.config.clients.is_none() && self.config.machines.keys().all(takes_part)
    }

    fn resume(&mut self) -> Vec<(LockId, Entry)> {
        let take = |(machine, member): (&Machine, &mut Member)| {
            (*machine, member.submission.take().unwrap_or_default())
        };
        let submissions: Vec<_> = self.members.iter_mut().map(take).collect();
        let rebuilt = rebuild(self.config.policy, &submissions);
        let members = self.list();
        self.stage = Stage::Serving;
        for (machine, seats) in &rebuilt.seats {
            let resume = ToMachine::Resume {
                view: self.view.0,
                seats: seats.iter().map(SeatText::of).collect(),
                members: members.clone(),
            };
            let Some(member) = self.members.get_mut(machine) else { continue };
            member.resume = Some(resume.clone());
            let connection = member.connection;
            self.send(connection, resume);
        }
        rebuilt.entries
    }

    fn admit_all(&mut self, now_ns: u64) {
        for joiner in std::mem::take(&mut self.joiners) {
            if self.needs_view {
                self.joiners.push(joiner);
                continue;
            }
            let id = match joiner.machine {
                Some(machine) => self.configured(machine, &joiner, now_ns),
                None => self.free_id(&joiner),
            };
            match id {
                Ok(Some(machine)) => self.admit(machine, &joiner, now_ns),
                Ok(None) => self.joiners.push(joiner),
                Err(refused) => self.send(Some(joiner.connection), refused),
            }
        }
    }

    /// The id that a process asks for, if it is free now.
    fn configured(
        &mut self,
        machine: Machine,
        joiner: &Joiner,
        now_ns: u64,
    ) -> Result<Option<Machine>, ToMachine> {
        if self.members.contains_key(&machine) {
            // An earlier life may have died, or another process has the id: its lease tells.
            if now_ns - joiner.since_ns < 2 * self.config.lease_with_drift_ns() {
                return Ok(None);
            }
            let (field, value) = ("machine".to_owned(), machine.0.to_string());
            let allowed = "an id that no other process uses".to_owned();
            return Err(ToMachine::Refused { field, value, allowed });
        }
        self.needs_view |= self.used.contains(&machine);
        Ok(Some(machine).filter(|_| !self.needs_view))
    }

    /// An id for a client.
    fn free_id(&mut self, _joiner: &Joiner) -> Result<Option<Machine>, ToMachine> {
        let refused = |value: String, allowed: String| {
            Err(ToMachine::Refused { field: "clients".to_owned(), value, allowed })
        };
        let Some((first, last)) = self.config.clients else {
            return refused(
                "nothing".to_owned(),
                "a range of ids for clients that join".to_owned(),
            );
        };
        let mut ids = (first.0..=last.0).map(Machine);
        if let Some(free) = ids.clone().find(|id| !self.used.contains(id)) {
            return Ok(Some(free));
        }
        if ids.all(|id| self.members.contains_key(&id)) {
            let allowed = "more ids than clients that are there".to_owned();
            return refused(format!("{} to {}", first.0, last.0), allowed);
        }
        // A new view frees the ids of those that have gone.
        self.needs_view = true;
        Ok(None)
    }

    fn admit(&mut self, machine: Machine, joiner: &Joiner, now_ns: u64) {
        let member = Member {
            address: joiner.address,
            incarnation: joiner.incarnation,
            connection: Some(joiner.connection),
            lease_until_ns: now_ns + self.config.lease_with_drift_ns(),
            submission: None,
            resume: None,
        };
        let others: Vec<_> = self.members.values().filter_map(|it| it.connection).collect();
        for other in others {
            let (view, machine, address) = (self.view.0, machine.0, joiner.address);
            self.send(Some(other), ToMachine::Added { view, machine, address });
        }
        self.members.insert(machine, member);
        self.speakers.insert(joiner.connection, machine);
        self.used.insert(machine);
        self.has_changed = true;
        let (view, members) = (self.view.0, self.list());
        let joined = ToMachine::Joined { machine: machine.0, view, members };
        self.send(Some(joiner.connection), joined);
    }

    /// Whether locks are granted.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.stage == Stage::Serving
    }

    /// When [`Council::tick`] has something to do next.
    #[must_use]
    pub fn due_ns(&self, now_ns: u64) -> u64 {
        let leases = self.members.values().map(|member| member.lease_until_ns + 1);
        let gathered = match self.stage {
            Stage::Gathering { until_ns, .. } => {
                Some(until_ns).filter(|until_ns| *until_ns > now_ns)
            }
            Stage::Serving => None,
        };
        leases.chain(gathered).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::BadNetwork;
    use std::path::PathBuf;
    use std::time::Duration;
    use tarn_locks::value::Policy;
    use tarn_locks::wire::Key;

    const LEASE_NS: u64 = 1_000_000_000;
    /// A lease with its drift.
    const LONG_NS: u64 = 1_020_000_000;

    fn config() -> Config {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Config {
            file: PathBuf::new(),
            deciders: vec![at(1)],
            locks: 10,
            key: Key([0; 16]),
            lease: Duration::from_nanos(LEASE_NS),
            policy: Policy::InOrder,
            machines: [(Machine(9), at(9))].into(),
            xdp: false,
            clients: Some((Machine(1), Machine(2))),
            spin: Duration::ZERO,
            bad_network: None::<BadNetwork>,
        }
    }

    fn joiner(connection: ConnectionId, machine: Option<u16>, since_ns: u64) -> Joiner {
        let machine = machine.map(Machine);
        let address = SocketAddr::from(([127, 0, 0, 1], 100));
        Joiner { connection, machine, incarnation: connection, address, since_ns }
    }

    fn life(machine: u16, incarnation: u64) -> Life {
        Life { machine, incarnation }
    }

    /// Begins views until none is needed.
    fn advance(council: &mut Council, now_ns: u64) {
        loop {
            council.tick(now_ns);
            if !council.needs_view {
                return;
            }
            council.begin_view(council.view.next(), now_ns);
        }
    }

    /// Submits nothing for a machine.
    fn submit(council: &mut Council, connection: ConnectionId) {
        let view = council.view;
        let empty = Submission { view, ..Submission::default() };
        council.submit(connection, &Submitted::of(&empty));
    }

    fn serving() -> Council {
        let mut council = Council::new(&config(), View(1), 0);
        assert_eq!(council.tick(LONG_NS - 1), None, "machines that are not known may have leases");
        assert!(council.tick(LONG_NS).is_some());
        council
    }

    fn said(council: &mut Council, to: ConnectionId) -> Vec<ToMachine> {
        let all = std::mem::take(&mut council.outgoing);
        all.into_iter().filter(|(id, _)| *id == to).map(|(_, message)| message).collect()
    }

    #[test]
    fn a_machine_that_does_not_submit_is_waited_for_until_its_lease_ends() {
        let mut council = serving();
        for connection in [1, 2] {
            council.join(joiner(connection, None, LONG_NS), None);
        }
        advance(&mut council, LONG_NS);
        assert_eq!(council.members().len(), 2);
        council.begin_view(View(2), LONG_NS);
        submit(&mut council, 1);
        // Renewals of the old view count for nothing.
        council.renew(2, (1, View(1)), LONG_NS + LEASE_NS / 2);
        council.renew(1, (1, View(2)), LONG_NS + LEASE_NS / 2);
        assert_eq!(council.tick(2 * LONG_NS), None);
        assert!(council.tick(2 * LONG_NS + 1).is_some());
        assert_eq!(council.members().keys().copied().collect::<Vec<_>>(), [Machine(1)]);
    }

    #[test]
    fn an_id_serves_one_life_in_a_view() {
        let mut council = serving();
        council.join(joiner(1, Some(9), LONG_NS), None);
        advance(&mut council, LONG_NS);
        // The same machine again, which does not know that its earlier life has ended.
        council.join(joiner(2, Some(9), LONG_NS), None);
        advance(&mut council, 2 * LONG_NS);
        assert_eq!((council.view, council.members()[&Machine(9)].incarnation), (View(1), 1));
        // The lease of the earlier life ends: first a new view, then the new life.
        for _ in 0..2 {
            advance(&mut council, 2 * LONG_NS + 1);
        }
        assert_eq!((council.view, council.members()[&Machine(9)].incarnation), (View(2), 2));
        // A machine that says that its life has ended is not waited for.
        council.join(joiner(3, Some(9), 2 * LONG_NS + 1), Some(life(9, 2)));
        for _ in 0..2 {
            advance(&mut council, 2 * LONG_NS + 2);
        }
        assert_eq!((council.view, council.members()[&Machine(9)].incarnation), (View(3), 3));
    }

    #[test]
    fn an_id_in_use_is_refused_after_two_leases() {
        let mut council = serving();
        council.join(joiner(1, Some(9), LONG_NS), None);
        advance(&mut council, LONG_NS);
        council.join(joiner(2, Some(9), LONG_NS), None);
        for step in 1..=30 {
            let now_ns = LONG_NS + step * LONG_NS / 10;
            council.renew(1, (step, View(1)), now_ns);
            advance(&mut council, now_ns);
        }
        let said = said(&mut council, 2);
        assert!(
            matches!(&said[..], [ToMachine::Refused { field, .. }] if field == "machine"),
            "{said:?}"
        );
        council.join(joiner(3, Some(8), LONG_NS), None);
        assert!(matches!(council.outgoing[..], [.., (3, ToMachine::Refused { .. })]));
    }

    #[test]
    fn a_clean_leave_needs_no_view_and_another_one_does() {
        for is_clean in [true, false] {
            let mut council = serving();
            council.join(joiner(1, None, LONG_NS), None);
            advance(&mut council, LONG_NS);
            council.leave(1, is_clean);
            assert_eq!(council.needs_view, !is_clean);
            // The id is not used again in this view.
            council.join(joiner(2, None, LONG_NS), None);
            council.needs_view = false;
            council.tick(LONG_NS);
            assert!(council.members().contains_key(&Machine(2)));
        }
    }

    #[test]
    fn a_life_goes_on_over_a_new_connection_unless_it_has_ended() {
        let attached = |connection, incarnation, view| Attached {
            connection,
            life: life(1, incarnation),
            view: View(view),
            address: SocketAddr::from(([127, 0, 0, 1], 100)),
            is_paused: true,
        };
        // A decider that has just started does not know the life.
        let mut council = Council::new(&config(), View(5), 0);
        council.attach(attached(1, 77, 4), 10);
        assert_eq!(said(&mut council, 1), [ToMachine::Attached, ToMachine::Pause { view: 5 }]);
        submit(&mut council, 1);
        council.closed(1);
        council.members.get_mut(&Machine(1)).expect("a member").lease_until_ns = u64::MAX;
        assert!(council.tick(LONG_NS).is_some());
        // It missed the beginning of the view.
        council.attach(attached(2, 77, 5), LONG_NS);
        let said_again = said(&mut council, 2);
        assert!(matches!(
            said_again[..],
            [ToMachine::Attached, ToMachine::Members { .. }, ToMachine::Resume { view: 5, .. }]
        ));
        for (connection, incarnation) in [(3, 78), (4, 79)] {
            council.attach(attached(connection, incarnation, 5), LONG_NS);
            assert_eq!(said(&mut council, connection), [ToMachine::Ended]);
        }
    }
}
