//! Runs a single published figure, as its data file describes it, on a simulated cluster.
//!
//! Map:
//! - `Plan`: a list of systems that run on the same layout and hardware.
//! - `Group`: rows that compare the published values with the simulated values of a series (`Is`).
//!
//! Invariant: a file with a field that is not described here is refused. Every published value has a row. If the
//! value cannot be simulated, its row states the reason.

use super::curve::{Point, Series};
use super::report::{Reproduction, Sent};
use super::row::{Published, Relation, Row, Standing};
use super::stage::{Machines, Stage, System};
use super::systems::{Entrant, Layouts, Systems, entrant};
use super::text::Text;
use super::{Scale, paper::case::Kind};
use crate::bench::run::RunError;
use crate::harness::watch::Watch;
use crate::machine;
use serde::Deserialize;
use std::sync::LazyLock;
use std::time::Instant;
use tarn_sim::profile::Profile;
use tarn_store::ids::UsageError;
use tarn_workloads::smallbank::SmallBank;
use tarn_workloads::tpcc::Tpcc;
use tarn_workloads::{Settings, Workload};

/// A published figure: the systems to run, and the published values.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The figure's name on the command line.
    pub name: Text,
    /// The figure's heading.
    pub title: Text,
    /// The authors, the title, and the place of the values in the paper.
    pub source: Text,
    /// The scale of the whole figure, as it was published.
    pub full: Scale,
    /// A scale that is so small that the figure runs in one minute.
    pub quick: Scale,
    /// The further settings of the figure, as names and values.
    pub(super) config: Vec<[Text; 2]>,
    /// The kind of the workload: SmallBank or TPC-C.
    workload: Kind,
    /// The unit of the database's size, if the figure's points differ in this size. Without such a unit, the points
    /// differ in the number of coordinators.
    over: Option<Text>,
    /// The note that the report contains if the figure was run at a smaller scale.
    shortened: Text,
    testbed: Machines,
    layout: Layouts,
    system: Systems,
    #[serde(rename = "plan")]
    plans: Vec<Plan>,
    #[serde(rename = "group")]
    groups: Vec<Group>,
    #[serde(default)]
    verbs: Vec<Verbs>,
    notes: Vec<Text>,
}

/// A list of systems that all run on the layout of the first system.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    profile: Text,
    /// The name of the workload's profile.
    mix: Text,
    systems: Vec<Text>,
}

/// A group of published values: each value gives one row for each series of the group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// Each entry names a series. If the rows compare two series, the entry also names the second series. Every entry
    /// has all rows of the group.
    #[serde(default)]
    series: Vec<Vec<Text>>,
    /// The two sizes that the rows compare: from the first size to the second. A series that was
    /// not run on one of the two sizes has no row.
    ends: Option<[usize; 2]>,
    /// The reason for which the rows have no simulated value.
    why: Option<Text>,
    rows: Vec<Stated>,
}

/// A published value, and the rule for the simulated value to which it is compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stated {
    metric: Text,
    published: [f64; 2],
    bound: Option<Relation>,
    #[serde(default)]
    derived: bool,
    source: Text,
    is: Option<Is>,
    /// The position of the point that the value describes.
    at: Option<usize>,
}

/// The measure that gives the simulated value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Is {
    /// The number of coordinators at the saturation point of the series.
    Saturation,
    /// The highest throughput, in millions of transactions per second.
    Peak,
    /// The throughput at a number of coordinators, in millions of transactions per second.
    Point,
    /// The ratio of the second series' highest throughput to this series' highest throughput.
    Gain,
    /// The ratio of the median latency at the last point to the median latency at the saturation point.
    Rise,
    /// The throughput on a database of one size, in millions of transactions per second.
    On,
    /// The percentage by which throughput falls from the first size of the database to the second.
    Drop,
    /// The percentage of tries that were aborted on a database of one size.
    Aborted,
}

