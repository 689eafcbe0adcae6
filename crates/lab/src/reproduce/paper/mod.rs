//! A paper's whole evaluation on one page: every published figure beside the simulated one.
//!
//! Map: [`data`] is a paper as its data file describes it: which cases to run, and which value stands beside which published
//! one. `setting` makes cases of texts, and suppositions; [`extent`] is how much is run. `job` says which cases a section
//! runs: [`case`] is one curve, [`occasion`] one crash or hotspot, [`adjusting`] one lease that is adjusted; [`runs`] runs
//! them. `value` computes simulated values, `limit` names the resource that was the limit; [`target`] says how a simulated
//! value is held against a published one, [`sheet`] has the rows, `picture` draws. [`report`] is the whole, [`page`] the
//! whole to look at.
//!
//! Invariant: one hardware profile and one set of systems for all figures of a paper. Every published figure has one row,
//! and a row without a figure says why, as the registry of protocols said it when the page was made. But for `wall` a page
//! is a function of its order.

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

/// The name of a smoke run's scale.
const QUICK: &str = "quick";

/// An evaluation as it is asked for.
#[derive(Clone, Debug)]
pub struct Order {
    /// The paper.
    pub paper: &'static Paper,
    /// How much is run.
    pub extent: Extent,
    /// Of every generator.
    pub seed: u64,
    /// The hardware: that of the testbed, or a counterfactual one.
    pub profile: Profile,
    /// Sections by name; none: all.
    pub only: Vec<String>,
    /// Changes for all systems: none, but for a counterfactual.
    pub suppositions: Vec<Supposition>,
}

/// An evaluation as it is asked for on a command line.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whether a smoke run is enough.
    pub quick: bool,
    /// Of every generator.
    pub seed: u64,
    /// The hardware: that of the testbed, or a counterfactual one.
    pub profile: Profile,
    /// Sections by name; none: all.
    pub only: Vec<String>,
    /// Suppositions as `KEY=VALUE`.
    pub suppositions: Vec<String>,
}

impl Paper {
    /// Checks that an evaluation can be run as it is asked for.
    ///
    /// # Errors
    /// A section or a supposition that there is not.
    pub fn order(&'static self, asked: Asked) -> Result<Order, UsageError> {
        let Asked { quick, seed, profile, only, suppositions } = asked;
        let extent = if quick { &self.extent.quick } else { &self.extent.full };
        let suppositions = suppositions.iter().map(|text| self.supposition(text));
        let suppositions = suppositions.collect::<Result<_, _>>()?;
        self.wanted(&only)?;
        Ok(Order { paper: self, extent: extent.clone(), seed, profile, only, suppositions })
    }

    /// The sections that are asked for.
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

    /// Whether a history or a memory of this system that is not sound is a failure. A system that keeps to the text of a
    /// paper, or to public code, may have its holes, which are shown and are no failure of ours.
    fn must_be_sound(&self, system: &System) -> bool {
        let name = format!("{} {}", system.protocol, system.variant);
        system.variant.starts_with("corrected") || self.also_sound.iter().any(|it| **it == *name)
    }
}

/// Makes the page.
///
/// # Errors
/// A section that there is not. The page says which runs were not possible.
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
    // Each point is one thread's, and the same whichever others run beside it.
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

/// A section's rows and drawings, when all has run.
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
