//! A paper's whole evaluation on one page: every published figure beside what the model says.
//!
//! Map: a [`Paper`] says who published what, on which machines, and which [`section`]s there are. [`target`] says what
//! holding a simulated value against a published one means; [`case`] is one curve, [`occasion`] one crash or hotspot,
//! [`adjusting`] one lease that is adjusted,
//! [`runs`] runs them; a section fills a [`sheet`] with rows, with what `points` makes of curves; [`report`] is the
//! whole, [`page`] its drawings; [`by_name`] is the entry for callers that know no paper's type.
//!
//! Invariant: one hardware profile and one set of systems for all figures of a paper. Every published figure has one
//! row, and a row without a figure says why, as the registry of protocols said it when the page was made. But for
//! `wall` a page is a function of its order.

pub mod adjusting;
pub(super) mod bars;
pub mod by_name;
pub mod case;
pub mod occasion;
pub mod page;
pub(super) mod points;
pub mod report;
pub mod runs;
pub mod section;
pub mod sheet;
pub mod target;

use super::Scale;
use super::stage::{System, Testbed};
use crate::bench::run::RunError;
use crate::harness::watch::Watch;
use crate::machine;
use adjusting::Adjusting;
use case::{Case, Kind};
use occasion::{Crash, Heating};
use report::{Evaluation, Part};
use runs::{Ground, Runs, each};
use section::{Done, Section};
use serde::Serialize;
use sheet::{Columns, Sheet};
use std::fmt::Debug;
use std::time::Instant;
use tarn_sim::profile::{Change, Profile};
use tarn_store::ids::UsageError;

/// The name of a smoke run's scale.
pub const QUICK: &str = "quick";

/// A paper whose evaluation can be run.
pub trait Paper: Copy + Debug + 'static {
    /// How much of it is run.
    type Extent: Portion;
    /// In which forms its systems run, and which of them are in a row.
    type Form: Columns;
    /// What may be supposed.
    type Supposition: Suppose;
    /// Its name on the command line.
    const NAME: &'static str;
    /// What it shows.
    const TITLE: &'static str;
    /// Who published it.
    const SOURCE: &'static str;
    /// The testbed's hardware.
    const PROFILE: &'static str;
    /// What a reader of its page has to know of machines and columns.
    const LEGEND: &'static str;
    /// What the paper leaves open and the page decides.
    const ASSUMED: &'static [&'static str];
    /// In the paper's order.
    const SECTIONS: &'static [Section<Self>];

    /// Systems whose protocols may not be there yet: the page says who is.
    fn entrants() -> Vec<System> {
        Vec::new()
    }

    /// Its machines.
    fn testbed(profile: Profile) -> Testbed;

    /// Whether a history or a memory of this system that is not sound is a failure.
    fn must_be_sound(system: &System) -> bool;
}

/// How much of an evaluation is run.
pub trait Portion: Clone + Debug + Serialize + Sync {
    /// As published, where this machine's memory allows.
    fn full() -> Self;
    /// In some minutes.
    fn quick() -> Self;
    /// Length and coordinators of points.
    fn scale(&self) -> &Scale;
    /// Those of a benchmark.
    fn scale_of(&self, kind: Kind) -> Scale;
    /// What is smaller than published, in words.
    fn scaled_down(&self) -> Vec<String>;
}