/// The number of verbs that a transaction sends according to the system's public code. The simulated number is
/// measured at the saturation point of the series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Verbs {
    verb: Text,
    series: Text,
    counted: f64,
    of: Text,
}

const FILES: [&str; 2] =
    [include_str!("../../data/lotus-fig-2.toml"), include_str!("../../data/crest-fig-2.toml")];

/// All figures that have a data file.
///
/// # Panics
/// Panics if a data file cannot be read. The tests read all data files.
pub static ALL: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let read =
        |text: &str| toml::from_str(text).unwrap_or_else(|error| panic!("a figure: {error}"));
    FILES.into_iter().map(read).collect()
});

impl Figure {
    /// Returns the figure called `name`.
    ///
    /// # Errors
    /// Fails if no figure has this name; the error names all figures.
    pub fn by_name(name: &str) -> Result<&'static Figure, UsageError> {
        ALL.iter().find(|figure| &*figure.name == name).ok_or_else(|| UsageError {
            field: "figure".into(),
            value: name.to_owned(),
            allowed: ALL.iter().map(|figure| figure.name.0).collect::<Vec<_>>().join(", "),
        })
    }

    /// Runs the figure on a simulated cluster with this seed.
    ///
    /// # Errors
    /// Fails if the plan cannot be run, or if its run fails.
    #[expect(clippy::disallowed_methods, reason = "the program's clock")]
    pub fn run(
        &self,
        scale: &Scale,
        seed: u64,
        watch: &dyn Watch,
    ) -> Result<Reproduction, RunError> {
        let start = Instant::now();
        let profile = load(&self.plans[0].profile)?;
        let mut report = Reproduction::of(self, &profile, (scale, seed));
        for plan in &self.plans {
            for &size in &scale.sizes {
                let sized = (plan, size);
                match self.workload {
                    Kind::Tpcc => {
                        self.run_plan::<Tpcc>(sized, (scale, seed), watch, &mut report)?
                    }
                    _ => self.run_plan::<SmallBank>(sized, (scale, seed), watch, &mut report)?,
                }
            }
        }
        report.rows = self.groups.iter().flat_map(|group| group.rows_of(&report)).collect();
        report.verbs = self.verbs.iter().filter_map(|verbs| verbs.sent(&report)).collect();
        report.notes.extend(self.notes.iter().map(|note| note.to_string()));
        report.notes.extend((scale.name != self.full.name).then(|| self.shortened(scale)));
        report.wall.machine = machine::describe();
        report.wall.seconds = start.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Runs a plan on a database of one size. The memory is checked after the series that isolate transactions, and
    /// before any other series.
    fn run_plan<W: Workload>(
        &self,
        (plan, size): (&Plan, u64),
        (scale, seed): (&Scale, u64),
        watch: &dyn Watch,
        report: &mut Reproduction,
    ) -> Result<(), RunError> {
        let entrants = plan.systems.iter().map(|name| entrant(&self.system, name, ""));
        let entrants = entrants.collect::<Result<Vec<Entrant>, _>>().map_err(RunError::Failed)?;
        let testbed = self.testbed.with(load(&plan.profile)?);
        let (first, layout) = (&entrants[0].system, &self.layout[&entrants[0].layout]);
        let settings =
            Settings { profile: Some(plan.mix.to_string()), records: Some(size), zipf: None };
        let mut stage =
            Stage::load(W::new(&settings)?, &testbed, (layout, first), (scale, seed), watch)?;
        if let Some(name) = self.over {
            stage = stage.over_size(size, name.0);
        }
        let (safe, others): (Vec<&System>, Vec<&System>) = entrants
            .iter()
            .map(|entrant| &entrant.system)
            .partition(|system| !system.variant.contains("unsafe"));
        for system in safe {
            report.add(stage.series(system, scale, watch)?);
        }
        let mut judged = stage.judge(watch)?;
        if let Some(name) = self.over {
            judged.layout = format!("{}, {}, {size} {name}", judged.layout, plan.profile);
        }
        report.judged.push(judged);
        for system in others {
            report.add(stage.series(system, scale, watch)?);
        }
        Ok(())
    }

    /// Returns the note for a report of a run at a smaller scale.
    fn shortened(&self, scale: &Scale) -> String {
        let full = &self.full;
        self.shortened
            .replace("{scale}", scale.name)
            .replace("{size}", &scale.largest().to_string())
            .replace("{full_size}", &full.largest().to_string())
            .replace("{ms}", &scale.virtual_ms.to_string())
            .replace("{full_ms}", &full.virtual_ms.to_string())
    }
}

