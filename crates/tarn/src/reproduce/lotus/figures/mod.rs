//! The sections of the page, one file each: what to run, and how it becomes rows and drawings.
//!
//! Invariant: a section fills each of its published figures once, whether or not anything could be run for
//! it; it computes ratios of what ran and no constant of its own.

mod ablation;
mod benchmarks;
mod cache;
mod cas;
mod contention;
mod critical_field;
mod ideal_lock;
mod isolation;
mod kvs;
mod memory;
mod nic;
mod outage;
mod resharding;
mod versions;

use super::case::{Bench, Case, Missing};
use super::entrant::{Form, Who};
use super::extent::Extent;
use super::occasion::{Crash, Heating};
use super::runs::Runs;
use super::sheet::{Answer, Found, Picture, Sheet};
use super::target::Target;
use crate::reproduce::curve::{Point, Series};
use crate::sweep::chart::{Chart, Line, Mark, Scale};
use tarn_sim::profile::Profile;

/// What a section runs.
#[derive(Default)]
pub struct Jobs {
    /// Curves.
    pub cases: Vec<Case>,
    /// Crashes.
    pub crashes: Vec<Crash>,
    /// Hotspots.
    pub hotspots: Vec<Heating>,
}

/// What a section looks at when all has run.
pub struct Done<'a> {
    /// How much was run.
    pub extent: &'a Extent,
    /// On what.
    pub profile: &'a Profile,
    /// What came of it.
    pub runs: &'a Runs,
}

/// A part of the page.
pub struct Section {
    /// Its name on the command line.
    pub name: &'static str,
    /// Above it.
    pub title: &'static str,
    /// Its published figures.
    pub targets: &'static [Target],
    /// What it runs.
    pub jobs: fn(&Extent) -> Jobs,
    /// Fills its rows.
    pub fill: fn(&Done<'_>, &mut Sheet),
}

/// In the paper's order.
pub const ALL: &[Section] = &[
    nic::SECTION,
    cas::SECTION,
    resharding::SECTION,
    kvs::SECTION,
    benchmarks::SECTION,
    ablation::SECTION,
    outage::SECTION,
    memory::SECTION,
    ideal_lock::SECTION,
    cache::SECTION,
    versions::SECTION,
    isolation::SECTION,
    critical_field::SECTION,
    contention::SECTION,
];

/// All systems, in the paper's order.
const SYSTEMS: [Who; 3] = [Who::Lotus, Who::Motor, Who::Ford];

fn name_of(who: Who) -> &'static str {
    match who {
        Who::Lotus => "LOTUS",
        Who::Motor => "Motor",
        Who::Ford => "FORD",
    }
}

/// Systems in all their forms on a benchmark.
fn in_all_forms(bench: Bench, whom: &[Who], coordinators: &[usize]) -> Vec<Case> {
    let each = |who: &Who| Form::ALL.map(|form| Case::of(bench, (*who, form), coordinators));
    whom.iter().flat_map(each).collect()
}

/// The point of highest throughput; of a run in which something failed there is no figure.
fn peak(series: &Series) -> Result<&Point, Missing> {
    if let Some(failure) = series.failures.first() {
        return Err(Missing(format!("{}, which failed: {failure}", series.name)));
    }
    if series.is_safe && series.variant.starts_with("corrected") && series.history != "accepted" {
        return Err(Missing(format!("{}, whose history is {}", series.name, series.history)));
    }
    series.peak().ok_or_else(|| Missing(format!("{} committed nothing", series.name)))
}

/// A point, and what was busiest there.
fn busy(name: &str, point: &Point) -> String {
    format!("{name} at {} coordinators: {}", point.coordinators, point.limits())
}

/// What `of` makes of the peaks of two cases, the first over the second.
fn over(runs: &Runs, (one, other): (&Case, &Case), of: fn(&Point) -> f64) -> Answer {
    let (one, other) = (runs.series(one)?, runs.series(other)?);
    quotient((one.name, peak(one)?), (other.name, peak(other)?), of)
}

/// As [`versus`], at the last points near the peaks: for latencies there.
fn versus_loaded(
    done: &Done<'_>,
    bench: Bench,
    (other, form): (Who, Form),
    of: fn(&Point) -> f64,
) -> Answer {
    let point = |who| -> Result<(&'static str, &Point), Missing> {
        let series = done.runs.series(&Case::of(bench, (who, form), &[]))?;
        let at_peak = peak(series)?;
        Ok((series.name, series.last_at_peak().unwrap_or(at_peak)))
    };
    quotient(point(Who::Lotus)?, point(other)?, of)
}

