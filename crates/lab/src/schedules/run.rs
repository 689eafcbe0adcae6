//! Runs one seed: draws the seed's meaning, builds and loads the cluster, runs the transactions, and judges the
//! result.
//!
//! Invariant: the subject and the seed determine the result. A panic of the engine or the simulator is an error like
//! any other. The run ends at the panic, and the run's digest covers the trace up to the panic.

use super::Subject;
use super::cluster::Cluster;
use super::coverage::Deaths;
use super::desk::{Desk, Incidents, Left, Settled};
use super::drawn::{Drawn, is_asked_for};
use super::judge::{self, Evidence, Finding, FindingKind};
use super::mixture::{self, Mixture};
use super::play::Play;
use crate::harness::history::history_of;
use crate::harness::panics;
use std::collections::BTreeMap;
use tarn_check::History;
use tarn_engine::site::metrics::Tally;
use tarn_fabric::clock::Nanos;
use tarn_store::history::{RecordedTxn, enter};
use tarn_store::ids::{AbortReason, UsageError};
use tarn_workloads::{Settings, Workload, with_workload};

/// The results of one seed.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The number of the seed.
    pub seed: u64,
    /// The digest of the trace. Equal runs have equal digests, and different runs have different
    /// digests.
    pub digest: u64,
    /// The counters of the coordinators.
    pub tally: Tally,
    /// The number of events that happened: verbs, completions and messages.
    pub events: u64,
    /// The virtual time that passed.
    pub passed: Nanos,
    /// The meaning of the seed, including its faults.
    pub drawn: Drawn,
    /// The phases of transactions at the moment when their nodes died.
    pub deaths: Deaths,
    /// The counts of events that are neither commits, aborts nor deaths.
    pub incidents: Incidents,
    /// The first error, if there is one.
    pub finding: Option<Finding>,
    /// The reads and writes of the seed's transactions. The history is empty if the run ended in a
    /// panic.
    pub history: History,
}

impl Ran {
    /// Returns the share of tries that the protocol aborted. The share does not include aborts by callers and
    /// refusals by a unique index.
    pub fn conflict_rate(&self) -> f64 {
        let others = [AbortReason::User, AbortReason::UniqueViolation];
        let others = others.map(|reason| self.tally.aborts[reason as usize]);
        let aborted = self.tally.aborted() - others.iter().sum::<u64>();
        let tries = self.tally.aborted() + self.tally.committed;
        aborted as f64 / tries.max(1) as f64
    }
}

/// Runs the schedule of one seed and judges its result.
///
/// # Errors
/// The error names the unknown protocol, variant or workload.
pub fn run_seed(subject: &Subject, seed: u64) -> Result<Ran, UsageError> {
    subject.refuse_workload()?;
    let drawn = subject.drawn(seed);
    if drawn.workload == mixture::NAME {
        return run_workload(&Mixture::of(&drawn.mix, drawn.zipf)?, subject, &drawn, seed);
    }
    let settings = Settings {
        profile: drawn.mix_profile.map(str::to_owned),
        records: Some(drawn.records),
        zipf: (!is_asked_for(&drawn.workload)).then_some(drawn.zipf),
    };
    with_workload!(&drawn.workload, W => run_workload(&W::new(&settings)?, subject, &drawn, seed))?
}

fn run_workload<W: Workload>(
    workload: &W,
    subject: &Subject,
    drawn: &Drawn,
    seed: u64,
) -> Result<Ran, UsageError> {
    let mut ran = Ran {
        seed,
        digest: 0,
        tally: Tally::default(),
        events: 0,
        passed: Nanos(0),
        drawn: drawn.clone(),
        deaths: Deaths::default(),
        incidents: Incidents::default(),
        finding: None,
        history: History::default(),
    };
    let cluster = match panics::catch(|| Cluster::new(workload, subject, drawn, seed)) {
        Ok(cluster) => cluster?,
        Err(text) => {
            ran.finding = Some(Finding { kind: FindingKind::Panic, text });
            return Ok(ran);
        }
    };
    let whole = panics::catch(|| {
        if let Err(text) = cluster.load(workload) {
            return Ok(Some(Finding { kind: FindingKind::Failure, text }));
        }
        trial(workload, &cluster, drawn, &mut ran)
    });
    ran.finding = match whole {
        Ok(finding) => finding?,
        Err(text) => Some(Finding { kind: FindingKind::Panic, text }),
    };
    ran.digest = cluster.fabric.digest();
    ran.events = cluster.fabric.usage().events();
    ran.passed = cluster.fabric.now();
    Ok(ran)
}

fn trial<W: Workload>(
    workload: &W,
    cluster: &Cluster,
    drawn: &Drawn,
    ran: &mut Ran,
) -> Result<Option<Finding>, UsageError> {
    let desk = Desk::<W::Tally>::default();
    let played = Play::new(workload, cluster, drawn, &desk)?.run()?;
    let Left { tally, mut failures, mut incidents, .. } = desk.left.take();
    incidents.lease_changes.note(&cluster.database.lease_desk.adjustments());
    (ran.tally, ran.deaths) = (played.tally, played.deaths);
    let mut history: Vec<RecordedTxn> = played.history;
    let entered = enter(&mut history, played.decisions, |_| true);
    let aborted = entered.undone + entered.nothing_written;
    incidents.resolved = Settled { committed: entered.committed, aborted };
    ran.incidents = incidents;
    failures.extend(entered.contradictions);
    failures.extend(played.stuck);
    ran.history = history_of(BTreeMap::new(), &workload.schemas(), &history);
    let evidence = Evidence { recorded: &ran.history, history, tally, failures };
    judge::judge(cluster, workload, drawn, evidence)
}
