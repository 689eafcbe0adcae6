//! Computes the simulated values of rows. A value is a measure of a point, a crash, a hotspot or a layout, or a ratio
//! of such measures.
//!
//! Invariant: a run gives no value if a part of the run failed, or if the run's history breaks the isolation that its
//! form promises. Every value is computed only from measures of runs.

use super::adjusting::Adjusted;
use super::case::{Case, Missing};
use super::data::{At, Best, Paper, Section, Told, Value, combinations, filled};
use super::extent::Extent;
use super::limit::limit;
use super::runs::{Runs, catalog_of};
use super::sheet::{Answer, Found};
use crate::reproduce::curve::{Point, Series};
use crate::simulate::nic::{self, Verbs};
use tarn_engine::services::shard_rule::Terms;
use tarn_fabric::round::VerbKind;
use tarn_sim::profile::Profile;

/// The results of all runs, from which rows and drawings are made.
pub(super) struct Done<'a> {
    pub paper: &'static Paper,
    pub extent: &'a Extent,
    pub profile: &'a Profile,
    pub runs: &'a Runs,
}

/// The text that a row shows instead of a limit, for runs with short phases whose busiest hardware parts are not
/// examined.
const NOT_LOOKED_AT: &str = "not looked at";
/// The name of the protocol phase in which a transaction validates by a second read.
const VALIDATE: &str = "validate";
const MIB: f64 = (1 << 20) as f64;

