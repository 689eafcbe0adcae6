//! A simulated cluster with one lock service: switch, machines, threads.
//!
//! Invariant: 40 issuing threads run the clients of 8 machines of the trace, five threads for each, whatever the
//! service. Where one machine is the lock server, the threads are spread over the seven others.

use super::client::{Feed, Task, attend, replay};
use super::host::Host;
use super::plan::{Plan, Shares};
use super::programs::{Decider, HotQueues};
use super::seat::Seat;
use super::system::{System, WordKind};
use super::tally::Tally;
use super::words::{WordSeat, group_bytes};
use super::{
    HOSTS, HOSTS_BESIDE_SERVER, ISSUING, MANAGER, SERVER_CORES, message_work_ns, verb_work_ns,
};
use std::fmt;
use std::rc::Rc;
use tarn_fabric::address::{Incarnation, NodeId, NodeSlot};
use tarn_fabric::backend::Endpoint;
use tarn_fabric::port::Port;
use tarn_locks::queue::Profile as HotProfile;
use tarn_locks::service::Kind;
#[cfg(test)]
use tarn_locks::service::{Grant, LockService as _, Patience, Refusal};
use tarn_locks::switch::staged::Unfit;
use tarn_locks::trace::Trace;
#[cfg(test)]
use tarn_locks::value::Mode as LockMode;
use tarn_locks::value::{LockId, Machine, Policy};
use tarn_locks::wire::{HEADER_BYTES, PACKET_BYTES, WAITER_BYTES};
use tarn_sim::config::{ConfigError, Mode, SimConfig};
use tarn_sim::fabric::SimFabric;
use tarn_sim::profile::Profile;
use tarn_sim::scheduler::Scheduler;
use tarn_sim::switch::SwitchConfig;
use tarn_store::ids::UsageError;

/// Requests that a hot lock's queue has room for. Derived: 10,000 queues of 16 slots of 20 bytes take 3.2 MB of
/// the 12 units of 560 KB (Zhang et al., OSDI 2024, section 7.2).
pub const HOT_SLOTS: u32 = 16;
/// How often a packet of NetLock passes at most: a release may grant all slots of a queue.
const HOT_PASSES: u32 = 1 + HOT_SLOTS;

/// A lock service and its cluster.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The service.
    pub system: System,
    /// The number of locks.
    pub locks: u32,
    /// The locks that the switch's decider has room for.
    pub on_switch: u32,
    /// The hot locks of NetLock, in order.
    pub hot: Vec<LockId>,
    /// How machines share locks, where they do.
    pub shares: Shares,
    /// Which waiter comes next at FissLock's agents.
    pub policy: Policy,
    /// The hardware.
    pub profile: Profile,
    /// The seed of the cluster.
    pub seed: u64,
}

impl Setup {
    /// A service with room for all locks on the switch, whose agents grant in order. If the switch does not decide a
    /// lock, FissLock's machines share it by number (`lock_to_lm` of the public code), and ParLock's by ranges.
    pub fn new(system: System, locks: u32, profile: Profile) -> Setup {
        let shares = match system {
            System::Messages(Kind::FissLock) => Shares::ById,
            _ => Shares::ByRange,
        };
        Setup {
            system,
            locks,
            on_switch: locks,
            hot: Vec::new(),
            shares,
            policy: Policy::InOrder,
            profile,
            seed: 1,
        }
    }
}

/// A cluster that cannot be made.
#[derive(Debug)]
pub enum BadSetup {
    /// The shape of the cluster.
    Shape(ConfigError),
    /// The shape of the switch.
    Switch(Unfit),
    /// A setting that does not fit, or a run that has come to a limit of the service.
    Setting(UsageError),
}

impl BadSetup {
    fn setting(field: &str, value: impl ToString, allowed: impl Into<String>) -> BadSetup {
        let (field, value) = (field.to_owned(), value.to_string());
        BadSetup::Setting(UsageError { field, value, allowed: allowed.into() })
    }
}

