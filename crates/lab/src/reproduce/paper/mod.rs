//! Runs a paper's whole evaluation, and shows every published figure beside the simulated figure on one page.
//!
//! Map:
//! - [`data`]: a paper as its data file describes it, with the cases to run and the published values to compare.
//! - `setting`: makes cases from texts, and applies suppositions. [`extent`]: the sizes and lengths of a run.
//! - `job`: the jobs of a section. [`case`]: one curve. [`occasion`]: one crash or hotspot. [`adjusting`]: one run
//!   that adjusts read leases. [`runs`]: runs all jobs.
//! - `value`: computes simulated values. `limit`: names the resource that was the limit.
//! - [`target`]: compares a simulated value with a published value. [`sheet`]: the rows. `picture`: the drawings.
//! - [`report`]: the whole result of an evaluation. [`page`]: this result as an HTML page.
//!
//! Invariant: all figures of a paper use one hardware profile and one set of systems. Every published figure has one
//! row. A row without a simulated value states the reason, as the registry of protocols reported it when the page was
//! made. Except for `wall`, a page depends only on the order of the evaluation.

pub mod adjusting;
mod against;
pub(super) mod bars;
pub mod case;
pub mod data;
pub mod extent;
mod job;
mod limit;
pub mod occasion;
pub mod page;
mod picture;
pub mod report;
pub mod runs;
mod setting;
pub mod sheet;
pub mod target;
mod value;

use super::stage::System;
use super::text::Text;
use crate::bench::run::RunError;
use crate::harness::watch::Watch;
use crate::machine;
use adjusting::Adjusting;
use case::{Case, Kind, Missing};
use data::{Paper, Section};
use extent::Extent;
use job::Jobs;
use occasion::{Crash, Heating};
use report::{Evaluation, Part};
use runs::{Ground, Runs, each};
pub use setting::Supposition;
use sheet::Row;
use std::time::Instant;
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;
use value::Done;

/// The name of the scale of a quick test run.
const QUICK: &str = "quick";

/// The settings of a requested evaluation, which were checked.
#[derive(Clone, Debug)]
pub struct Order {
    /// The paper.
    pub paper: &'static Paper,
    /// The extent of the run.
    pub extent: Extent,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The hardware profile: the testbed's profile, or a counterfactual profile.
    pub profile: Profile,
    /// The names of the sections to run; an empty list means all sections.
    pub only: Vec<String>,
    /// The suppositions: assumed changes that apply to all systems. Only a counterfactual evaluation has
    /// suppositions.
    pub suppositions: Vec<Supposition>,
}

/// An evaluation that the user requests on a command line.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whether the user wants only a quick test run.
    pub quick: bool,
    /// The seed from which every random generator of the run starts.
    pub seed: u64,
    /// The hardware profile: the testbed's profile, or a counterfactual profile.
    pub profile: Profile,
    /// The names of the sections to run; an empty list means all sections.
    pub only: Vec<String>,
    /// The suppositions, as texts `KEY=VALUE`.
    pub suppositions: Vec<String>,
}

impl Paper {
    /// Checks that the requested evaluation can be run, and returns its order.
    ///
    /// # Errors
    /// Fails if a requested section or supposition does not exist.
    pub fn order(&'static self, asked: Asked) -> Result<Order, UsageError> {
        let Asked { quick, seed, profile, only, suppositions } = asked;
        let extent = if quick { &self.extent.quick } else { &self.extent.full };
        let suppositions = suppositions.iter().map(|text| self.supposition(text));
        let suppositions = suppositions.collect::<Result<_, _>>()?;
        self.wanted(&only)?;
        Ok(Order { paper: self, extent: extent.clone(), seed, profile, only, suppositions })
    }

    /// Returns the requested sections.
    fn wanted(&self, only: &[String]) -> Result<Vec<&Section>, UsageError> {
        let is_it = |name: &String, section: &Section| &*section.name == name.as_str();
        if let Some(name) = only.iter().find(|name| !self.sections.iter().any(|it| is_it(name, it)))
        {
            let allowed: Vec<&str> = self.sections.iter().map(|it| it.name.0).collect();
            let (value, allowed) = (name.clone(), allowed.join(", "));
            return Err(UsageError { field: "only".into(), value, allowed });
        }
        let is_wanted =
            |section: &&Section| only.is_empty() || only.iter().any(|name| is_it(name, section));
        Ok(self.sections.iter().filter(is_wanted).collect())
    }

