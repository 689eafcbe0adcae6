//! Readers' leases of a run: their lengths, the reads that skipped validation because they ended within their lease,
//! and the cost of adjusting the lengths.
//!
//! Invariant: the report covers all phases of a run, since a lease length that one phase adjusted also holds in the
//! next phase. All times are measured by the fabric's own clock. A run without leases and without a manager has no
//! report on leases.

use super::lines::row;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tarn::cluster::ClusterConfig;
use tarn_engine::cluster::lease::{SAMPLE, Stage};
use tarn_engine::services::lease_desk::Adjustment;
use tarn_engine::site::Database;

/// The report on the readers' leases of one run.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseReport {
    /// The length of a lease at the start of the run.
    pub first_ns: u32,
    /// The length of a lease at the end of the run.
    pub last_ns: u32,
    /// The number of read-only transactions that had a lease window.
    pub reads: u64,
    /// Among the read-only transactions with a lease window, the percentage whose window ended within the lease.
    pub in_lease_percent: f64,
    /// The 80th percentile of the windows of read-only transactions, overestimated by at most a tenth; 0 if no
    /// read-only transaction ran.
    pub read_p80_us: f64,
    /// The number of read-write transactions whose stages were timed: the run times only a sample.
    pub sampled: u64,
    /// The average time of each stage of the timed read-write transactions.
    pub stages_us: BTreeMap<&'static str, f64>,
    /// The report on the manager that adjusts the lease length.
    pub manager: Option<ManagerReport>,
}

/// The report on the manager that adjusts the lease length.
#[derive(Clone, Debug, Serialize)]
pub struct ManagerReport {
    /// The interval at which the manager decides on the lease length.
    pub every_ns: u64,
    /// The shortest lease that the manager may request.
    pub least_ns: u32,
    /// The longest lease that the manager may request.
    pub most_ns: u32,
    /// The number of times that the manager has decided on the lease length.
    pub looks: u64,
    /// The number of completed changes of the lease length.
    pub changes: u64,
    /// The longest time that one change of the lease length took. The time of a change begins with the request for
    /// the change. The time ends when the last node has acknowledged the second of the change's two lease words.
    pub time_to_adjust_us: Option<f64>,
    /// The first changes of the lease length.
    pub first: Vec<ChangeReport>,
    /// The number of nodes that were expelled because of their clocks.
    pub expelled_for_clocks: usize,
}

/// One change of the lease length.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeReport {
    /// The time of the request for the change, since the fabric began.
    pub asked_us: f64,
    /// The lease length before the change.
    pub from_ns: u32,
    /// The lease length after the change.
    pub to_ns: u32,
    /// The time that this change took, from its request to its end.
    pub took_us: f64,
    /// Among the read-only transactions on which the manager based its decision, the percentage that ended within the
    /// lease; `None` if there was no such transaction.
    pub in_lease_percent: Option<f64>,
}

fn percent(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / of.max(1) as f64
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl LeaseReport {
    /// Reports on a database on which no thread runs any more; `None` if the database has neither leases nor a
    /// manager.
    pub fn of(database: &Database, config: &ClusterConfig) -> Option<LeaseReport> {
        let is_asked = config.read_lease_ns > 0 || config.read_lease_policy.is_some();
        if !is_asked || !database.protocol.needs().read_leases {
            return None;
        }
        let delays = database.lease_desk.gone();
        let mean = |stage| {
            let spent = delays.spent(stage);
            us(spent.sum_ns) / spent.count.max(1) as f64
        };
        Some(LeaseReport {
            first_ns: config.read_lease_ns,
            last_ns: database.membership.read_lease().read_ns(),
            reads: delays.reads(),
            in_lease_percent: percent(delays.in_lease(), delays.reads()),
            read_p80_us: delays.percentile(80).map_or(0.0, |passed| us(passed.0)),
            sampled: delays.spent(Stage::Execute).count,
            stages_us: Stage::ALL.into_iter().map(|stage| (stage.name(), mean(stage))).collect(),
            manager: ManagerReport::of(database, config),
        })
    }
}

impl ManagerReport {
    fn of(database: &Database, config: &ClusterConfig) -> Option<ManagerReport> {
        let policy = config.read_lease_policy?;
        let told = database.lease_desk.adjustments();
        Some(ManagerReport {
            every_ns: policy.every_ns,
            least_ns: policy.least_ns,
            most_ns: policy.most_ns,
            looks: told.looks,
            changes: told.count,
            time_to_adjust_us: (told.count > 0).then(|| us(told.longest_ns)),
            first: told.first.iter().map(ChangeReport::of).collect(),
            expelled_for_clocks: told.clocks.len(),
        })
    }
}

impl ChangeReport {
    fn of(change: &Adjustment) -> ChangeReport {
        let Adjustment { asked, from_ns, to_ns, took, reads, in_lease } = *change;
        ChangeReport {
            asked_us: us(asked.0),
            from_ns,
            to_ns,
            took_us: us(took.0),
            in_lease_percent: (reads > 0).then(|| percent(in_lease, reads)),
        }
    }
}

/// The largest number of lease changes that the report prints in full, each on one line.
const PRINTED: usize = 4;

impl fmt::Display for LeaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        row!(f, "leases" =>
            "{} ns at first, {} ns at the end; {:.1} % of {} read-only transactions in lease, 80 % \
             read within {:.2} µs (all phases)",
            self.first_ns, self.last_ns, self.in_lease_percent, self.reads, self.read_p80_us)?;
        if self.sampled > 0 {
            let stages: Vec<String> =
                self.stages_us.iter().map(|(name, us)| format!("{name} {us:.2} µs")).collect();
            let stages = stages.join(", ");
            row!(f, "stages" => "{stages}: of one read-write transaction in {SAMPLE}")?;
        }
        self.manager.as_ref().map_or(Ok(()), |manager| manager.fmt(f))
    }
}

impl fmt::Display for ManagerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time_to_adjust_us.map_or("none".into(), |us| format!("{us:.2} µs"));
        row!(f, "lease manager" =>
            "{} looks, one in {} ns; {} changes; time to adjust {time} at the most",
            self.looks, self.every_ns, self.changes)?;
        for change in self.first.iter().take(PRINTED) {
            let ChangeReport { asked_us, from_ns, to_ns, took_us, in_lease_percent } = change;
            let share =
                in_lease_percent.map_or(String::new(), |it| format!("; {it:.1} % in lease"));
            row!(f, "" => "{from_ns} → {to_ns} ns at {asked_us:.1} µs, in {took_us:.2} µs{share}")?;
        }
        match self.expelled_for_clocks {
            0 => Ok(()),
            count => row!(f, "" => "{count} nodes expelled for their clocks"),
        }
    }
}
