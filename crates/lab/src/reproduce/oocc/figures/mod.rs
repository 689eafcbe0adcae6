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
use super::entrant::{Form, Who};
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

/// Everybody on a benchmark, in a form.
fn everybody_as(form: Form, bench: Bench, coordinators: &[usize]) -> Vec<Case> {
    Who::ALL.iter().map(|who| Case::of(bench, (*who, form), coordinators)).collect()
}

/// Everybody on a benchmark, in all forms.
fn everybody(bench: Bench, coordinators: &[usize]) -> Vec<Case> {
    Form::ALL.iter().flat_map(|form| everybody_as(*form, bench, coordinators)).collect()
}

/// A part that is busy for so much of the time is the limit.
const LIMIT: f64 = 0.85;
/// Where so many tries are aborted, contention is, if no part is.
const CONTENDED: f64 = 0.2;

/// Which resource was the limit at a point.
///
/// A thread that waits for a doorbell is busy, so that a doorbell is looked at before processors. What atomics of all
/// addresses are busy for is no share of anything: they are the limit where the NIC is and most of its verbs are atomics.
fn limit(point: &Point) -> String {
    let share = |name: &str| {
        let busy = point.busiest.iter().find(|busy| busy.part == name);
        busy.map_or(0.0, |busy| busy.share)
    };
    let most = |names: &[&str]| names.iter().map(|name| share(name)).fold(0.0, f64::max);
    let nic = most(&["nic transmit", "nic receive", "nic pipeline"]);
    let (link, doorbell) = (most(&["link out", "link in"]), share("doorbell"));
    let outside = nic.max(link);
    let resource = if outside >= LIMIT && outside >= doorbell {
        match link > nic {
            true => "the link",
            false if atomics_of(point) * 2.0 >= point.verbs.values().sum::<f64>() => {
                "the NIC's atomics"
            }
            false => "the NIC",
        }
    } else if doorbell >= LIMIT {
        "the doorbell"
    } else if share("cpu") >= LIMIT {
        "the CPU"
    } else if point.conflict_rate >= CONTENDED {
        "contention"
    } else {
        "how many ran at once"
    };
    let is_in_vain = point.conflict_rate >= CONTENDED && resource != "contention";
    let shown = |name: &str| {
        let busy = point.busiest.iter().find(|busy| busy.part == name)?;
        Some(format!("{name} {:.0} %", busy.share * 100.0))
    };
    let parts = ["doorbell", "nic transmit", "nic pipeline", "nic atomics", "cpu"];
    let parts: Vec<String> = parts.into_iter().filter_map(shown).collect();
    format!(
        "limit {resource}{} ({}, {:.1} % of tries aborted)",
        if is_in_vain { ", much of it for tries that are aborted" } else { "" },
        parts.join(", "),
        point.conflict_rate * 100.0
    )
}

/// Atomics of a transaction.
fn atomics_of(point: &Point) -> f64 {
    ["cas", "faa", "masked_cas"].into_iter().map(|kind| point.verbs_of(kind)).sum()
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

/// OOCC over another on a benchmark, both in a form.
fn versus(runs: &Runs, bench: Bench, (other, form): (Who, Form), of: OfPoint) -> Answer {
    let case = |who| Case::of(bench, (who, form), &[]);
    over(runs, (&case(Who::Oocc), &case(other)), of)
}

/// OOCC over the lowest of the others.
fn versus_lowest(runs: &Runs, bench: Bench, form: Form, of: OfPoint) -> Answer {
    extreme(Who::OTHERS.into_iter().map(|other| versus(runs, bench, (other, form), of)), more)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::curve::tests::series;
    use crate::simulate::report::Busy;

    fn limit_of(
        shares: &[(&'static str, f64)],
        verbs: &[(&'static str, f64)],
        aborted: f64,
    ) -> String {
        let mut point = series(&[(1, 1.0)]).points.remove(0);
        let busy = |&(part, share)| Busy { part, of: "compute node 0".into(), share };
        point.busiest = shares.iter().map(busy).collect();
        point.verbs = verbs.iter().copied().collect();
        point.conflict_rate = aborted;
        let told = limit(&point);
        let end = told.find(" (").expect("shares follow");
        told[..end].to_owned()
    }

    #[test]
    fn each_resource_can_be_the_limit() {
        let reads = [("read", 4.0)];
        let of = |shares: &[_]| limit_of(shares, &reads, 0.0);
        assert_eq!(of(&[("cpu", 1.0), ("doorbell", 0.5)]), "limit the CPU");
        // Threads that wait for a doorbell are busy.
        assert_eq!(of(&[("cpu", 1.0), ("doorbell", 0.9)]), "limit the doorbell");
        assert_eq!(of(&[("nic pipeline", 0.99), ("doorbell", 0.9)]), "limit the NIC");
        assert_eq!(of(&[("link in", 0.99), ("nic pipeline", 0.9)]), "limit the link");
        assert_eq!(of(&[("nic atomics", 5.0), ("cpu", 0.3)]), "limit how many ran at once");
        let locks = [("read", 4.0), ("faa", 8.0)];
        assert_eq!(limit_of(&[("nic pipeline", 1.0)], &locks, 0.0), "limit the NIC's atomics");
        assert_eq!(limit_of(&[("cpu", 0.5)], &reads, 0.4), "limit contention");
        let in_vain = "limit the CPU, much of it for tries that are aborted";
        assert_eq!(limit_of(&[("cpu", 1.0)], &reads, 0.4), in_vain);
    }
}
