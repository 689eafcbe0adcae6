//! What becomes of curves on a page: their peaks, ratios of them, and drawings.
//!
//! Invariant: there is no figure of a run in which something failed, or whose history is not what its form promises.

use super::case::{Case, Missing};
use super::runs::Runs;
use super::sheet::{Answer, Found, Picture};
use crate::reproduce::curve::{Point, Series};
use crate::sweep::chart::{Chart, Line, Mark, Scale};

/// The point of highest throughput; of a run in which something failed there is no figure.
pub fn peak(series: &Series) -> Result<&Point, Missing> {
    if let Some(failure) = series.failures.first() {
        return Err(Missing(format!("{}, which failed: {failure}", series.name)));
    }
    if series.is_safe && series.variant.starts_with("corrected") && series.history != "accepted" {
        return Err(Missing(format!("{}, whose history is {}", series.name, series.history)));
    }
    series.peak().ok_or_else(|| Missing(format!("{} committed nothing", series.name)))
}

/// A point, and what was busiest there.
pub fn busy(name: &str, point: &Point) -> String {
    format!("{name} at {} coordinators: {}", point.coordinators, point.limits())
}

/// What `of` makes of the peaks of two cases, the first over the second.
pub fn over(runs: &Runs, (one, other): (&Case, &Case), of: fn(&Point) -> f64) -> Answer {
    let (one, other) = (runs.series(one)?, runs.series(other)?);
    quotient((one.name, peak(one)?), (other.name, peak(other)?), of)
}

/// What `of` makes of a point over what it makes of another, and what was busiest at both.
pub fn quotient(
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
pub type OfPoint = fn(&Point) -> f64;
/// Where a point of a case stands.
pub type Place<'a> = &'a dyn Fn(&Case, &Point) -> f64;

pub fn throughput(point: &Point) -> f64 {
    point.throughput_per_s
}

pub fn median(point: &Point) -> f64 {
    point.latency_us.p50
}

pub fn p99(point: &Point) -> f64 {
    point.latency_us.p99
}

pub fn aborted(point: &Point) -> f64 {
    point.conflict_rate
}

/// The smallest or largest of several answers; one that is missing makes all missing.
pub fn extreme(answers: impl Iterator<Item = Answer>, is_better: fn(f64, f64) -> bool) -> Answer {
    let mut best: Option<Found> = None;
    for answer in answers {
        let found = answer?;
        if best.as_ref().is_none_or(|known| is_better(found.value, known.value)) {
            best = Some(found);
        }
    }
    best.ok_or_else(|| Missing("nothing was asked for".into()))
}

pub fn less(one: f64, other: f64) -> bool {
    one < other
}

pub fn more(one: f64, other: f64) -> bool {
    one > other
}

/// Curves of some cases: those that ran.
pub fn curves(
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

pub fn millions(_: &Case, point: &Point) -> f64 {
    point.throughput_per_s / 1e6
}

/// Latency over throughput.
pub fn throughput_latency(runs: &Runs, cases: &[Case], title: &str) -> Picture {
    let across = ("M transactions/s", &millions as Place<'_>);
    curves(runs, cases, title.to_owned(), across, ("median latency, µs", median))
}