    /// Returns whether an incorrect history or memory of this system is a failure. If a system follows a paper's text
    /// or public code, it may have the errors of that text or code. The page shows such errors, but they are no
    /// failures of this program.
    fn must_be_sound(&self, system: &System) -> bool {
        let name = format!("{} {}", system.protocol, system.variant);
        system.variant.starts_with("corrected") || self.also_sound.iter().any(|it| **it == *name)
    }
}

/// Runs the evaluation and makes its report.
///
/// # Errors
/// Fails if a requested section does not exist. If a run is not possible, the page states this, and the function
/// returns no error.
#[expect(clippy::disallowed_methods, reason = "the program's clock")]
pub fn evaluate(order: &Order, watch: &dyn Watch) -> Result<Evaluation, RunError> {
    let start = Instant::now();
    let &Order { paper, ref extent, seed, ref profile, .. } = order;
    let sections = paper.wanted(&order.only)?;
    let testbed = paper.testbed.with(profile.clone());
    let scales = Kind::ALL.map(|kind| {
        let mut scale = extent.scale_of(kind);
        order.suppositions.iter().for_each(|it| it.lengthen(&mut scale));
        (kind, scale)
    });
    let what_if = |case: &mut Case| order.suppositions.iter().for_each(|it| it.apply(case));
    // Each point runs on one thread, and other points that run at the same time do not change its result.
    let threads = if extent.scale.name == QUICK { machine::processors() } else { 1 };
    let ground = Ground {
        testbed: &testbed,
        scales: &scales,
        seed,
        what_if: &what_if,
        must_be_sound: &|system| paper.must_be_sound(system),
        threads,
        watch,
    };
    let mut jobs = Jobs::default();
    sections.iter().for_each(|section| jobs.add(paper, extent, section));
    let runs = run(jobs, &ground);
    let done = Done { paper, extent, profile, runs: &runs };
    let parts = sections.iter().map(|section| part(section, &done)).collect();
    let mut evaluation = Evaluation::of(order, parts, runs);
    evaluation.wall.machine = machine::describe();
    evaluation.wall.seconds = start.elapsed().as_secs_f64();
    Ok(evaluation)
}

fn run(jobs: Jobs, ground: &Ground<'_>) -> Runs {
    let Jobs { cases, crashes, hotspots, adjustments } = jobs;
    let mut runs = Runs::default();
    runs.run(cases, ground);
    let crashed = each(&crashes, ground, Crash::run);
    runs.crashes = crashes.into_iter().zip(crashed).collect();
    let heated = each(&hotspots, ground, Heating::run);
    runs.hotspots = hotspots.into_iter().zip(heated).collect();
    let adjusted = each(&adjustments, ground, Adjusting::run);
    runs.adjustments = adjustments.into_iter().zip(adjusted).collect();
    runs
}

/// Makes a section's rows and drawings after all runs.
fn part(section: &'static Section, done: &Done<'_>) -> Part {
    let columns = &done.paper.columns;
    let mut rows = Vec::new();
    for group in &section.groups {
        rows.extend(group.rows.iter().map(|stated| {
            Row::of(columns, &stated.target(group), &|form| {
                let missing = |why: &Text| Err(Missing(why.to_string()));
                let not_run = section.not_run.get(form).map(missing);
                let found = not_run.unwrap_or_else(|| done.answer(&stated.is, form))?;
                group.why.as_ref().map_or(Ok(found), missing)
            })
        }));
    }
    let adjusted = done.decisive_adjustments(section);
    let notes = section.notes.iter().map(|note| done.told(note));
    let notes = adjusted.into_iter().chain(notes).collect();
    let pictures = done.pictures(section);
    Part { name: section.name.0, title: section.title.0, rows, pictures, notes }
}

#[cfg(test)]
mod lotus_tests;
#[cfg(test)]
mod oocc_tests;
#[cfg(test)]
mod tests;
