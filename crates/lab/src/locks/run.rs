//! Measures a lock service while its clients replay a trace.
//!
//! Invariant: throughput counts acquires, as the paper does. Counting begins after the warm-up, and counts
//! requests that end before the end of the run. Times are virtual.

use super::cluster::{BadSetup, Cluster, Setup};
use super::tally::{Sent, Tally};
use super::{CLIENTS_A_THREAD, HOSTS};
use std::collections::BTreeMap;
use std::rc::Rc;
use tarn_fabric::clock::Nanos;
use tarn_locks::trace::Trace;
use tarn_locks::value::LockId;
use tarn_sim::scheduler::Scheduler;
use tarn_sim::usage::{Part, Usage};

/// How a trace is replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Clients of each issuing thread.
    pub clients: usize,
    /// The time for which a transaction, with all its locks, works and occupies its core.
    pub work_ns: u64,
    /// The time before counting begins.
    pub warm_up_ns: u64,
    /// The time of counting.
    pub measured_ns: u64,
    /// The length of the buckets in which acquires are counted over time; 0 counts none.
    pub bucket_ns: u64,
}

impl Pace {
    /// The paper's 160 clients, which hold their locks for no time.
    pub fn new(warm_up_ns: u64, measured_ns: u64) -> Pace {
        let (clients, work_ns, bucket_ns) = (CLIENTS_A_THREAD, 0, 0);
        Pace { clients, work_ns, warm_up_ns, measured_ns, bucket_ns }
    }
}

/// The measurements of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// The service's name.
    pub system: &'static str,
    /// The time of counting, in seconds.
    pub seconds: f64,
    /// Acquires that were granted.
    pub acquires: u64,
    /// Acquires that were granted before counting began.
    pub acquires_before: u64,
    /// Transactions that had all their locks.
    pub transactions: u64,
    /// Transactions that ended because their time was over.
    pub timed_out: u64,
    /// The times from request to grant, in order.
    pub granted_ns: Vec<u32>,
    /// The times of transactions, by kind, in order.
    pub took_ns: Vec<Vec<u32>>,
    /// Acquires in each bucket of time.
    pub timeline: Vec<u64>,
    /// The length of a bucket.
    pub bucket_ns: u64,
    /// Copies of acquires that wait for an agent's core at the end. If they are many, they grow as long as the load
    /// stays, and the throughput is that of the switch and not of the agents.
    pub copies_waiting: u64,
    /// The services' counts.
    pub sent: Sent,
    /// Acquires that each share of the locks, or each core of the lock server, served.
    pub served: [u64; HOSTS as usize],
    /// The share of the time for which the busiest serving core worked.
    pub manager_busy: f64,
    /// The share of the time for which the busiest issuing core worked.
    pub issuing_busy: f64,
    /// The share of the time for which the switch's pipeline was busy.
    pub switch_busy: f64,
    /// The digest of the trace.
    pub trace: u64,
    /// The digest of the run's events.
    pub digest: u64,
}

impl Measured {
    /// Returns millions of acquires per second.
    pub fn acquires_millions(&self) -> f64 {
        self.acquires as f64 / self.seconds / 1e6
    }

    /// Returns millions of transactions per second.
    pub fn transactions_millions(&self) -> f64 {
        self.transactions as f64 / self.seconds / 1e6
    }

    /// Returns the time in microseconds below which this share of the grants took; `None` without a grant.
    pub fn granted_us(&self, share: f64) -> Option<f64> {
        quantile(&self.granted_ns, share)
    }

    /// Returns the time in microseconds below which this share of the transactions of a kind took.
    pub fn took_us(&self, kind: usize, share: f64) -> Option<f64> {
        self.took_ns.get(kind).and_then(|times| quantile(times, share))
    }

    /// Returns the share of the transactions of a kind that took less than a time.
    pub fn share_below(&self, kind: usize, limit_us: f64) -> Option<f64> {
        let times = self.took_ns.get(kind).filter(|times| !times.is_empty())?;
        let below = times.partition_point(|time| f64::from(*time) < limit_us * 1e3);
        Some(below as f64 / times.len() as f64)
    }

    /// Returns the share of all acquires that one part counted.
    pub fn share_of(&self, part: u64) -> f64 {
        part as f64 / self.acquires.max(1) as f64
    }

    /// Returns the share of the busiest core or machine among the acquires that such served.
    pub fn busiest_share(&self) -> f64 {
        let all: u64 = self.served.iter().sum();
        self.served.iter().max().map_or(0.0, |most| *most as f64 / all.max(1) as f64)
    }

