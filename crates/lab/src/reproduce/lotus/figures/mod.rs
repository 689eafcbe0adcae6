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

use super::Lotus;
use super::entrant::{Form, Who};
use crate::reproduce::curve::Point;
use crate::reproduce::paper::case::{Bench, Case, Missing};
use crate::reproduce::paper::points::{
    OfPoint, Place, aborted, busy, curves, extreme, less, median, more, over, p99, peak, quotient,
    throughput, throughput_latency,
};
use crate::reproduce::paper::section::{self, Jobs};
use crate::reproduce::paper::sheet::Answer;

/// A section of this page.
pub type Section = section::Section<Lotus>;
/// What it looks at.
pub type Done<'a> = section::Done<'a, Lotus>;

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
