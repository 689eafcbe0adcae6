//! Traces of lock requests in files: drawn from a load once, and replayed on any service.
//!
//! Invariant: a trace in a file is replayed with the same digest as the trace that was drawn. Every machine of a
//! simulated cluster has a transaction of the trace, so no client waits without a request.
//! The format of a file: [`tarn_locks::trace`].

use super::case::{Case, Form, Goal, HOT, TRACE_STREAM, refuse, switch_locks};
use super::data::ALL;
use super::report::Line;
use crate::locks::HOSTS;
use crate::locks::cluster::{BadSetup, Setup};
use crate::locks::plan::Shares;
use crate::locks::run::{Pace, hottest, run};
use crate::locks::system::System;
use serde::Serialize;
use std::fmt;
use std::rc::Rc;
use tarn_locks::service::Kind;
use tarn_locks::trace::{Tpcc, Trace};
use tarn_sim::config::ConfigError;
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;

/// Transactions of a trace that is drawn, at most. Derived: 67 M transactions of TPC-C, with up to 20 requests each,
/// take about 6 GB of memory.
const TRANSACTIONS_MAX: usize = 1 << 26;

/// Draws a trace of a load for the machines of a simulated cluster.
///
/// # Errors
/// The text describes no load.
pub fn draw(load: &str, transactions: usize, seed: u64) -> Result<Trace, UsageError> {
    let of = System::Messages(Kind::FissLock);
    let case = Case::read_load(of, load, (Form::Code, Goal::Trace))?;
    if !(usize::from(HOSTS)..=TRANSACTIONS_MAX).contains(&transactions) {
        return refuse("transactions", transactions, format!("{HOSTS} to {TRANSACTIONS_MAX}"));
    }
    // A hotspot moves as in the quick test run of the evaluation.
    let moves_after = ALL[0].quick.hotspot_moves_after;
    Ok(case.drawn(seed, TRACE_STREAM, (transactions, moves_after)))
}

/// How a trace is replayed.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The services, by their names. Each replays the whole trace on a cluster of its own.
    pub services: Vec<String>,
    /// The hardware profile.
    pub profile: Profile,
    /// The seed of the clusters.
    pub seed: u64,
    /// Clients, held time, and lengths.
    pub pace: Pace,
    /// NetLock's hot locks are the most requested ones of this trace, in place of the replayed one.
    pub hot_from: Option<Trace>,
    /// The trace is TPC-C's with so many warehouses for each machine, and a machine has its warehouses' locks.
    pub warehouses: Option<u32>,
}

/// The replays of one trace.
#[derive(Serialize)]
pub struct Replays {
    /// The digest of the trace.
    pub trace: String,
    /// The number of locks.
    pub locks: u32,
    /// The number of transactions of the trace.
    pub transactions: usize,
    /// The number of requests of the trace.
    pub requests: usize,
    /// The hardware profile's name.
    pub profile: String,
    /// The seed of the clusters.
    pub seed: u64,
    /// Clients of each issuing thread.
    pub clients: usize,
    /// The time for which a transaction works.
    pub work_ns: u64,
    /// The virtual time before counting begins.
    pub warm_up_ms: f64,
    /// The measured virtual time.
    pub virtual_ms: f64,
    /// One run for each service.
    pub runs: Vec<Line>,
    /// The source of NetLock's hot locks.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub hot_locks: &'static str,
}

/// Refuses a trace that clients of the machines cannot replay.
fn check(trace: &Trace) -> Result<(), UsageError> {
    let mut requests = [0usize; HOSTS as usize];
    for it in trace.transactions() {
        match it.machine.0 {
            machine @ 1..=HOSTS => requests[usize::from(machine) - 1] += it.wanted.len(),
            machine => return refuse("machine of a transaction", machine, format!("1 to {HOSTS}")),
        }
    }
    match requests.iter().position(|count| *count == 0) {
        Some(machine) => refuse(
            "requests of a machine",
            format!("none of machine {}", machine + 1),
            format!("one or more of each machine from 1 to {HOSTS}"),
        ),
        None => Ok(()),
    }
}

/// Says which requests NetLock's operator has seen before the replay.
fn told_of_hot(order: &Replay) -> &'static str {
    match order.hot_from {
        Some(_) => "netlock keeps the most requested locks of another trace",
        None => "netlock keeps the most requested locks of this very trace, which favours it",
    }
}

fn system_of(name: &str) -> Result<System, UsageError> {
    let allowed = || System::ALL.map(System::name).join(", ");
    System::by_name(name).map_or_else(|| refuse("service", name, allowed()), Ok)
}