fn load(hardware: &str) -> Result<Profile, RunError> {
    Profile::load(hardware).map_err(|error| RunError::Failed(error.to_string()))
}

impl Verbs {
    fn sent(&self, report: &Reproduction) -> Option<Sent> {
        let point = report.series(&self.series)?.saturation()?;
        let (verb, series, of) = (self.verb.0, self.series.0, self.of.0);
        Some(Sent { verb, series, counted: self.counted, of, simulated: point.verbs_of(verb) })
    }
}

impl Stated {
    fn published(&self) -> Published {
        Published {
            range: (self.published[0], self.published[1]),
            relation: self.bound.unwrap_or(Relation::Equal),
            standing: if self.derived { Standing::Derived } else { Standing::Stated },
            source: self.source.0,
        }
    }
}

impl Group {
    /// Returns the rows. Each series has either all rows of the group or no row.
    fn rows_of(&self, report: &Reproduction) -> Vec<Row> {
        if let Some(why) = self.why {
            let none = |row: &Stated| Row::not_simulated(&row.metric, row.published(), &why);
            return self.rows.iter().map(none).collect();
        }
        let of = |names: &Vec<Text>| {
            let all: Vec<&Series> = names.iter().filter_map(|name| report.series(name)).collect();
            let [series, others @ ..] = &all[..] else { return Vec::new() };
            let rows = self.rows.iter().filter_map(|row| {
                let (value, why) = self.value(row, series, others.first().copied())?;
                let metric = format!("{}: {}", series.name, row.metric);
                Some(Row::of(&metric, row.published(), series.name, value, why))
            });
            rows.collect()
        };
        self.series.iter().flat_map(of).collect()
    }

    /// Returns a row's simulated value, and a description of the resource that limits it.
    fn value(
        &self,
        row: &Stated,
        series: &Series,
        other: Option<&Series>,
    ) -> Option<(f64, String)> {
        let at =
            |point: &Point| format!("at {} coordinators: {}", point.coordinators, point.limits());
        let ends = || {
            let [from, to] = self.ends?;
            Some((series.at(from)?, series.at(to)?))
        };
        let peak = series.peak()?;
        Some(match row.is? {
            Is::Saturation => saturation(series, peak, row.published().value())?,
            Is::Peak => (millions(peak), at(peak)),
            Is::Point => {
                let point = series.at(row.at?)?;
                (millions(point), format!("median {:.1} µs, {}", point.latency_us.p50, at(point)))
            }
            Is::Gain => {
                let without = other?.peak()?;
                let why = format!("without CAS {:.2} M {}", millions(without), at(without));
                (without.throughput_per_s / peak.throughput_per_s, why)
            }
            Is::Rise => {
                let (last, first) = (series.points.last()?, series.saturation()?);
                let (late, early) = (last.latency_us.p50, first.latency_us.p50);
                let (most, few) = (last.coordinators, first.coordinators);
                (late / early, format!("{late:.1} µs at {most}, {early:.1} µs at {few}"))
            }
            Is::On => {
                ends()?;
                let point = series.at(row.at?)?;
                (millions(point), conflicts(point))
            }
            Is::Drop => {
                let (from, to) = ends()?;
                ((1.0 - to.throughput_per_s / from.throughput_per_s) * 100.0, conflicts(to))
            }
            Is::Aborted => {
                ends()?;
                let point = series.at(row.at?)?;
                (point.conflict_rate * 100.0, conflicts(point))
            }
        })
    }
}

