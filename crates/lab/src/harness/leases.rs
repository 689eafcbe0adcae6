//! Readers' leases of a run: how long they were, which reads skipped the second look, and the cost of adjusting them.
//!
//! Invariant: of all phases of a run, since a length that was adjusted in one is that of the next; times are of the
//! fabric's own clock. A run without leases and without a manager has no such report.

use super::lines::row;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use tarn::cluster::ClusterConfig;
use tarn_engine::cluster::lease::{SAMPLE, Stage};
use tarn_engine::services::lease_desk::Adjustment;
use tarn_engine::site::Database;

/// See the module's text.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseReport {
    /// How long they were at first.
    pub first_ns: u32,
    /// How long at the end.
    pub last_ns: u32,
    /// Read-only transactions that had a window.
    pub reads: u64,
    /// Share of these transactions that were in lease, in percent.
    pub in_lease_percent: f64,
    /// The time that 80 of a hundred of their windows did not exceed, by a tenth too long at the most; 0 if there were
    /// none.
    pub read_p80_us: f64,
    /// Read-write transactions whose stages were timed, one in so many.
    pub sampled: u64,
    /// The average time of each of these stages.
    pub stages_us: BTreeMap<&'static str, f64>,
    /// The manager of their length.
    pub manager: Option<ManagerReport>,
}

/// A manager's part.
#[derive(Clone, Debug, Serialize)]
pub struct ManagerReport {
    /// How often it was to look.
    pub every_ns: u64,
    /// The shortest lease that it asks for.
    pub least_ns: u32,
    /// The longest.
    pub most_ns: u32,
    /// How often it has looked.
    pub looks: u64,
    /// Changes that have come.
    pub changes: u64,
    /// The longest time to adjust: from when a change was asked for until the last node had acknowledged its second word.
    pub time_to_adjust_us: Option<f64>,
    /// The first changes.
    pub first: Vec<ChangeReport>,
    /// Nodes that were expelled for their clocks.
    pub expelled_for_clocks: usize,
}

/// One change.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeReport {
    /// When it was asked for, since the fabric began.
    pub asked_us: f64,
    /// From this length.
    pub from_ns: u32,
    /// To this one.
    pub to_ns: u32,
    /// Time to adjust.
    pub took_us: f64,
    /// Share of the read-only transactions behind the decision that were in lease, in percent; `None` if there were none.
    pub in_lease_percent: Option<f64>,
}

fn percent(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / of.max(1) as f64
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl LeaseReport {
    /// Reports on a database that nothing runs on any more; `None` without leases and manager.
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

/// Changes of which a line is printed.
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
