//! The sections of the page, one file each: what to run, and how it becomes rows and drawings.
//!
//! Invariant: a section fills each of its published figures once, whether or not anything could be run for
//! it; it computes ratios of what ran and no constant of its own. Every row says which resource was the limit.

mod ablation;
mod bounds;
mod cost;
mod lease;
mod orders;
mod read_heavy;
mod unknown_keys;

use super::Oocc;
use super::entrant::Who;
use crate::reproduce::curve::{Point, Series};
use crate::reproduce::paper::bars::Bars;
use crate::reproduce::paper::case::{Bench, Case, Missing};
use crate::reproduce::paper::points::{
    OfPoint, aborted, extreme, less, median, more, p99, peak, throughput, throughput_latency,
};
use crate::reproduce::paper::runs::Runs;
use crate::reproduce::paper::section::{self, Jobs};
use crate::reproduce::paper::sheet::{Answer, Found, Picture};

/// A section of this page.
pub type Section = section::Section<Oocc>;
/// What it looks at.
pub type Done<'a> = section::Done<'a, Oocc>;

/// In the paper's order.
pub const ALL: &[Section] = &[
    cost::SECTION,
    read_heavy::SECTION,
    unknown_keys::SECTION,
    ablation::SECTION,
    orders::SECTION,
    lease::SECTION,
    bounds::SECTION,
];

/// Everybody on a benchmark.
fn everybody(bench: Bench, coordinators: &[usize]) -> Vec<Case> {
    Who::ALL.iter().map(|who| Case::of(bench, *who, coordinators)).collect()
}

/// A part that is busy for so much of the time is the limit.
const LIMIT: f64 = 0.85;
/// Where no part is, and so many tries are aborted, contention is.
const CONTENDED: f64 = 0.2;

/// Which resource was the limit at a point.
fn limit(point: &Point) -> String {
    let busiest = point.bottleneck.as_ref();
    let resource = match busiest.map(|busy| (busy.part, busy.share)) {
        Some((part, share)) if share >= LIMIT => match part {
            "doorbell" => "the doorbell",
            "cpu" => "the CPU",
            "nic atomics" => "the atomic unit",
            part if part.starts_with("link") => "the link",
            _ => "the NIC",
        },
        _ if point.conflict_rate >= CONTENDED => "contention",
        _ => "how many ran at once",
    };
    let shown = |name: &str| {
        let busy = point.busiest.iter().find(|busy| busy.part == name)?;
        Some(format!("{name} {:.0} %", busy.share * 100.0))
    };
    let parts = ["doorbell", "nic transmit", "nic pipeline", "nic atomics", "cpu"];
    let parts: Vec<String> = parts.into_iter().filter_map(shown).collect();
    format!(
        "limit {resource} ({}, {:.1} % of tries aborted)",
        parts.join(", "),
        point.conflict_rate * 100.0
    )
}

fn busy(name: &str, point: &Point) -> String {
    format!("{name} at {} coordinators: {}", point.coordinators, limit(point))
}

/// The curve of a case and its best point; of a run in which something failed there is none.
fn best<'a>(runs: &'a Runs, case: &Case) -> Result<(&'a Series, &'a Point), Missing> {
    let series = runs.series(case)?;
    Ok((series, peak(series)?))
}

/// What `of` makes of a case at its best.
fn of_one(runs: &Runs, case: &Case, of: &dyn Fn(&Point) -> f64) -> Answer {
    let (series, point) = best(runs, case)?;
    Ok(Found { value: of(point), busy: busy(series.name, point) })
}

/// The first answer over the second.
fn quotient(one: Answer, other: Answer) -> Answer {
    let (one, other) = (one?, other?);
    if other.value <= 0.0 || !one.value.is_finite() {
        return Err(Missing(format!("nothing to divide by: {}", other.busy)));
    }
    let busy =
        if one.busy == other.busy { one.busy } else { format!("{}; {}", one.busy, other.busy) };
    Ok(Found { value: one.value / other.value, busy })
}

/// What `of` makes of two cases at their best, the first over the second.
fn over(runs: &Runs, (one, other): (&Case, &Case), of: OfPoint) -> Answer {
    quotient(of_one(runs, one, &of), of_one(runs, other, &of))
}

/// OOCC over another on a benchmark.
fn versus(runs: &Runs, bench: Bench, other: Who, of: OfPoint) -> Answer {
    over(runs, (&Case::of(bench, Who::Oocc, &[]), &Case::of(bench, other, &[])), of)
}

/// OOCC over the lowest of the others.
fn versus_lowest(runs: &Runs, bench: Bench, of: OfPoint) -> Answer {
    extreme(Who::OTHERS.into_iter().map(|other| versus(runs, bench, other, of)), more)
}

/// Groups of bars: of each case a value in each group.
fn bars(
    title: &str,
    y_name: &str,
    groups: Vec<String>,
    series: Vec<(String, Vec<Option<f64>>)>,
) -> Picture {
    Picture::Bars(Bars { title: title.to_owned(), y_name: y_name.to_owned(), groups, series })
}

/// What `of` makes of a case at its best, if it ran.
fn drawn(runs: &Runs, case: &Case, of: &dyn Fn(&Point) -> f64) -> Option<f64> {
    best(runs, case).ok().map(|(_, point)| of(point))
}

fn millions(point: &Point) -> f64 {
    point.throughput_per_s / 1e6
}