impl fmt::Display for BadSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadSetup::Shape(error) => error.fmt(f),
            BadSetup::Switch(error) => error.fmt(f),
            BadSetup::Setting(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BadSetup {}

impl From<UsageError> for BadSetup {
    fn from(error: UsageError) -> BadSetup {
        BadSetup::Setting(error)
    }
}

impl From<ConfigError> for BadSetup {
    fn from(error: ConfigError) -> BadSetup {
        BadSetup::Shape(error)
    }
}

/// The threads of a service.
enum Threads {
    Messages {
        /// The issuing threads, each with the machine of the trace whose clients it runs.
        issuing: Vec<(Machine, Rc<Seat>)>,
        managers: Vec<Rc<Seat>>,
    },
    Words(Vec<(Machine, Port, Rc<WordSeat>)>),
}

/// An issuing thread of any service.
#[cfg(test)]
#[derive(Clone)]
pub(crate) enum AnySeat {
    Messages(Rc<Seat>),
    Words(Port, Rc<WordSeat>),
}

#[cfg(test)]
impl AnySeat {
    pub(crate) fn port(&self) -> &Port {
        match self {
            AnySeat::Messages(seat) => seat.port(),
            AnySeat::Words(port, _) => port,
        }
    }

    pub(crate) async fn acquire(
        &self,
        lock: LockId,
        mode: LockMode,
        patience: Patience,
    ) -> Result<Grant, Refusal> {
        match self {
            AnySeat::Messages(seat) => seat.acquire(lock, mode, patience).await,
            AnySeat::Words(_, seat) => seat.acquire(lock, mode, patience).await,
        }
    }

    pub(crate) fn release(&self, grant: Grant) {
        match self {
            AnySeat::Messages(seat) => seat.release(grant),
            AnySeat::Words(_, seat) => seat.release(grant),
        }
    }
}

/// A cluster with a lock service.
pub struct Cluster {
    /// The simulated cluster.
    pub fabric: SimFabric,
    threads: Threads,
    pub(crate) tally: Rc<Tally>,
}

/// Refuses a network on which not even a lock packet with one waiter fits a datagram.
///
/// # Errors
/// The largest datagram is too small.
pub(crate) fn check_datagrams(profile: &Profile) -> Result<(), UsageError> {
    let least = HEADER_BYTES + PACKET_BYTES + WAITER_BYTES;
    let most = profile.link.mtu_bytes.value as usize;
    match most < least {
        true => {
            let field = "bytes of the largest datagram (link.mtu_bytes)";
            let allowed = format!("{least} or more");
            Err(UsageError { field: field.into(), value: most.to_string(), allowed })
        }
        false => Ok(()),
    }
}

fn node(slot: u16) -> NodeId {
    NodeId { slot: NodeSlot(slot), incarnation: Incarnation(1) }
}

/// The machine of the trace whose clients an issuing thread runs.
fn of_trace(thread: u16) -> Machine {
    Machine(1 + thread / ISSUING)
}

impl Cluster {
    /// Makes a cluster.
    ///
    /// # Errors
    /// The setup is impossible.
    pub fn new(setup: &Setup) -> Result<Cluster, BadSetup> {
        check_datagrams(&setup.profile)?;
        let words = match setup.system {
            System::Words(kind) => Some(kind),
            System::Messages(_) => None,
        };
        let memory_nodes = if words.is_some() { HOSTS } else { 1 };
        let fabric = SimFabric::new(&SimConfig {
            memory_nodes: usize::from(memory_nodes),
            replicas: 1,
            compute_nodes: usize::from(HOSTS),
            group_bytes: group_bytes(setup.locks, memory_nodes).next_multiple_of(4096),
            profile: setup.profile.clone(),
            mode: Mode::Timed,
            seed: setup.seed,
        })?;
        let on_switch = setup.on_switch;
        if setup.system == System::Messages(Kind::FissLockLocal) && on_switch < setup.locks {
            let (field, all) = ("locks of fisslock-local on the switch", setup.locks);
            return Err(BadSetup::setting(field, on_switch, format!("all {all} locks")));
        }
        let tally = Rc::new(Tally::default());
        let threads = match setup.system {
            System::Words(kind) => words_of(&fabric, setup, (kind, memory_nodes), &tally),
            System::Messages(kind) => messages(&fabric, setup, kind, &tally)?,
        };
        Ok(Cluster { fabric, threads, tally })
    }

    /// Starts all threads, with clients that replay a trace.
    pub(crate) fn start(
        &self,
        scheduler: &mut Scheduler<'_>,
        trace: &Rc<Trace>,
        (clients, work_ns): (usize, u64),
    ) {
        let feed = Rc::new(Feed::new(trace));
        match &self.threads {
            Threads::Messages { issuing, managers } => {
                for (machine, seat) in issuing {
                    let task = || -> Task<'static> {
                        let (service, port) = (Rc::clone(seat), seat.port().clone());
                        let from = (Rc::clone(&feed), *machine);
                        Box::pin(replay(service, port, from, work_ns, Rc::clone(&self.tally)))
                    };
                    let tasks = (0..clients).map(|_| task()).collect();
                    let port = seat.port().clone();
                    scheduler.spawn(seat.port(), attend(Rc::clone(seat), port, tasks));
                }
                self.serve(scheduler, managers);
            }
            Threads::Words(seats) => {
                for (machine, port, seat) in seats {
                    let task = || -> Task<'static> {
                        let from = (Rc::clone(&feed), *machine);
                        let (service, tally) = (Rc::clone(seat), Rc::clone(&self.tally));
                        Box::pin(replay(service, port.clone(), from, work_ns, tally))
                    };
                    let tasks = (0..clients).map(|_| task()).collect();
                    scheduler.spawn(port, attend(Rc::clone(seat), port.clone(), tasks));
                }
            }
        }
    }

    fn serve(&self, scheduler: &mut Scheduler<'_>, managers: &[Rc<Seat>]) {
        for seat in managers {
            let port = seat.port().clone();
            scheduler.spawn(seat.port(), attend(Rc::clone(seat), port, Vec::new()));
        }
    }

    /// Starts the threads that serve, and one task on each of some issuing threads, numbered from 0.
    #[cfg(test)]
    pub(crate) fn script(&self, scheduler: &mut Scheduler<'_>, tasks: Vec<(usize, Task<'static>)>) {
        if let Threads::Messages { managers, .. } = &self.threads {
            self.serve(scheduler, managers);
        }
        for (thread, task) in tasks {
            match &self.threads {
                Threads::Messages { issuing, .. } => {
                    let (_, seat) = &issuing[thread];
                    let port = seat.port().clone();
                    scheduler.spawn(seat.port(), attend(Rc::clone(seat), port, vec![task]));
                }
                Threads::Words(seats) => {
                    let (_, port, seat) = &seats[thread];
                    scheduler.spawn(port, attend(Rc::clone(seat), port.clone(), vec![task]));
                }
            }
        }
    }

    /// Returns an issuing thread as a client sees it, numbered from 0 over all machines.
    #[cfg(test)]
    pub(crate) fn any_seat(&self, thread: usize) -> AnySeat {
        match &self.threads {
            Threads::Messages { issuing, .. } => AnySeat::Messages(Rc::clone(&issuing[thread].1)),
            Threads::Words(seats) => {
                let (_, port, seat) = &seats[thread];
                AnySeat::Words(port.clone(), Rc::clone(seat))
            }
        }
    }

    /// Returns an issuing thread, numbered from 0 over all machines.
    ///
    /// # Panics
    /// The service has no messages, or no such thread.
    #[cfg(test)]
    pub(crate) fn seat(&self, thread: usize) -> Rc<Seat> {
        let Threads::Messages { issuing, .. } = &self.threads else { panic!("no messages") };
        Rc::clone(&issuing[thread].1)
    }

    /// Returns the names of the threads that serve, as readings of usage have them.
    pub(crate) fn managers(&self) -> Vec<String> {
        match &self.threads {
            Threads::Messages { managers, .. } => {
                let name = |seat: &Rc<Seat>| {
                    let port = seat.port();
                    format!("{} thread {}", port.node(), port.endpoint().thread)
                };
                managers.iter().map(name).collect()
            }
            Threads::Words(_) => Vec::new(),
        }
    }
}