impl Done<'_> {
    /// Computes the simulated value of a row for the systems in one form.
    pub(super) fn answer(&self, value: &Value, form: &str) -> Answer {
        let (mut best, mut missing): (Option<Found>, Option<Missing>) = (None, None);
        for values in combinations(&value.each, self.extent) {
            let text = |text: &str| filled(text, &values);
            let measured = |case: &str| {
                self.measured(&text(&value.of), &format!("{} @{form}", text(case)), value.at)
            };
            let over = |one: &str, other: &str| quotient(measured(one), measured(other));
            let answer = match (&value.over, &value.again_over) {
                (None, _) => measured(&value.one),
                (Some(other), None) => over(&value.one, other),
                (Some(other), Some([one, last])) => {
                    quotient(over(&value.one, other), over(one, last))
                }
            };
            let found = match answer {
                Ok(found) => found,
                Err(why) if value.skips_missing => {
                    missing.get_or_insert(why);
                    continue;
                }
                Err(why) => return Err(why),
            };
            let is_better = |known: &Found| match value.best {
                Some(Best::Highest) => found.value > known.value,
                Some(Best::Lowest) | None => found.value < known.value,
            };
            if best.as_ref().is_none_or(is_better) {
                let told =
                    value.tells.and_then(|axis| values.iter().find(|(name, _)| *name == axis));
                best = Some(Found { told: told.and_then(|(_, at)| at.parse().ok()), ..found });
            }
        }
        let best =
            best.ok_or_else(|| missing.unwrap_or_else(|| Missing("nothing was asked for".into())))?;
        match value.why {
            Some(why) => Err(Missing(self.told(&why))),
            None => Ok(Found { value: best.told.unwrap_or(best.value), ..best }),
        }
    }

    /// Returns the measure with the name `of` for a case.
    pub(super) fn measured(&self, of: &str, case: &str, at: At) -> Answer {
        if let Some(verb) = of.strip_prefix("inbound ") {
            return self.inbound(verb);
        }
        if of == "none" {
            return Ok(Found::of(0.0, String::new()));
        }
        let case = self.paper.case(self.extent, case).map_err(Missing)?;
        match of.split_once(' ') {
            Some(("crash", of)) => self.crashed(of, &case),
            Some(("policy", of)) => self.policy(of, &case),
            _ if of == "interruption" => self.interrupted(&case),
            _ if of == "laid out" => self.laid_out(&case),
            _ if of == "gain of adjusting" => {
                self.adjusted(&case, &|it| Some(it.after_per_s / it.before_per_s))
            }
            _ if of == "time to adjust" => {
                self.adjusted(&case, &|it| it.leases.manager.as_ref()?.time_to_adjust_us)
            }
            _ => {
                let series = self.runs.series(&case)?;
                let point = self.point(&case, series, at)?;
                let none =
                    || Missing(format!("no phase of {}'s is called {VALIDATE}", series.name));
                let value = measure(of, &case, point).ok_or_else(none)?;
                Ok(Found::of(value, self.busy(series.name, point)))
            }
        }
    }

    /// Returns the point of a curve that `at` selects.
    fn point<'a>(&self, case: &Case, series: &'a Series, at: At) -> Result<&'a Point, Missing> {
        let peak = peak(series)?;
        match at {
            At::Peak => Ok(peak),
            At::Loaded => Ok(series.last_at_peak().unwrap_or(peak)),
            At::Saturation => {
                let none = || Missing(format!("{} does not saturate", series.name));
                series.saturation().ok_or_else(none)
            }
            At::Most => {
                let most = self.paper.coordinators(self.extent, case.bench.kind, None);
                let most = most.into_iter().max().unwrap_or(1);
                let none = || Missing(format!("{} was not run with {most}", series.name));
                series.at(most).ok_or_else(none)
            }
        }
    }

    /// Describes the resource that limited a point.
    fn busy(&self, name: &str, point: &Point) -> String {
        let limit = match self.paper.told {
            Told::BusiestParts => point.limits(),
            Told::LimitingResource => limit(point),
        };
        format!("{name} at {} coordinators: {limit}", point.coordinators)
    }

    /// Replaces the placeholders `{most}`, `{most:BENCHMARK}` and `{patience_ms}` in a text of the
    /// data file by numbers that only the run's settings determine.
    pub(super) fn told(&self, text: &str) -> String {
        let most = |list: Vec<usize>| list.into_iter().max().unwrap_or(1).to_string();
        let patience_ms = Terms::default().patience.0 as f64 / 1e6;
        let text = text
            .replace("{most}", &most(self.extent.scale.coordinators.clone()))
            .replace("{patience_ms}", &patience_ms.to_string());
        self.paper.bench.iter().fold(text, |text, (name, benchmark)| {
            let coordinators = self.paper.coordinators(self.extent, benchmark.kind, None);
            text.replace(&format!("{{most:{name}}}"), &most(coordinators))
        })
    }

    /// Returns the rate at which one NIC answers verbs of 8 bytes. The profile's constants were
    /// derived from such rates.
    fn inbound(&self, verb: &str) -> Answer {
        let verb = if verb == "CAS" { VerbKind::CompareAndSwap } else { VerbKind::Write };
        let point = nic::Point::Verbs(Verbs { verb, ..Verbs::clients(8) });
        let measured = nic::measure(self.profile, "inbound", point);
        let measured = measured.map_err(|error| Missing(error.to_string()))?;
        let busy = measured.busy.iter().take(2);
        let busy: Vec<String> =
            busy.map(|it| format!("{} {:.0} %", it.part, it.share * 100.0)).collect();
        Ok(Found::of(measured.rate_mops, busy.join(", ")))
    }

    fn crashed(&self, of: &str, case: &Case) -> Answer {
        let is_it =
            |it: &super::occasion::Crash| (it.bench, it.system) == (case.bench, case.system);
        let crashed = came_of(self.runs.crashes.iter().map(|(it, came)| (is_it(it), came)))?;
        let outage = &crashed.outage;
        if let Some(failure) = outage.failed().first() {
            return Err(Missing(format!("{}, which failed: {failure}", crashed.system)));
        }
        let value = match of {
            "before" => Some(outage.before_per_s / 1e6),
            "after" => Some(outage.after_per_s / 1e6),
            "drop" => Some(outage.after_per_s / outage.before_per_s),
            _ => outage.back_after_ms,
        };
        let why = || Missing("throughput did not come back in this run".into());
        let recovered =
            outage.recovered_after_ms.map_or("never".into(), |ms| format!("{ms:.2} ms"));
        let restart_ms = outage.shape.restart_ms;
        let busy = format!(
            "machines back after {restart_ms:.0} ms (assumed), dead recovered after {recovered}"
        );
        Ok(Found::of(value.ok_or_else(why)?, busy))
    }

    /// Returns the mean time for which a move interrupts a shard, in milliseconds.
    fn interrupted(&self, case: &Case) -> Answer {
        let is_it =
            |it: &super::occasion::Heating| (it.bench, it.system) == (case.bench, case.system);
        let hotspot =
            &came_of(self.runs.hotspots.iter().map(|(it, came)| (is_it(it), came)))?.hotspot;
        let none = || Missing("no shard moved in this run".into());
        let [mean, longest] = hotspot.interruption_us.ok_or_else(none)?;
        let moved = hotspot.cases.last().map_or(0, |case| case.moved.len());
        let back = hotspot.of_balanced.last().map_or(0.0, |share| share * 100.0);
        let busy = format!(
            "{moved} shards moved, {longest:.0} µs at most; throughput {back:.0} % of the balanced case"
        );
        Ok(Found::of(mean / 1e3, busy))
    }

    /// Returns a setting of the rule by which shards move, for a case whose shards have moved.
    fn policy(&self, of: &str, case: &Case) -> Answer {
        self.interrupted(case)?;
        let terms = Terms::default();
        let value = match of {
            "interval" => terms.interval.0 as f64 / 1e6,
            "overload" => f64::from(terms.overload_percent) / 100.0,
            _ => f64::from(terms.intervals),
        };
        Ok(Found::of(value, "the default".into()))
    }

    /// Returns the size of one copy of all records with their part of the index, in MiB. The size is the sum over all
    /// memory nodes.
    fn laid_out(&self, case: &Case) -> Answer {
        let memory_nodes = self.paper.testbed.with(self.profile.clone()).memory_nodes;
        let catalog = catalog_of(case, memory_nodes)?;
        let options = catalog.options();
        let bytes = |table: &tarn_store::placement::catalog::Table| {
            let slots = u64::from(options.bucket.slots);
            let slot = options.bucket.bucket_bytes(&table.slot) as u64 / slots;
            let slots = slot * u64::from(options.slots_per_100_records) / 100;
            table.schema.expected_records * (slots + table.slot.body_bytes() as u64)
        };
        let bytes: u64 = catalog.tables().iter().map(bytes).sum();
        Ok(Found::of(bytes as f64 / MIB, format!("{} {} MiB", case.system.name, bytes >> 20)))
    }

    /// Describes the lease lengths that the manager chose, for the form that decides the verdict.
    pub(super) fn decisive_adjustments(&self, section: &Section) -> Vec<String> {
        if section.adjusted.is_empty() {
            return Vec::new();
        }
        let decisive = self.paper.columns.decisive();
        let is_decisive = |variant: &str| variant == &*decisive;
        let all =
            self.runs.adjustments.iter().filter(|(it, _)| is_decisive(it.case.system.variant));
        all.filter_map(|(_, came)| came.as_ref().ok()?.told()).collect()
    }

    fn adjusted(&self, case: &Case, of: &dyn Fn(&Adjusted) -> Option<f64>) -> Answer {
        let all = self.runs.adjustments.iter();
        let came = came_of(all.map(|(it, came)| (it.case.is_like(case), came)))?;
        let none = || Missing("the manager found no reason to change a length".into());
        Ok(Found::of(of(came).ok_or_else(none)?, NOT_LOOKED_AT.into()))
    }
}

