//! All comparisons of one run, and their table.
//!
//! Invariants: the table states the machine, the configuration, the repetitions, and each rival that was skipped. A bank whose money was not
//! conserved is a failure, whatever its speed.

use crate::banking::{Bank, Teller, Work};
use crate::clock;
use crate::connection::PeerError;
use crate::dice::Dice;
use crate::etcd::EtcdError;
use crate::fiss::{self, Cluster};
use crate::locker::Locker;
use crate::options::{DEEP, Options, OptionsError};
use crate::pairs::{self, Load, Pairs};
use crate::redlock::{Literal, Pipelined};
use crate::server::{Private, Skipped};
use crate::store::Store;
use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tarn_net::os;

/// The pause before each measurement. A system that shares its processors with others favours a program that has just slept, and FissLock's
/// clients sleep until the decider's first lease.
const PAUSE: Duration = Duration::from_millis(500);
/// The balance of each account at the start.
const BALANCE: u64 = 1_000;
/// Lock and unlock, by service and way.
const NAMES: [&str; 8] = [
    "Redis SET NX + DEL, depth 1",
    "Redis SET NX + DEL, 32 connections",
    "Redis SET NX + DEL, 1 connection, 32 deep",
    "RedLock, literal, depth 1",
    "RedLock, pipelined, 32 deep",
    "etcd lock + unlock, 32 connections",
    "FissLock, depth 1",
    "FissLock, 32 deep",
];