    /// Says where the requests were decided, and which cores were busy.
    pub fn counters(&self) -> String {
        let percent = |share: f64| (100.0 * share).round();
        format!(
            "{}: serving core {} % busy, issuing core {} %, switch {} %; {} % local, {} % by the switch, busiest \
             share {} %, {:.2} messages an acquire, {} refused, {} resent, {} copies wait for agents at the end",
            self.system,
            percent(self.manager_busy),
            percent(self.issuing_busy),
            percent(self.switch_busy),
            percent(self.share_of(self.sent.local)),
            percent(self.share_of(self.sent.by_switch)),
            percent(self.busiest_share()),
            self.share_of(self.sent.messages),
            self.sent.refused,
            self.sent.resends,
            self.copies_waiting,
        )
    }
}

fn quantile(sorted: &[u32], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = (share * sorted.len() as f64) as usize;
    Some(f64::from(sorted[at.min(last)]) / 1e3)
}

/// Returns the most requested locks of a trace's first transactions, in the order of their numbers. NetLock
/// takes this profile in a run before the measured one.
pub fn hottest(trace: &Trace, transactions: usize, locks: usize) -> Vec<LockId> {
    let mut counts: BTreeMap<LockId, u32> = BTreeMap::new();
    for it in trace.transactions().take(transactions) {
        it.wanted.iter().for_each(|wanted| *counts.entry(wanted.lock()).or_default() += 1);
    }
    let mut by_count: Vec<(u32, LockId)> = counts.into_iter().map(|(id, n)| (n, id)).collect();
    by_count.sort_unstable_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(&other.1)));
    let mut hot: Vec<LockId> = by_count.into_iter().take(locks).map(|(_, lock)| lock).collect();
    hot.sort_unstable();
    hot
}

/// The virtual time after which a run looks whether it has come to a limit.
const SLICE_NS: u64 = 50_000;

/// Runs between two times. A run that has come to a limit has no result, so it ends early.
fn run_between(scheduler: &mut Scheduler<'_>, tally: &Tally, (from_ns, to_ns): (u64, u64)) {
    let mut now_ns = from_ns;
    while now_ns < to_ns && tally.stopped.borrow().is_none() {
        now_ns = to_ns.min(now_ns + SLICE_NS);
        scheduler.run_until(Nanos(now_ns));
    }
}

/// Replays a trace on a new cluster.
///
/// # Errors
/// The setup is impossible, or the run has come to a limit of the service.
pub fn run(setup: &Setup, trace: &Rc<Trace>, pace: Pace) -> Result<Measured, BadSetup> {
    let cluster = Cluster::new(setup)?;
    let mut scheduler = Scheduler::new(&cluster.fabric);
    cluster.start(&mut scheduler, trace, (pace.clients, pace.work_ns));
    let tally = &cluster.tally;
    run_between(&mut scheduler, tally, (0, pace.warm_up_ns));
    let (before, sent) = (cluster.fabric.usage(), tally.sent.get());
    let served = *tally.served.borrow();
    tally.is_on.set(true);
    tally.began.set(Nanos(pace.warm_up_ns));
    tally.bucket_ns.set(pace.bucket_ns);
    run_between(&mut scheduler, tally, (pace.warm_up_ns, pace.warm_up_ns + pace.measured_ns));
    let used = cluster.fabric.usage().since(&before);
    let digest = cluster.fabric.digest();
    tally.is_on.set(false);
    if let Some(why) = tally.stopped.take() {
        return Err(BadSetup::Setting(why));
    }
    let sorted = |mut times: Vec<u32>| {
        times.sort_unstable();
        times
    };
    let mut now_served = *tally.served.borrow();
    now_served.iter_mut().zip(served).for_each(|(now, before)| *now -= before);
    let (manager_busy, issuing_busy) = busy(&used, &cluster.managers());
    Ok(Measured {
        system: setup.system.name(),
        seconds: pace.measured_ns as f64 / 1e9,
        acquires: tally.acquires.get(),
        acquires_before: tally.acquires_before.get(),
        transactions: tally.transactions.get(),
        timed_out: tally.timed_out.get(),
        granted_ns: sorted(tally.granted_ns.take()),
        took_ns: tally.took_ns.take().into_iter().map(sorted).collect(),
        timeline: tally.timeline.take(),
        bucket_ns: pace.bucket_ns,
        copies_waiting: tally.copies_waiting(),
        sent: tally.sent.get().since(sent),
        served: now_served,
        manager_busy,
        issuing_busy,
        switch_busy: used.busiest(Part::Switch).map_or(0.0, |(share, _)| share),
        trace: trace.digest(),
        digest,
    })
}

/// Returns how busy the busiest serving core and the busiest issuing core were.
fn busy(used: &Usage, managers: &[String]) -> (f64, f64) {
    let (mut serving, mut issuing) = (0u64, 0u64);
    for part in used.parts.iter().filter(|part| part.part == Part::Processor) {
        let of = if managers.contains(&part.of) { &mut serving } else { &mut issuing };
        *of = (*of).max(part.busy_ps);
    }
    let share = |busy_ps: u64| busy_ps as f64 / (used.at.0.max(1) as f64 * 1e3);
    (share(serving), share(issuing))
}