fn words_of(
    fabric: &SimFabric,
    setup: &Setup,
    (kind, nodes): (WordKind, u16),
    tally: &Rc<Tally>,
) -> Threads {
    let seat = |thread: u16| {
        let port = fabric.port(node(thread / ISSUING), thread % ISSUING, setup.seed);
        let work_ns = verb_work_ns(&setup.profile);
        let seat = WordSeat::new((port.clone(), work_ns), kind, (setup.locks, nodes), tally);
        (of_trace(thread), port, Rc::new(seat))
    };
    Threads::Words((0..HOSTS * ISSUING).map(seat).collect())
}

fn messages(
    fabric: &SimFabric,
    setup: &Setup,
    kind: Kind,
    tally: &Rc<Tally>,
) -> Result<Threads, BadSetup> {
    let has_server = setup.system.has_server();
    let hosts = if has_server { HOSTS_BESIDE_SERVER } else { HOSTS };
    // The switch's node follows those of the machines.
    let switch = Endpoint { node: NodeSlot(HOSTS), thread: 0 };
    let plan = Rc::new(Plan {
        kind,
        locks: setup.locks,
        on_switch: setup.on_switch.min(setup.locks),
        shares: setup.shares.clone(),
        profile: HotProfile { hot: setup.hot.clone(), slots: HOT_SLOTS },
        hosts: (0..hosts).map(NodeSlot).collect(),
        switch,
        server: has_server.then_some(NodeSlot(HOSTS_BESIDE_SERVER)),
    });
    let added = match kind {
        Kind::FissLock | Kind::FissLockLocal => {
            let decider = Decider::new(&plan, tally).map_err(BadSetup::Switch)?;
            Some(fabric.add_switch(SwitchConfig::TOFINO, decider)?)
        }
        Kind::NetLock => {
            let config = SwitchConfig { passes_max: HOT_PASSES, ..SwitchConfig::TOFINO };
            Some(fabric.add_switch(config, HotQueues::new(&plan, tally))?)
        }
        Kind::SrvLock | Kind::ParLock => None,
    };
    debug_assert!(added.is_none_or(|added| added.slot == switch.node));
    let (both, work_ns) = ((&plan, tally), message_work_ns(&setup.profile));
    let machines: Vec<Rc<Host>> =
        (0..hosts).map(|number| Rc::new(Host::new(number, &plan, setup.policy))).collect();
    let mut joined = vec![0; usize::from(hosts)];
    let issuing = (0..HOSTS * ISSUING).map(|thread| {
        let host = thread * hosts / (HOSTS * ISSUING);
        let own = joined[usize::from(host)];
        joined[usize::from(host)] += 1;
        let port = fabric.port(node(host), own, setup.seed);
        let seat = Seat::new((port, work_ns), own, &machines[usize::from(host)], both);
        (of_trace(thread), Rc::new(seat))
    });
    let issuing = issuing.collect();
    let managers = match has_server {
        true => (0..SERVER_CORES)
            .map(|core| {
                let own = Rc::new(Host::new(HOSTS_BESIDE_SERVER, &plan, setup.policy));
                let port = fabric.port(node(HOSTS_BESIDE_SERVER), core, setup.seed);
                Rc::new(Seat::new((port, work_ns), core, &own, both))
            })
            .collect(),
        false => machines
            .iter()
            .map(|host| {
                let port = fabric.port(node(host.number), MANAGER, setup.seed);
                Rc::new(Seat::new((port, work_ns), MANAGER, host, both))
            })
            .collect(),
    };
    Ok(Threads::Messages { issuing, managers })
}