fn millions(point: &Point) -> f64 {
    point.throughput_per_s / 1e6
}

/// Describes a point by its median latency, its share of aborted tries, and the busiest hardware parts.
fn conflicts(point: &Point) -> String {
    let (median, aborted) = (point.latency_us.p50, point.conflict_rate * 100.0);
    format!("median {median:.0} µs, {aborted:.0} % of tries aborted; {}", point.limits())
}

/// Returns the number of coordinators at which a series saturates, with a description. The description also states
/// how long a transaction would take if the published number were exact.
fn saturation(series: &Series, peak: &Point, published: f64) -> Option<(f64, String)> {
    let point = series.saturation()?;
    let implied_us = published / peak.throughput_per_s * 1e6;
    let why = format!(
        "at {} coordinators: {}; {:.0} transactions in flight would fill it, by peak and shortest \
         latency, {:.1} µs; {published} would take {implied_us:.1} µs each",
        point.coordinators,
        point.limits(),
        series.full_at(),
        series.shortest_us(),
    );
    Some((point.coordinators as f64, why))
}

#[cfg(test)]
mod tests {
    use super::super::charge::charged;
    use super::*;
    use tarn_engine::protocol::AnyProtocol;

    #[test]
    fn figures_have_names_of_their_own() {
        for (index, figure) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.name != figure.name));
            assert_eq!(Figure::by_name(&figure.name).expect("listed").title, figure.title);
        }
        let error = Figure::by_name("fig-none").expect_err("refused").to_string();
        assert!(error.contains("figure = fig-none"), "{error}");
        assert!(error.contains("lotus-fig-2"), "{error}");
    }

    #[test]
    fn every_name_of_every_file_is_there_and_values_say_where_they_stand() {
        for figure in ALL.iter() {
            let mut names = Vec::new();
            for plan in &figure.plans {
                load(&plan.profile).expect("a profile");
                for name in &plan.systems {
                    let of = entrant(&figure.system, name, "").expect("a system");
                    assert!(figure.layout.contains_key(&of.layout), "{name}");
                    AnyProtocol::by_name(of.system.protocol, of.system.variant).expect("a variant");
                    names.push(of.system.name);
                }
            }
            assert_eq!(names.len(), figure.system.len(), "every system runs once");
            let series = figure.groups.iter().flat_map(|group| group.series.iter().flatten());
            let series = series.chain(figure.verbs.iter().map(|verbs| &verbs.series));
            assert!(series.into_iter().all(|name| names.contains(&name.0)), "{names:?}");
            for row in figure.groups.iter().flat_map(|group| &group.rows) {
                let [low, high] = row.published;
                assert!(low > 0.0 && low <= high && high.is_finite(), "{row:?}");
                assert!(!row.metric.ends_with('%') || high <= 100.0, "{row:?}");
                assert!(row.source.contains("section") || row.derived, "{row:?}");
            }
            for group in &figure.groups {
                let is_told = |row: &Stated| row.is.is_some() != group.why.is_some();
                assert!(group.rows.iter().all(is_told), "{group:?}");
            }
        }
    }

    /// No charge is chosen by the result that it gives. If the public code allows several values of a charge, the
    /// data file has the larger value.
    #[test]
    fn charges_name_constants_and_none_is_less_than_the_testbed_has() {
        let figure = Figure::by_name("lotus-fig-2").expect("listed");
        let system = entrant(&figure.system, "stock-software", "").expect("a system").system;
        let testbed = Profile::load("cx3-56g").unwrap();
        let charged = charged(testbed.clone(), system.charges);
        assert_eq!(charged.changes.len(), system.charges.len());
        let pairs = testbed
            .constants()
            .into_iter()
            .zip(charged.constants())
            .map(|(was, is)| (was.name, was.constant.value, is.constant.value));
        for (name, was, is) in pairs.filter(|(name, ..)| *name != "inline_max_bytes") {
            assert!(is >= was, "{name}: {is} instead of {was}");
        }
    }
}
