//! Runs the three cases of a hotspot, each on a cluster of its own. In the first case, all shards get the same load.
//! In the second case, some shards are hot and do not move. In the third case, the hot shards move.
//!
//! Invariant: the checks concern the last case. The last case first runs a recorded phase in which shards move often,
//! and the checker judges this phase's history. The measured phase runs after the recorded phase. At the end, the
//! memory must contain every acknowledged update.

use super::Hotspot;
use super::report::{Case, HotspotReport};
use super::trail::Trail;
use crate::harness::checks::{Checks, guaranteed};
use crate::harness::error::RunError;
use crate::harness::recording::Recording;
use crate::simulate::driver::{Driver, Length};
use crate::simulate::run::Plan;
use crate::simulate::virtual_ms;
use std::rc::Rc;
use tarn_engine::services::shard_rule::Terms;
use tarn_fabric::clock::Nanos;
use tarn_workloads::Workload;

/// The length of the recorded phase's intervals: the intervals are short, so that shards move during this phase.
const RECORDED_INTERVAL: Nanos = Nanos(200_000);

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct HotspotPlan {
    /// The configuration of the cluster, and the length of the run.
    pub plan: Plan,
    /// The number, position and load of the hot shards.
    pub hotspot: Hotspot,
    /// The rule that decides when shards move.
    pub terms: Terms,
    /// The number of clients, in total over all nodes.
    pub clients: usize,
    /// The length of the recorded phase.
    pub recorded: Nanos,
}

/// The hot shards of a phase, and the rule by which shards move.
#[derive(Clone)]
pub(crate) struct Heat {
    pub(crate) hotspot: Hotspot,
    /// The rule that decides when shards move; `None`: no shard moves.
    pub(crate) terms: Option<Terms>,
    pub(crate) trail: Rc<Trail>,
}

/// Runs the three cases.
///
/// # Errors
/// Fails if the plan cannot be run, or if a step of the run fails. A failed check is not an error, because the report
/// states the failed check.
pub fn run<W: Workload>(
    workload: impl Fn() -> Result<W, RunError>,
    it: &HotspotPlan,
    watch: &dyn Fn(&'static str),
) -> Result<HotspotReport, RunError> {
    let mut cases = Vec::new();
    for (name, stride) in [("balanced", 1), ("not moved", it.hotspot.nodes)] {
        watch(name);
        let mut driver = loaded(workload()?, it)?;
        cases.push(measure(&mut driver, it, (name, stride, None))?);
    }
    watch("moved");
    let mut driver = loaded(workload()?, it)?;
    let (history, mut failures) = recorded(&mut driver, it)?;
    cases.push(measure(&mut driver, it, ("moved", it.hotspot.nodes, Some(it.terms)))?);
    failures.extend(cases.iter_mut().flat_map(|case| std::mem::take(&mut case.failures)));
    let judged = driver.check()?;
    let checks = Checks::of(driver.workload(), driver.tally(), judged, history, failures);
    Ok(HotspotReport::of::<W>(it, driver.cluster(), cases, checks))
}

fn loaded<W: Workload>(workload: W, it: &HotspotPlan) -> Result<Driver<W>, RunError> {
    let mut driver = it.plan.driver(workload)?;
    driver.load(&|_, _| {})?;
    driver.set_clients(Some(it.clients));
    Ok(driver)
}

fn length(it: &HotspotPlan) -> Length {
    Length::measured(Nanos(0), virtual_ms(it.plan.virtual_ms))
}

fn measure<W: Workload>(
    driver: &mut Driver<W>,
    it: &HotspotPlan,
    (name, stride, terms): (&'static str, u32, Option<Terms>),
) -> Result<Case, RunError> {
    let trail = Rc::new(Trail::new(it.terms.interval));
    let hotspot = Hotspot { stride, ..it.hotspot };
    driver.set_heat(Some(Heat { hotspot, terms, trail: Rc::clone(&trail) }));
    let measured = driver.phase(length(it), &|_| {})?;
    Ok(Case::of(name, &trail, measured.phase, it))
}

/// Runs a phase in which shards move often; returns the checker's verdict on the phase, and the
/// phase's failures.
fn recorded<W: Workload>(
    driver: &mut Driver<W>,
    it: &HotspotPlan,
) -> Result<(crate::harness::checks::HistoryReport, Vec<String>), RunError> {
    let recording = Recording::open(driver.workload(), &it.plan.config.cluster, [], (None, true))?;
    let trail = Rc::new(Trail::new(RECORDED_INTERVAL));
    let terms = Terms { interval: RECORDED_INTERVAL, ..it.terms };
    let every = Nanos((it.recorded.0 / 2).max(1));
    let hotspot = Hotspot { every, ..it.hotspot };
    driver.set_heat(Some(Heat { hotspot, terms: Some(terms), trail }));
    let length = Length { measured: it.recorded, record: true, ..length(it) };
    let mut phase = driver.phase(length, &|_| {})?.phase;
    let failures = std::mem::take(&mut phase.failures);
    let isolation = guaranteed(&*driver.cluster().database().protocol);
    Ok((recording.judge(&phase, isolation)?, failures))
}