/// In `all`, each result has a flag, and only the flag of the wanted job is true. Returns the result of the wanted
/// job.
fn came_of<'a, T: 'a>(
    mut all: impl Iterator<Item = (bool, &'a Result<T, Missing>)>,
) -> Result<&'a T, Missing> {
    let found = all.find(|(is_it, _)| *is_it);
    let (_, came) = found.ok_or_else(|| Missing("it was not asked for".into()))?;
    came.as_ref().map_err(Clone::clone)
}

/// Returns a measure of a point, by the measure's name. The share of transactions without
/// validation is known only for protocols that count their validation phases.
pub(super) fn measure(of: &str, case: &Case, point: &Point) -> Option<f64> {
    let operations = case.bench.operations.unwrap_or(1) as f64;
    Some(match of {
        "throughput" => point.throughput_per_s,
        "millions" => point.throughput_per_s / 1e6,
        "median" => point.latency_us.p50,
        "p99" => point.latency_us.p99,
        "p99 in tens" => point.latency_us.p99 / 10.0,
        "coordinators" => point.coordinators as f64,
        "aborted" => point.conflict_rate,
        "percent aborted" => point.conflict_rate * 100.0,
        // The hit rate is the share of the requested version tables that the cache contained.
        "hit rate" => point.remembered.unwrap_or(0.0),
        "rounds" => point.rounds,
        "reads an operation" => point.verbs_of("read") / operations,
        "atomics an operation" => super::limit::atomics(point) / operations,
        "percent without validation" => (1.0 - *point.phases.get(VALIDATE)?) * 100.0,
        _ => panic!("{of} is no measure"),
    })
}

/// Returns the point with the highest throughput; returns an error if a part of the run failed.
pub(super) fn peak(series: &Series) -> Result<&Point, Missing> {
    if let Some(failure) = series.failures.first() {
        return Err(Missing(format!("{}, which failed: {failure}", series.name)));
    }
    if series.is_safe && series.variant.starts_with("corrected") && series.history != "accepted" {
        return Err(Missing(format!("{}, whose history is {}", series.name, series.history)));
    }
    series.peak().ok_or_else(|| Missing(format!("{} committed nothing", series.name)))
}

/// Returns the ratio of the first answer's value to the second answer's value.
fn quotient(one: Answer, other: Answer) -> Answer {
    let (one, other) = (one?, other?);
    if other.value <= 0.0 || !one.value.is_finite() {
        return Err(Missing(format!("nothing to divide by: {}", other.busy)));
    }
    let busy =
        if one.busy == other.busy { one.busy } else { format!("{}; {}", one.busy, other.busy) };
    Ok(Found::of(one.value / other.value, busy))
}