/// LOTUS over another system, at their peaks.
fn versus(
    done: &Done<'_>,
    bench: Bench,
    (other, form): (Who, Form),
    of: fn(&Point) -> f64,
) -> Answer {
    let case = |who| Case::of(bench, (who, form), &[]);
    over(done.runs, (&case(Who::Lotus), &case(other)), of)
}

/// LOTUS over another system, with equally many transactions at once.
fn versus_at(
    done: &Done<'_>,
    coordinators: usize,
    bench: Bench,
    (other, form): (Who, Form),
    of: fn(&Point) -> f64,
) -> Answer {
    let point = |who| -> Result<(&'static str, &Point), Missing> {
        let series = done.runs.series(&Case::of(bench, (who, form), &[]))?;
        // Of a run that has no figure there is none here either.
        peak(series)?;
        let point = series.at(coordinators);
        let none = || Missing(format!("{} was not run with {coordinators}", series.name));
        Ok((series.name, point.ok_or_else(none)?))
    };
    let ((name, high), (other_name, low)) = (point(Who::Lotus)?, point(other)?);
    quotient((name, high), (other_name, low), of)
}

/// What `of` makes of a point over what it makes of another, and what was busiest at both.
fn quotient(
    (one, high): (&str, &Point),
    (other, low): (&str, &Point),
    of: fn(&Point) -> f64,
) -> Answer {
    let (above, below) = (of(high), of(low));
    if below <= 0.0 || !above.is_finite() {
        return Err(Missing(format!("{other} has nothing to divide by")));
    }
    let busy = format!("{}; {}", busy(one, high), busy(other, low));
    Ok(Found { value: above / below, busy })
}

/// A figure of a point.
type OfPoint = fn(&Point) -> f64;
/// Where a point of a case stands.
type Place<'a> = &'a dyn Fn(&Case, &Point) -> f64;

fn throughput(point: &Point) -> f64 {
    point.throughput_per_s
}

fn median(point: &Point) -> f64 {
    point.latency_us.p50
}

fn p99(point: &Point) -> f64 {
    point.latency_us.p99
}

fn aborted(point: &Point) -> f64 {
    point.conflict_rate
}

/// The smallest or largest of several answers; one that is missing makes all missing.
fn extreme(answers: impl Iterator<Item = Answer>, is_better: fn(f64, f64) -> bool) -> Answer {
    let mut best: Option<Found> = None;
    for answer in answers {
        let found = answer?;
        if best.as_ref().is_none_or(|known| is_better(found.value, known.value)) {
            best = Some(found);
        }
    }
    best.ok_or_else(|| Missing("nothing was asked for".into()))
}

fn less(one: f64, other: f64) -> bool {
    one < other
}

fn more(one: f64, other: f64) -> bool {
    one > other
}

/// Curves of some cases: those that ran.
fn curves(
    runs: &Runs,
    cases: &[Case],
    title: String,
    (x_name, x): (&str, Place<'_>),
    (y_name, y): (&str, OfPoint),
) -> Picture {
    let line = |(colour, case): (usize, &Case)| {
        let series = runs.series(case).ok()?;
        let mark = |point: &Point| Mark {
            x: x(case, point),
            y: y(point),
            title: format!(
                "{}\n{} coordinators: {:.3} M transactions/s, p50 {:.1} µs, p99 {:.1} µs\n{}",
                series.name,
                point.coordinators,
                point.throughput_per_s / 1e6,
                point.latency_us.p50,
                point.latency_us.p99,
                point.limits()
            ),
        };
        let marks = series.points.iter().map(mark).collect();
        Some(Line { name: series.name.to_owned(), colour, dashed: !series.is_safe, marks })
    };
    Picture::Lines(Chart {
        title,
        x_name: x_name.to_owned(),
        y_name: y_name.to_owned(),
        x_scale: Scale::Number,
        y_may_be_logarithmic: true,
        lines: cases.iter().enumerate().filter_map(line).collect(),
    })
}

fn millions(_: &Case, point: &Point) -> f64 {
    point.throughput_per_s / 1e6
}

/// Latency over throughput.
fn throughput_latency(runs: &Runs, cases: &[Case], title: &str) -> Picture {
    let across = ("M transactions/s", &millions as Place<'_>);
    curves(runs, cases, title.to_owned(), across, ("median latency, µs", median))
}