/// A run that failed.
#[derive(Debug)]
pub enum RunError {
    /// The configuration.
    Options(OptionsError),
    /// Redis, or the lock service.
    Peer(PeerError),
    /// etcd.
    Etcd(EtcdError),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Options(error) => error.fmt(f),
            RunError::Peer(error) => error.fmt(f),
            RunError::Etcd(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RunError {}

impl From<OptionsError> for RunError {
    fn from(error: OptionsError) -> RunError {
        RunError::Options(error)
    }
}

impl From<PeerError> for RunError {
    fn from(error: PeerError) -> RunError {
        RunError::Peer(error)
    }
}

impl From<std::io::Error> for RunError {
    fn from(error: std::io::Error) -> RunError {
        RunError::Peer(PeerError::Network(error))
    }
}

impl From<EtcdError> for RunError {
    fn from(error: EtcdError) -> RunError {
        RunError::Etcd(error)
    }
}

/// A rate of lock and unlock.
#[derive(Clone, Debug)]
pub struct PairsRow {
    /// The service and the way in which it is used.
    pub name: &'static str,
    /// Pairs a second of each repetition, in ascending order.
    pub rates: Vec<f64>,
    /// Microseconds of processors that one pair takes, of clients and server together, in ascending order.
    pub cpu_us: Vec<f64>,
}

/// A bank.
#[derive(Clone, Debug)]
pub struct BankingRow {
    /// The service that keeps the locks.
    pub name: &'static str,
    /// Operations a second of each repetition, in ascending order.
    pub rates: Vec<f64>,
    /// Microseconds of processors that one operation takes, of clients, decider and Redis together, in ascending order.
    pub cpu_us: Vec<f64>,
    /// The greatest of the repetitions' median latencies.
    pub p50_us: f64,
    /// The greatest of the repetitions' latencies that one of 100 operations exceeds.
    pub p99_us: f64,
    /// Operations of all repetitions.
    pub operations: u64,
    /// Transfers among them.
    pub transfers: u64,
    /// Attempts to take a lock that were made in vain.
    pub failed: u64,
    /// The money at the start of each repetition.
    pub money: u64,
    /// The money at the end of each repetition.
    pub ends: Vec<u64>,
}

impl BankingRow {
    /// Whether no repetition has made or lost money.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.ends.iter().all(|end| *end == self.money)
    }
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The configuration.
    pub options: Options,
    /// The machine and the versions of the rivals.
    pub machine: Vec<String>,
    /// Lock and unlock.
    pub pairs: Vec<PairsRow>,
    /// Banks.
    pub banking: Vec<BankingRow>,
    /// Rivals that were skipped, one line each.
    pub skipped: Vec<Skipped>,
}

impl Report {
    /// Whether all banks have conserved their money.
    #[must_use]
    pub fn is_conserved(&self) -> bool {
        self.banking.iter().all(BankingRow::is_conserved)
    }
}

/// The median of rates in ascending order.
#[must_use]
pub fn median(rates: &[f64]) -> f64 {
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// Runs all comparisons with the rivals that are installed.
///
/// # Errors
/// A value of the configuration, or a rival that started and then failed.
pub fn run(options: &Options) -> Result<Report, RunError> {
    options.check()?;
    let mut skipped = Vec::new();
    let mut keep = |server: Result<Private, Skipped>| server.map_err(|it| skipped.push(it)).ok();
    let redis = keep(Private::redis());
    let etcd = if options.pairs { keep(Private::etcd()) } else { None };
    let mut machine = vec![machine()];
    let servers = [&redis, &etcd];
    machine.extend(servers.iter().filter_map(|it| it.as_ref()).map(|it| it.version.clone()));
    let mut report = Report {
        options: options.clone(),
        machine,
        pairs: Vec::new(),
        banking: Vec::new(),
        skipped,
    };
    let [redis, etcd] = servers.map(Option::as_ref);
    for repetition in 0..options.repetitions {
        let seed = options.seed.wrapping_add(repetition as u64);
        if options.pairs {
            measure_pairs(&mut report.pairs, options, seed, (redis, etcd))?;
        }
        if let (true, Some(redis)) = (options.banking, redis) {
            measure_banks(&mut report.banking, options, seed, redis)?;
        }
    }
    for row in &mut report.pairs {
        [&mut row.rates, &mut row.cpu_us].into_iter().for_each(|it| it.sort_by(f64::total_cmp));
    }
    for row in &mut report.banking {
        [&mut row.rates, &mut row.cpu_us].into_iter().for_each(|it| it.sort_by(f64::total_cmp));
    }
    Ok(report)
}

/// The time of processors so far, of this process and a server.
fn cpu_ns(server: Option<&Private>) -> u64 {
    os::process_cpu_ns() + server.map_or(0, Private::cpu_ns)
}

fn measure_pairs(
    rows: &mut Vec<PairsRow>,
    options: &Options,
    seed: u64,
    (redis, etcd): (Option<&Private>, Option<&Private>),
) -> Result<(), RunError> {
    let mut add = |name, server, pairs: &mut dyn FnMut() -> Result<Pairs, RunError>| {
        clock::sleep(PAUSE);
        let before_ns = cpu_ns(server);
        let pairs = pairs()?;
        let cpu_us = (cpu_ns(server) - before_ns) as f64 / 1e3 / pairs.count.max(1) as f64;
        let row = match rows.iter().position(|row| row.name == name) {
            Some(at) => &mut rows[at],
            None => {
                rows.push(PairsRow { name, rates: Vec::new(), cpu_us: Vec::new() });
                rows.last_mut().expect("a row that was pushed")
            }
        };
        row.rates.push(pairs.rate());
        row.cpu_us.push(cpu_us);
        Ok::<(), RunError>(())
    };
    let load = |depth| Load { locks: options.accounts, depth, time: options.time(), seed };
    let (one, deep) = (load(1), load(DEEP));
    if let Some(server) = redis {
        let at = server.address();
        add(NAMES[0], redis, &mut || Ok(pairs::redis_connections(at, &one)?))?;
        add(NAMES[1], redis, &mut || Ok(pairs::redis_connections(at, &deep)?))?;
        add(NAMES[2], redis, &mut || Ok(pairs::redis_pipelined(at, &deep)?))?;
        let mut store = Store::open(at)?;
        let mut literal = Literal::open(at, 1, 1)?;
        add(NAMES[3], redis, &mut || Ok(pairs::through(&mut literal, &mut store, &one)?))?;
        let mut pipelined = Pipelined::open(&mut store, 1, DEEP)?;
        add(NAMES[4], redis, &mut || Ok(pairs::through(&mut pipelined, &mut store, &deep)?))?;
    }
    if let Some(server) = etcd {
        add(NAMES[5], etcd, &mut || Ok(pairs::etcd(server.address(), &deep)?))?;
    }
    for (name, load) in [(NAMES[6], one), (NAMES[7], deep)] {
        let cluster = Cluster::start(load.locks)?;
        let mut fiss = cluster.client(load.depth)?;
        let mut store = Store::absent();
        add(name, None, &mut || Ok(pairs::through(&mut fiss, &mut store, &load)?))?;
    }
    Ok(())
}

fn measure_banks(
    rows: &mut Vec<BankingRow>,
    options: &Options,
    seed: u64,
    redis: &Private,
) -> Result<(), RunError> {
    let bank = options.bank();
    let slots = options.depth;
    let literal = |_: &mut Store, thread| Ok(Literal::open(redis.address(), thread, slots)?);
    measure_bank(rows, "RedLock, literal", (options, &bank, seed, redis), literal)?;
    let pipelined = |store: &mut Store, thread| Pipelined::open(store, thread, slots);
    measure_bank(rows, "RedLock, pipelined", (options, &bank, seed, redis), pipelined)?;
    let cluster = Cluster::start(options.accounts)?;
    let fiss = |_: &mut Store, _| Ok(cluster.client(slots)?);
    measure_bank(rows, "FissLock", (options, &bank, seed, redis), fiss)
}

fn measure_bank<L: Locker + Send>(
    rows: &mut Vec<BankingRow>,
    name: &'static str,
    (options, bank, seed, redis): (&Options, &Bank, u64, &Private),
    mut locker: impl FnMut(&mut Store, u64) -> Result<L, PeerError>,
) -> Result<(), RunError> {
    let mut books = Store::open(redis.address())?;
    books.fill(options.accounts, BALANCE)?;
    let money = books.sum(options.accounts)?;
    let mut tellers = Vec::new();
    for thread in 1..=options.threads as u64 {
        let mut store = Store::open(redis.address())?;
        let locker = locker(&mut store, thread)?;
        tellers.push(Teller::new(bank, locker, store, Dice::new(seed, thread)));
    }
    clock::sleep(PAUSE);
    let before_ns = cpu_ns(Some(redis));
    let works = serve(tellers)?;
    let used_ns = cpu_ns(Some(redis)) - before_ns;
    let end = books.sum(options.accounts)?;
    let rate = works.iter().map(|it| it.operations as f64 / it.time.as_secs_f64()).sum();
    let mut latencies_ns: Vec<u32> =
        works.iter().flat_map(|it| &it.latencies_ns).copied().collect();
    latencies_ns.sort_unstable();
    let us = |percent: usize| {
        let at = latencies_ns.len() * percent / 100;
        latencies_ns.get(at).map_or(0.0, |ns| f64::from(*ns) / 1e3)
    };
    let (p50_us, p99_us) = (us(50), us(99));
    let operations: u64 = works.iter().map(|it| it.operations).sum();
    let failed: u64 = works.iter().map(|it| it.failed).sum();
    let transfers: u64 = works.iter().map(|it| it.transfers).sum();
    let cpu_us = used_ns as f64 / 1e3 / operations.max(1) as f64;
    match rows.iter_mut().find(|row| row.name == name) {
        Some(row) => {
            row.rates.push(rate);
            row.cpu_us.push(cpu_us);
            row.ends.push(end);
            row.operations += operations;
            row.transfers += transfers;
            row.failed += failed;
            (row.p50_us, row.p99_us) = (row.p50_us.max(p50_us), row.p99_us.max(p99_us));
        }
        None => rows.push(BankingRow {
            name,
            rates: vec![rate],
            cpu_us: vec![cpu_us],
            p50_us,
            p99_us,
            operations,
            transfers,
            failed,
            money,
            ends: vec![end],
        }),
    }
    Ok(())
}

/// Runs each teller in a thread of its own.
pub(crate) fn serve<L: Locker + Send>(tellers: Vec<Teller<'_, L>>) -> Result<Vec<Work>, PeerError> {
    let (done, threads) = (AtomicUsize::new(0), tellers.len());
    std::thread::scope(|scope| {
        let done = &done;
        let threads = tellers
            .into_iter()
            .map(|teller| scope.spawn(move || teller.serve((done, threads))))
            .collect::<Vec<_>>();
        let works = threads.into_iter().map(|thread| thread.join().expect("no teller panics"));
        works.collect()
    })
}

/// The machine in one line.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("processor unknown", |it| it.trim_start_matches([' ', '\t', ':']));
    format!("{cores} cores, {model}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { accounts, threads, depth, read_percent, theta, .. } = &self.options;
        let Options { seconds, repetitions, seed, .. } = &self.options;
        let spin_us = fiss::spin().as_micros();
        writeln!(f, "machine: {}", self.machine.join("; "))?;
        writeln!(
            f,
            "configuration: {repetitions} repetitions of {seconds} s each, seed {seed}; median (least \
             to greatest)\n  all on loopback; FissLock's client and decider are threads of this process, \
             which look for\n  packets for {spin_us} us before they sleep; cpu: microseconds of \
             processors for one, client and\n  server together"
        )?;
        if !self.pairs.is_empty() {
            writeln!(f, "\nlock + unlock pairs a second, {accounts} locks, none contended")?;
            let deep = self.pairs.iter().find(|row| row.name == NAMES[7]);
            let deep = deep.map_or(0.0, |row| median(&row.rates));
            self.pairs.iter().try_for_each(|row| row.print(f, deep))?;
        }
        if !self.banking.is_empty() {
            writeln!(
                f,
                "\nbank: {accounts} accounts, zipf {theta}, {read_percent} % reads, {threads} threads, \
                 {depth} clients each\n  balances in Redis throughout; a transfer reads two balances \
                 and writes two\n  (as published it sends HDECRBY, which Redis does not know: repaired)"
            )?;
            let fiss = self.banking.last().map_or(0.0, |row| median(&row.rates));
            self.banking.iter().try_for_each(|row| row.print(f, fiss))?;
        }
        self.skipped.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl PairsRow {
    fn print(&self, f: &mut fmt::Formatter<'_>, fiss: f64) -> fmt::Result {
        let PairsRow { name, rates, cpu_us } = self;
        let (shown, cpu_us, ratio) = (shown(rates), median(cpu_us), fiss / median(rates));
        writeln!(f, "  {name:<43} {shown:<34} cpu {cpu_us:>7.2}   FissLock 32 deep is {ratio:.1}x")
    }
}

impl BankingRow {
    fn print(&self, f: &mut fmt::Formatter<'_>, fiss: f64) -> fmt::Result {
        let BankingRow { name, rates, cpu_us, p50_us, p99_us, transfers, failed, .. } = self;
        let (shown, cpu_us, ratio) = (shown(rates), median(cpu_us), fiss / median(rates));
        writeln!(f, "  {name:<20} {shown:<34} op/s, cpu {cpu_us:>7.2}   FissLock is {ratio:.1}x")?;
        let (blank, money) = ("", self.money);
        writeln!(
            f,
            "  {blank:<20} p50 {p50_us:.0} us, p99 {p99_us:.0} us at most; {transfers} transfers, \
             {failed} attempts in vain"
        )?;
        let ends = self.ends.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let verdict = if self.is_conserved() { "conserved" } else { "NOT CONSERVED" };
        writeln!(f, "  {blank:<20} money {money} at the start, {ends} at the end: {verdict}")
    }
}

fn shown(rates: &[f64]) -> String {
    let (low, high) = (rates.first().copied(), rates.last().copied());
    let (low, high) = (low.unwrap_or_default(), high.unwrap_or_default());
    format!("{:>9.0} ({low:.0} to {high:.0})", median(rates))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_fisslock_are_measured_without_any_rival() {
        let options = Options { accounts: 1_000, seconds: 0.03, ..Options::default() };
        let mut rows = Vec::new();
        for seed in [1, 2] {
            measure_pairs(&mut rows, &options, seed, (None, None)).unwrap();
        }
        let names: Vec<_> = rows.iter().map(|row| row.name).collect();
        assert_eq!(names, [NAMES[6], NAMES[7]]);
        assert!(rows.iter().all(|row| row.rates.len() == 2 && row.rates[0] > 0.0));
    }

    #[test]
    fn a_table_names_lost_money_and_skipped_rivals() {
        let row = BankingRow {
            name: "FissLock",
            rates: vec![1.0, 2.0, 4.0],
            cpu_us: vec![3.5],
            p50_us: 1.0,
            p99_us: 2.0,
            operations: 7,
            transfers: 3,
            failed: 9,
            money: 100,
            ends: vec![100, 99],
        };
        let report = Report {
            options: Options::default(),
            machine: vec!["a machine".into()],
            pairs: Vec::new(),
            banking: vec![row],
            skipped: vec![Skipped("skipped: etcd is not on the PATH".into())],
        };
        assert!(!report.is_conserved());
        let text = report.to_string();
        assert!(
            text.contains("money 100 at the start, 100, 99 at the end: NOT CONSERVED"),
            "{text}"
        );
        assert!(text.contains(" 2 (1 to 4) ") && text.contains("op/s, cpu    3.50"), "{text}");
        assert!(text.contains("3 transfers, 9 attempts in vain"), "{text}");
        assert!(text.ends_with("skipped: etcd is not on the PATH\n"), "{text}");
    }
}
