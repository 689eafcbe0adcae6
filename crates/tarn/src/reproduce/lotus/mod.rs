//! LOTUS's whole evaluation on one page: every published figure beside what the model says.
//!
//! Zhisheng Hu, Pengfei Zuo, Junliang Hu, Yizou Chen, Yingjia Wang, Ming-Chang Yang, "LOTUS: Optimizing
//! Disaggregated Transactions with Disaggregated Locks".
//!
//! Map: [`targets`] are the published figures, [`target`] says what holding against them means; `entrant` is
//! who runs, [`extent`] how much; [`case`] is one curve, [`occasion`] one crash, [`runs`] runs them; a file of
//! `figures` is one section, which fills a [`sheet`]; [`supposition`] is a what-if; [`report`] is the whole, `page` its drawings.
//!
//! Invariant: one hardware profile and one set of systems for all figures. Every published figure has one row,
//! and a row without a figure says why, as the registry of protocols said it when the page was made. But for
//! `wall` a page is a function of its order.

mod bars;
pub mod case;
pub mod entrant;
pub mod extent;
mod figures;
pub mod occasion;
pub mod page;
pub mod report;
pub mod runs;
pub mod sheet;
pub mod supposition;
pub mod target;
pub mod targets;

use super::stage::Testbed;
use crate::bench::run::RunError;
use crate::machine;
use crate::simulate::run::Watch;
use extent::{Extent, QUICK};
use figures::{Done, Section};
use occasion::{Crash, Heating};
use report::{Evaluation, Part};
use runs::{Ground, Runs, each};
use sheet::Sheet;
use std::time::Instant;
use supposition::Supposition;
use tarn_engine::outcome::UsageError;
use tarn_sim::profile::Profile;

/// Its name on the command line.
pub const NAME: &str = "lotus";
/// What it shows.
pub const TITLE: &str = "LOTUS, Motor and FORD: LOTUS's evaluation again";
/// Who published it.
pub const SOURCE: &str = "Hu, Zuo, Hu, Chen, Wang, Yang: LOTUS: Optimizing Disaggregated Transactions with \
                          Disaggregated Locks";
/// The testbed's hardware.
pub const PROFILE: &str = "cx3-56g";

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Order {
    /// How much is run.
    pub extent: Extent,
    /// Of every generator.
    pub seed: u64,
    /// The hardware: that of the testbed, or a counterfactual one.
    pub profile: Profile,
    /// Sections by name; none: all.
    pub only: Vec<String>,
    /// What is changed for everybody: nothing, but for a counterfactual.
    pub suppositions: Vec<Supposition>,
}

/// The sections that an order asks for.
///
/// # Errors
/// Names one that there is not.
fn sections(only: &[String]) -> Result<Vec<&'static Section>, UsageError> {
    if let Some(name) = only.iter().find(|name| figures::ALL.iter().all(|it| it.name != **name)) {
        let allowed: Vec<&str> = figures::ALL.iter().map(|it| it.name).collect();
        let (value, allowed) = (name.clone(), allowed.join(", "));
        return Err(UsageError { field: "only".into(), value, allowed });
    }
    let is_wanted =
        |section: &&Section| only.is_empty() || only.iter().any(|name| name == section.name);
    Ok(figures::ALL.iter().filter(is_wanted).collect())
}

/// Refuses an order that cannot be made.
///
/// # Errors
/// A section that there is not.
pub fn check(order: &Order) -> Result<(), UsageError> {
    sections(&order.only).map(|_| ())
}

/// Machines as in section 8.1.
fn testbed(profile: Profile) -> Testbed {
    Testbed { profile, compute_nodes: 9, memory_nodes: 3, replicas: 3, threads_max: 10 }
}

/// Makes the page.
///
/// # Errors
/// A section that there is not. What cannot be run is told on the page.
#[expect(clippy::disallowed_methods, reason = "the program's clock")]
pub fn evaluate(order: &Order, watch: &dyn Watch) -> Result<Evaluation, RunError> {
    let start = Instant::now();
    let sections = sections(&order.only)?;
    let testbed = testbed(order.profile.clone());
    let (extent, seed) = (&order.extent, order.seed);
    let suppositions = &order.suppositions;
    // Each point is one thread's, and the same whoever runs beside it.
    let threads = if extent.scale.name == QUICK { machine::processors() } else { 1 };
    let ground = Ground { testbed: &testbed, extent, seed, suppositions, threads, watch };
    let (mut cases, mut crashes, mut hotspots) = (Vec::new(), Vec::new(), Vec::new());
    for section in &sections {
        let jobs = (section.jobs)(extent);
        cases.extend(jobs.cases);
        crashes.extend(jobs.crashes);
        hotspots.extend(jobs.hotspots);
    }
    let mut runs = Runs::default();
    runs.run(cases, &ground);
    let crashed = each(&crashes, &ground, Crash::run);
    runs.crashes = crashes.into_iter().zip(crashed).collect();
    let heated = each(&hotspots, &ground, Heating::run);
    runs.hotspots = hotspots.into_iter().zip(heated).collect();
    let done = Done { extent, profile: &order.profile, runs: &runs };
    let parts = sections.iter().map(|section| part(section, &done)).collect();
    let mut evaluation = Evaluation::of(order, parts, runs);
    evaluation.wall.machine = machine::describe();
    evaluation.wall.seconds = start.elapsed().as_secs_f64();
    Ok(evaluation)
}

fn part(section: &Section, done: &Done<'_>) -> Part {
    let mut sheet = Sheet::new(section.targets);
    (section.fill)(done, &mut sheet);
    let (rows, pictures, notes) = sheet.done();
    Part { name: section.name, title: section.title, rows, pictures, notes }
}

#[cfg(test)]
mod tests;