/// Replays a trace on each of the services.
///
/// # Errors
/// A service that does not exist, or a trace that does not fit the cluster.
pub fn replay(trace: Trace, order: &Replay) -> Result<Replays, UsageError> {
    check(&trace)?;
    let systems: Vec<System> =
        order.services.iter().map(|name| system_of(name)).collect::<Result<_, _>>()?;
    if let Some(warehouses) = order.warehouses {
        let locks = u64::from(warehouses) * u64::from(HOSTS) * u64::from(Tpcc::LOCKS);
        if locks != u64::from(trace.locks()) {
            let each = u32::from(HOSTS) * Tpcc::LOCKS;
            let allowed = format!("the {} locks of the trace / {each}", trace.locks());
            return refuse("warehouses", warehouses, allowed);
        }
    } else if systems.contains(&System::Messages(Kind::FissLockLocal)) {
        return refuse("service", "fisslock-local", "a trace of TPC-C, together with --warehouses");
    }
    if let Some(hot) = order.hot_from.as_ref().filter(|hot| hot.locks() != trace.locks()) {
        return refuse("locks of --hot-from", hot.locks(), format!("{}", trace.locks()));
    }
    let trace = Rc::new(trace);
    let runs = systems.iter().map(|system| run_one(*system, &trace, order));
    let runs = runs.collect::<Result<_, _>>()?;
    Ok(Replays {
        trace: format!("{:016x}", trace.digest()),
        locks: trace.locks(),
        transactions: trace.len(),
        requests: trace.requests(),
        profile: order.profile.name.clone(),
        seed: order.seed,
        clients: order.pace.clients,
        work_ns: order.pace.work_ns,
        warm_up_ms: order.pace.warm_up_ns as f64 / 1e6,
        virtual_ms: order.pace.measured_ns as f64 / 1e6,
        runs,
        hot_locks: match systems.contains(&System::Messages(Kind::NetLock)) {
            true => told_of_hot(order),
            false => "",
        },
    })
}

fn run_one(system: System, trace: &Rc<Trace>, order: &Replay) -> Result<Line, UsageError> {
    let mut setup = Setup::new(system, trace.locks(), order.profile.clone());
    setup.seed = order.seed;
    setup.on_switch = switch_locks().min(u64::from(trace.locks())) as u32;
    if system == System::Messages(Kind::NetLock) {
        let seen = order.hot_from.as_ref().unwrap_or(trace);
        setup.hot = hottest(seen, seen.len(), HOT);
    }
    if let Some(warehouses) = order.warehouses {
        setup.shares = Shares::ByWarehouse(Tpcc::new(HOSTS, warehouses));
    }
    match run(&setup, trace, order.pace) {
        Ok(ran) => Ok(Line::of(system.name().to_owned(), &ran)),
        Err(BadSetup::Setting(UsageError { field, value, allowed })) => {
            refuse(&format!("{field}, {}", system.name()), value, allowed)
        }
        Err(BadSetup::Shape(ConfigError { field, value, allowed })) => {
            refuse(&format!("{field} of the cluster, {}", system.name()), value, allowed)
        }
        Err(BadSetup::Switch(unfit)) => {
            refuse("shape of the switch", unfit, "shapes that fit its registers")
        }
    }
}

impl fmt::Display for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Replays {
            trace,
            locks,
            transactions,
            requests,
            profile,
            seed,
            clients,
            work_ns,
            warm_up_ms,
            virtual_ms,
            runs,
            hot_locks,
        } = self;
        writeln!(
            f,
            "trace {trace}: {transactions} transactions, {requests} requests, {locks} locks"
        )?;
        writeln!(
            f,
            "simulated: profile {profile}, seed {seed}, {clients} clients a thread, {work_ns} ns of work, {virtual_ms} ms \
             of virtual time after {warm_up_ms} ms of warm-up, each service once"
        )?;
        for Line {
            case,
            acquires_millions,
            transactions_millions,
            timed_out,
            granted_us,
            counters,
            digest,
            ..
        } in runs
        {
            let time = |it: Option<f64>| it.map_or("–".to_owned(), |it| format!("{it:.2}"));
            let [median, high] = granted_us.map(time);
            writeln!(
                f,
                "{case}: {acquires_millions:.3} M acquires/s, {transactions_millions:.3} M transactions/s, grants in \
                 {median} µs (50 %) and {high} µs (90 %), {timed_out} timed out, run {digest}\n  {counters}"
            )?;
        }
        if hot_locks.is_empty() { Ok(()) } else { writeln!(f, "{hot_locks}") }
    }
}