/// A suspected cause that is changed for all systems of a run.
///
/// Invariant: it is named on the page and never part of a figure that is held against a published one.
pub trait Suppose: Copy + Debug + Sync {
    /// As it is written: KEY=VALUE.
    ///
    /// # Errors
    /// A key or value that there is not.
    fn parse(text: &str) -> Result<Self, UsageError>;
    /// Changes a case.
    fn apply(self, case: &mut Case);
    /// Changes how long everything runs.
    fn lengthen(self, _: &mut Scale) {}
    /// As the page shows it.
    fn shown(self) -> Change;
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Order<P: Paper> {
    /// How much is run.
    pub extent: P::Extent,
    /// Of every generator.
    pub seed: u64,
    /// The hardware: that of the testbed, or a counterfactual one.
    pub profile: Profile,
    /// Sections by name; none: all.
    pub only: Vec<String>,
    /// What is changed for everybody: nothing, but for a counterfactual.
    pub suppositions: Vec<P::Supposition>,
}

/// The sections that an order asks for.
///
/// # Errors
/// Names one that there is not.
fn sections<P: Paper>(only: &[String]) -> Result<Vec<&'static Section<P>>, UsageError> {
    if let Some(name) = only.iter().find(|name| P::SECTIONS.iter().all(|it| it.name != **name)) {
        let allowed: Vec<&str> = P::SECTIONS.iter().map(|it| it.name).collect();
        let (value, allowed) = (name.clone(), allowed.join(", "));
        return Err(UsageError { field: "only".into(), value, allowed });
    }
    let is_wanted =
        |section: &&Section<P>| only.is_empty() || only.iter().any(|name| name == section.name);
    Ok(P::SECTIONS.iter().filter(is_wanted).collect())
}

/// Refuses an order that cannot be made.
///
/// # Errors
/// A section that there is not.
pub fn check<P: Paper>(order: &Order<P>) -> Result<(), UsageError> {
    sections::<P>(&order.only).map(|_| ())
}

/// Makes the page.
///
/// # Errors
/// A section that there is not. What cannot be run is told on the page.
#[expect(clippy::disallowed_methods, reason = "the program's clock")]
pub fn evaluate<P: Paper>(order: &Order<P>, watch: &dyn Watch) -> Result<Evaluation<P>, RunError> {
    let start = Instant::now();
    let sections = sections::<P>(&order.only)?;
    let testbed = P::testbed(order.profile.clone());
    let (extent, seed) = (&order.extent, order.seed);
    let scales = Kind::ALL.map(|kind| {
        let mut scale = extent.scale_of(kind);
        order.suppositions.iter().for_each(|it| it.lengthen(&mut scale));
        (kind, scale)
    });
    let suppose = |case: &mut Case| order.suppositions.iter().for_each(|it| it.apply(case));
    // Each point is one thread's, and the same whoever runs beside it.
    let threads = if extent.scale().name == QUICK { machine::processors() } else { 1 };
    let ground = Ground {
        testbed: &testbed,
        scales: &scales,
        seed,
        suppose: &suppose,
        must_be_sound: P::must_be_sound,
        threads,
        watch,
    };
    let (mut cases, mut crashes, mut hotspots) = (Vec::new(), Vec::new(), Vec::new());
    let mut adjustments = Vec::new();
    for section in &sections {
        let jobs = (section.jobs)(extent);
        cases.extend(jobs.cases);
        crashes.extend(jobs.crashes);
        hotspots.extend(jobs.hotspots);
        adjustments.extend(jobs.adjustments);
    }
    let mut runs = Runs::default();
    runs.run(cases, &ground);
    let crashed = each(&crashes, &ground, Crash::run);
    runs.crashes = crashes.into_iter().zip(crashed).collect();
    let heated = each(&hotspots, &ground, Heating::run);
    runs.hotspots = hotspots.into_iter().zip(heated).collect();
    let adjusted = each(&adjustments, &ground, Adjusting::run);
    runs.adjustments = adjustments.into_iter().zip(adjusted).collect();
    let done = Done { extent, profile: &order.profile, runs: &runs };
    let parts = sections.iter().map(|section| part(section, &done)).collect();
    let mut evaluation = Evaluation::of(order, parts, runs);
    evaluation.wall.machine = machine::describe();
    evaluation.wall.seconds = start.elapsed().as_secs_f64();
    Ok(evaluation)
}

/// A section's rows and drawings, of what has run.
pub(super) fn part<P: Paper>(section: &Section<P>, done: &Done<'_, P>) -> Part {
    let mut sheet = Sheet::new(section.targets);
    (section.fill)(done, &mut sheet);
    let (rows, pictures, notes) = sheet.done();
    Part { name: section.name, title: section.title, rows, pictures, notes }
}
